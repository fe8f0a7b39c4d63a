//! Go's text form of durations (`15s`, `2m0s`, `1.5h`, `250ms`), as Kubernetes uses it.

use std::time::Duration;

use goflags::GoDuration;
use serde::{Deserialize, Deserializer};

/// A text that is not a duration, or a negative duration.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("invalid duration {0:?}: expected a number with a unit, for example \"15s\" or \"2m30s\"")]
pub struct ParseError(String);

/// Parses a duration that is not negative.
///
/// # Errors
/// When the text does not have Go's form or is negative.
pub fn parse(text: &str) -> Result<Duration, ParseError> {
    let parsed: Option<GoDuration> = text.parse().ok();
    parsed
        .and_then(|duration| u64::try_from(duration.as_nanos()).ok())
        .map(Duration::from_nanos)
        .ok_or_else(|| ParseError(text.to_owned()))
}

/// Reads an optional duration, for `#[serde(deserialize_with)]`.
pub(crate) fn option<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Duration>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    text.map(|text| parse(&text).map_err(serde::de::Error::custom))
        .transpose()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("15s", Duration::from_secs(15))]
    #[case("2m0s", Duration::from_mins(2))]
    #[case("1.5h", Duration::from_mins(90))]
    #[case("250ms", Duration::from_millis(250))]
    #[case("1h2m3.5s", Duration::from_millis(3_723_500))]
    #[case("0", Duration::ZERO)]
    #[case("0s", Duration::ZERO)]
    fn go_durations_are_read(#[case] text: &str, #[case] expected: Duration) {
        assert_eq!(parse(text), Ok(expected));
    }

    #[rstest]
    #[case("")]
    #[case("15")]
    #[case("-1s")]
    #[case("s")]
    #[case("1.2.3s")]
    #[case("5 s")]
    #[case("5d")]
    fn other_texts_are_refused(#[case] text: &str) {
        assert_eq!(parse(text), Err(ParseError(text.to_owned())));
    }
}
