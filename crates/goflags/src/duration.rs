//! Durations as Go writes them in configuration files and custom resources: `1h2m3.5s`, `100ms`, `0s`.

use std::fmt;
use std::str::FromStr;

const NANOS_PER_SECOND: i64 = 1_000_000_000;

/// A duration in nanoseconds, possibly negative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GoDuration(i64);

/// The text is not a Go duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid duration {0:?}")]
pub struct ParseError(String);

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
        let error = || ParseError(text.into());
        let (negative, mut rest) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        if rest == "0" {
            return Ok(Self(0));
        }
        if rest.is_empty() {
            return Err(error());
        }
        let mut total: i128 = 0;
        while !rest.is_empty() {
            let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(error)?;
            let whole = &rest[..digits];
            rest = &rest[digits..];
            let mut fraction = "";
            if let Some(after) = rest.strip_prefix('.') {
                let digits = after
                    .find(|c: char| !c.is_ascii_digit())
                    .ok_or_else(error)?;
                fraction = &after[..digits];
                rest = &after[digits..];
            }
            if whole.is_empty() && fraction.is_empty() {
                return Err(error());
            }
            let end = rest
                .find(|c: char| c.is_ascii_digit() || c == '.')
                .unwrap_or(rest.len());
            let unit: i128 = match &rest[..end] {
                "ns" => 1,
                "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
                "ms" => 1_000_000,
                "s" => 1_000_000_000,
                "m" => 60_000_000_000,
                "h" => 3_600_000_000_000,
                _ => return Err(error()),
            };
            rest = &rest[end..];
            if whole.len() > 19 {
                return Err(error());
            }
            let whole: i128 = if whole.is_empty() {
                0
            } else {
                whole.parse().map_err(|_| error())?
            };
            total += whole * unit;
            let mut scale = unit;
            for digit in fraction.bytes().take(15) {
                total += i128::from(digit - b'0') * scale / 10;
                scale /= 10;
            }
            if total > i128::from(i64::MAX) {
                return Err(error());
            }
        }
        let total = if negative { -total } else { total };
        i64::try_from(total).map(Self).map_err(|_| error())
    }
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
            "-",
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
