//! Go's text form of durations (`15s`, `2m0s`, `1.5h`, `250ms`), as Kubernetes uses it.

use std::time::Duration;

use serde::{Deserialize, Deserializer};

/// Units of Go's form, in nanoseconds.
const UNITS: &[(&str, f64)] = &[
    ("ns", 1.0),
    ("us", 1e3),
    ("µs", 1e3),
    ("ms", 1e6),
    ("s", 1e9),
    ("m", 60e9),
    ("h", 3600e9),
];

/// A text that is not a duration, or a negative duration.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("invalid duration {0:?}: expected a number with a unit, for example \"15s\" or \"2m30s\"")]
pub struct ParseError(String);

/// Parses a duration that is not negative.
///
/// # Errors
/// When the text does not have Go's form or is negative.
pub fn parse(text: &str) -> Result<Duration, ParseError> {
    let bad = || ParseError(text.to_owned());
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest.is_empty() {
        return Err(bad());
    }
    let mut nanoseconds = 0.0;
    while !rest.is_empty() {
        let digits = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .ok_or_else(bad)?;
        let number: f64 = rest[..digits].parse().map_err(|_| bad())?;
        rest = &rest[digits..];
        let end = rest
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(rest.len());
        let (_, factor) = UNITS
            .iter()
            .find(|(unit, _)| *unit == &rest[..end])
            .ok_or_else(bad)?;
        nanoseconds += number * factor;
        rest = &rest[end..];
    }
    Duration::try_from_secs_f64(nanoseconds / 1e9).map_err(|_| bad())
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
