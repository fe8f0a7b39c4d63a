//! Durations as Go writes them in configuration files and custom resources: `1h2m3.5s`, `100ms`, `0s`.

use std::fmt;
use std::str::FromStr;

const NANOS_PER_SECOND: i64 = 1_000_000_000;

/// A duration in nanoseconds, possibly negative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GoDuration(i64);

/// The text is not a Go duration. The messages are Go's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// It is no number with a unit, or is too long a time.
    #[error("invalid duration {0:?}")]
    Invalid(String),
    /// A number has no unit.
    #[error("missing unit in duration {0:?}")]
    MissingUnit(String),
    /// A number has a unit that is none.
    #[error("unknown unit {unit:?} in duration {text:?}")]
    UnknownUnit {
        /// The unit.
        unit: String,
        /// The whole text.
        text: String,
    },
}

impl ParseError {
    fn new(text: &str, wrong: Wrong<'_>) -> Self {
        let text = text.to_owned();
        match wrong {
            Wrong::Number => Self::Invalid(text),
            Wrong::Unit("") => Self::MissingUnit(text),
            Wrong::Unit(unit) => Self::UnknownUnit {
                unit: unit.to_owned(),
                text,
            },
        }
    }
}

/// What is wrong with a number and its unit.
#[derive(Clone, Copy, Debug)]
enum Wrong<'a> {
    Number,
    Unit(&'a str),
}

impl GoDuration {
    /// Creates a duration from whole seconds; caps values that do not fit.
    pub const fn from_seconds(seconds: i64) -> Self {
        Self(seconds.saturating_mul(NANOS_PER_SECOND))
    }

    /// Creates a duration from nanoseconds.
    pub const fn from_nanos(nanos: i64) -> Self {
        Self(nanos)
    }

    /// Returns the nanoseconds.
    pub const fn as_nanos(self) -> i64 {
        self.0
    }

    /// Returns whole seconds, rounded half away from zero like Go's `Round`.
    pub const fn rounded_seconds(self) -> i64 {
        let half = if self.0 < 0 {
            -NANOS_PER_SECOND / 2
        } else {
            NANOS_PER_SECOND / 2
        };
        self.0.saturating_add(half) / NANOS_PER_SECOND
    }
}

impl FromStr for GoDuration {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let (negative, rest) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        if rest == "0" {
            return Ok(Self(0));
        }
        let nanos = unsigned_nanos(rest).map_err(|wrong| ParseError::new(text, wrong))?;
        if negative {
            return Ok(Self(0_i64.wrapping_sub_unsigned(nanos)));
        }
        i64::try_from(nanos)
            .map(Self)
            .map_err(|_| ParseError::Invalid(text.to_owned()))
    }
}

/// The greatest magnitude: that of the most negative duration.
const LIMIT: u64 = 1 << 63;

/// Reads one or more numbers, each with its unit. The sum is at most [`LIMIT`].
fn unsigned_nanos(text: &str) -> Result<u64, Wrong<'_>> {
    let mut total = 0;
    let mut rest = text;
    loop {
        let (nanos, after) = number_with_unit(rest)?;
        let sum = nanos.checked_add(total).and_then(at_most_limit);
        total = sum.ok_or(Wrong::Number)?;
        rest = after;
        if rest.is_empty() {
            return Ok(total);
        }
    }
}

/// Reads the number at the start of the text, and its unit. Returns nanoseconds and what follows.
fn number_with_unit(text: &str) -> Result<(u64, &str), Wrong<'_>> {
    let (whole, rest) = digits(text);
    let (fraction, rest) = match rest.strip_prefix('.') {
        Some(after) => digits(after),
        None => ("", rest),
    };
    if whole.is_empty() && fraction.is_empty() {
        return Err(Wrong::Number);
    }
    let end = rest
        .find(|c: char| c.is_ascii_digit() || c == '.')
        .unwrap_or(rest.len());
    let (unit, rest) = rest.split_at(end);
    let unit: u64 = match unit {
        "ns" => 1,
        "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        other => return Err(Wrong::Unit(other)),
    };
    let whole: u64 = match whole {
        "" => 0,
        whole => whole.parse().map_err(|_| Wrong::Number)?,
    };
    let nanos = whole
        .checked_mul(unit)
        .and_then(|nanos| nanos.checked_add(part_of(unit, fraction)))
        .and_then(at_most_limit);
    Ok((nanos.ok_or(Wrong::Number)?, rest))
}

fn digits(text: &str) -> (&str, &str) {
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    text.split_at(end)
}

fn at_most_limit(nanos: u64) -> Option<u64> {
    (nanos <= LIMIT).then_some(nanos)
}

/// Returns the nanoseconds of a fraction of a unit. Go multiplies as floating-point numbers and truncates, and leaves out the digits that do
/// not fit an `int64`.
fn part_of(unit: u64, fraction: &str) -> u64 {
    let mut value: u64 = 0;
    let mut scale = 1.0;
    for digit in fraction.bytes() {
        let next = match value.checked_mul(10) {
            Some(shifted) if value <= (LIMIT - 1) / 10 => shifted + u64::from(digit - b'0'),
            _ => break,
        };
        if next > LIMIT {
            break;
        }
        value = next;
        scale *= 10.0;
    }
    // Go computes in float64 and truncates as well.
    (value as f64 * (unit as f64 / scale)) as u64
}

impl fmt::Display for GoDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.unsigned_abs();
        if nanos == 0 {
            return f.write_str("0s");
        }
        if self.0 < 0 {
            f.write_str("-")?;
        }
        if nanos < 1_000 {
            return write!(f, "{nanos}ns");
        }
        if nanos < 1_000_000 {
            return write!(f, "{}\u{b5}s", Decimal(nanos, 1_000));
        }
        if nanos < 1_000_000_000 {
            return write!(f, "{}ms", Decimal(nanos, 1_000_000));
        }
        let minutes = nanos / 60_000_000_000;
        let seconds = Decimal(nanos % 60_000_000_000, 1_000_000_000);
        match (minutes / 60, minutes % 60) {
            (0, 0) => write!(f, "{seconds}s"),
            (0, minutes) => write!(f, "{minutes}m{seconds}s"),
            (hours, minutes) => write!(f, "{hours}h{minutes}m{seconds}s"),
        }
    }
}

/// A count of nanoseconds and the unit to write it in, also in nanoseconds. Written without trailing zeros.
struct Decimal(u64, u64);

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(nanos, unit) = *self;
        write!(f, "{}", nanos / unit)?;
        let rest = nanos % unit;
        if rest > 0 {
            let width = unit.ilog10() as usize;
            let digits = format!("{rest:0width$}");
            write!(f, ".{}", digits.trim_end_matches('0'))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[track_caller]
    fn check(text: &str, nanos: i64, written: &str) {
        let parsed: GoDuration = text.parse().unwrap();
        assert_eq!(parsed.as_nanos(), nanos, "{text}");
        assert_eq!(parsed.to_string(), written, "{text}");
    }

    #[test]
    fn durations_are_read_and_written_as_go_does() {
        check("0", 0, "0s");
        check("10s", 10_000_000_000, "10s");
        check("1m", 60_000_000_000, "1m0s");
        check("90m", 5_400_000_000_000, "1h30m0s");
        check("1h2m3.5s", 3_723_500_000_000, "1h2m3.5s");
        check("100ms", 100_000_000, "100ms");
        check("1.5us", 1_500, "1.5\u{b5}s");
        check("-2s", -2_000_000_000, "-2s");
        check(".5s", 500_000_000, "500ms");
    }

    /// The expected values were printed by `time.ParseDuration` of Go 1.26.
    #[rstest]
    #[case::leading_zeros("00000000000000000001s", 1_000_000_000)]
    #[case::more_digits_than_a_float_holds("1.9999999999999h", 7_199_999_999_999)]
    #[case::fraction_is_truncated("0.1234567899s", 123_456_789)]
    #[case::fraction_beyond_int64("0.3333333333333333333333h", 1_200_000_000_000)]
    #[case::fraction_rounds_up_to_a_whole_unit("0.99999999999999999999s", 1_000_000_000)]
    #[case::digits_beyond_int64("0.9223372036854775807999h", 3_320_413_933_267)]
    #[case::below_a_nanosecond("-0.5ns", 0)]
    #[case::greatest("9223372036854775807ns", i64::MAX)]
    #[case::greatest_in_parts("9223372036s854775807ns", i64::MAX)]
    #[case::most_negative("-9223372036854775808ns", i64::MIN)]
    #[case::dot_without_fraction("1.s", 1_000_000_000)]
    #[case::units_in_any_order("1ns1h1ns", 3_600_000_000_002)]
    fn edges_are_read_as_go_does(#[case] text: &str, #[case] nanos: i64) {
        assert_eq!(text.parse::<GoDuration>().unwrap().as_nanos(), nanos);
    }

    /// The messages were printed by Go 1.26.
    #[rstest]
    #[case::no_number("soon", "invalid duration \"soon\"")]
    #[case::no_unit("-5", "missing unit in duration \"-5\"")]
    #[case::second_number("1s2", "missing unit in duration \"1s2\"")]
    #[case::unit("1d", "unknown unit \"d\" in duration \"1d\"")]
    #[case::sign_within("1h-2m", "unknown unit \"h-\" in duration \"1h-2m\"")]
    #[case::too_long("9223372036854775808ns", "invalid duration \"9223372036854775808ns\"")]
    fn what_is_wrong_is_told_as_go_does(#[case] text: &str, #[case] expected: &str) {
        let error = text.parse::<GoDuration>().unwrap_err();
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            "5",
            "s",
            ".s",
            "1d",
            "1s2",
            "99999999999999999999h",
            "9223372036854775808ns",
            "9223372036s854775808ns",
            "-9223372036854775809ns",
            "-",
            "+",
            ".",
            "1h-2m",
        ] {
            assert!(text.parse::<GoDuration>().is_err(), "{text}");
        }
    }

    #[test]
    fn seconds_round_half_away_from_zero() {
        assert_eq!("1500ms".parse::<GoDuration>().unwrap().rounded_seconds(), 2);
        assert_eq!("1499ms".parse::<GoDuration>().unwrap().rounded_seconds(), 1);
        assert_eq!(
            "-1500ms".parse::<GoDuration>().unwrap().rounded_seconds(),
            -2
        );
    }
}
