//! Times as the server's own types parse them, and its messages about texts that are not times.

use jiff::Timestamp;

use super::draws;

/// The layout of `metav1.Time`, as refusals show it.
const SECONDS: &str = "2006-01-02T15:04:05Z07:00";
/// The layout of `metav1.MicroTime`: exactly six digits after the decimal point.
const MICROSECONDS: &str = "2006-01-02T15:04:05.000000Z07:00";

/// Returns a time in UTC, in whole seconds; with `micro`, in microseconds. With `micro`, the text must have six digits after the decimal
/// point. The error is a real server's message.
pub(crate) fn canonical(text: &str, micro: bool) -> Result<String, String> {
    let layout = if micro { MICROSECONDS } else { SECONDS };
    let why = match read(text, micro) {
        Ok(()) => {
            let format = if micro {
                "%Y-%m-%dT%H:%M:%S%.6fZ"
            } else {
                "%Y-%m-%dT%H:%M:%SZ"
            };
            // times outside of the years that `jiff` supports stay unchanged
            return Ok(text.parse::<Timestamp>().map_or_else(
                |_| text.to_owned(),
                |time| time.strftime(format).to_string(),
            ));
        }
        Err(TimeError::Element { rest, element }) => {
            format!(" as {layout:?}: cannot parse {rest:?} as {element:?}")
        }
        Err(TimeError::Range(what)) => format!(": {what} out of range"),
        Err(TimeError::Extra(rest)) => format!(": extra text: {rest:?}"),
    };
    Err(format!("parsing time {text:?}{why}"))
}

/// Why a text is not a time.
#[derive(Debug, PartialEq)]
enum TimeError<'a> {
    /// The rest of the text does not begin with the next element of the layout.
    Element {
        rest: &'a str,
        element: &'static str,
    },
    /// A number that is out of range.
    Range(&'static str),
    /// The text continues after the time.
    Extra(&'a str),
}

fn read(text: &str, micro: bool) -> Result<(), TimeError<'_>> {
    let mut rest = text;
    let year = digits(&mut rest, 4, "2006")?;
    literal(&mut rest, "-")?;
    let month = digits(&mut rest, 2, "01")?;
    in_range(month, 1..=12, "month")?;
    literal(&mut rest, "-")?;
    let day = digits(&mut rest, 2, "02")?;
    literal(&mut rest, "T")?;
    // only hours may have a single digit
    let short = rest.len() > 1 && !rest.as_bytes()[1].is_ascii_digit();
    let hour = digits(&mut rest, if short { 1 } else { 2 }, "15")?;
    in_range(hour, 0..=23, "hour")?;
    literal(&mut rest, ":")?;
    let minute = digits(&mut rest, 2, "04")?;
    in_range(minute, 0..=59, "minute")?;
    literal(&mut rest, ":")?;
    let second = digits(&mut rest, 2, "05")?;
    in_range(second, 0..=59, "second")?;
    fraction(&mut rest, micro)?;
    zone(&mut rest)?;
    if !rest.is_empty() {
        return Err(TimeError::Extra(rest));
    }
    let days = jiff::civil::Date::new(
        i16::try_from(year).unwrap_or_default(),
        i8::try_from(month).unwrap_or_default(),
        1,
    )
    .map_or(31, |first| i64::from(first.days_in_month()));
    in_range(day, 1..=days, "day")
}

fn in_range(
    number: i64,
    allowed: std::ops::RangeInclusive<i64>,
    what: &'static str,
) -> Result<(), TimeError<'static>> {
    if allowed.contains(&number) {
        Ok(())
    } else {
        Err(TimeError::Range(what))
    }
}

fn digits<'a>(
    rest: &mut &'a str,
    count: usize,
    element: &'static str,
) -> Result<i64, TimeError<'a>> {
    let wrong = TimeError::Element { rest, element };
    match rest.split_at_checked(count) {
        Some((number, after)) if number.bytes().all(|byte| byte.is_ascii_digit()) => {
            *rest = after;
            number.parse().map_err(|_| wrong)
        }
        _ => Err(wrong),
    }
}

fn literal<'a>(rest: &mut &'a str, element: &'static str) -> Result<(), TimeError<'a>> {
    *rest = rest
        .strip_prefix(element)
        .ok_or(TimeError::Element { rest, element })?;
    Ok(())
}

/// Parses fractions of a second: exactly six digits with `micro`, otherwise any number.
fn fraction<'a>(rest: &mut &'a str, micro: bool) -> Result<(), TimeError<'a>> {
    let count = rest.strip_prefix(['.', ',']).map_or(0, |rest| {
        rest.bytes().take_while(u8::is_ascii_digit).count()
    });
    if micro {
        if count < 6 {
            return Err(TimeError::Element {
                rest,
                element: ".000000",
            });
        }
        *rest = &rest[7..];
    } else if count > 0 {
        *rest = &rest[count + 1..];
    }
    Ok(())
}

/// Parses `Z` or an offset such as `+01:00`.
fn zone<'a>(rest: &mut &'a str) -> Result<(), TimeError<'a>> {
    if let Some(after) = rest.strip_prefix('Z') {
        *rest = after;
        return Ok(());
    }
    let wrong = || TimeError::Element {
        rest,
        element: "Z07:00",
    };
    let (offset, after) = rest.split_at_checked(6).ok_or_else(wrong)?;
    let (hours, minutes) = offset
        .strip_prefix(['+', '-'])
        .and_then(|offset| offset.split_once(':'))
        .ok_or_else(wrong)?;
    let number = |text: &str| text.parse::<u8>().map(i64::from).map_err(|_| wrong());
    in_range(number(hours)?, 0..=24, "time zone offset hour")?;
    in_range(number(minutes)?, 0..=60, "time zone offset minute")?;
    *rest = after;
    Ok(())
}

/// Returns the present time in the format of the API.
pub(crate) fn now() -> String {
    instant(draws::time())
}

/// Returns a time in the format of the API.
pub(crate) fn instant(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("2026-01-01T00:00:00Z", false, "2026-01-01T00:00:00Z")]
    #[case("2026-01-01T00:00:00.5Z", false, "2026-01-01T00:00:00Z")]
    #[case("2026-01-01T00:00:00+02:00", false, "2025-12-31T22:00:00Z")]
    #[case("2026-01-01T00:00:00.123400Z", true, "2026-01-01T00:00:00.123400Z")]
    fn times_are_written_in_one_form(
        #[case] text: &str,
        #[case] micro: bool,
        #[case] expected: &str,
    ) {
        assert_eq!(canonical(text, micro).as_deref(), Ok(expected));
    }

    #[rstest]
    #[case("yesterday", false, r#"parsing time "yesterday" as "2006-01-02T15:04:05Z07:00": cannot parse "yesterday" as "2006""#)]
    #[case(
        "2026-13-01T00:00:00Z",
        false,
        r#"parsing time "2026-13-01T00:00:00Z": month out of range"#
    )]
    #[case(
        "2026-02-30T00:00:00Z",
        false,
        r#"parsing time "2026-02-30T00:00:00Z": day out of range"#
    )]
    #[case("2026-01-01 00:00:00Z", false, r#"parsing time "2026-01-01 00:00:00Z" as "2006-01-02T15:04:05Z07:00": cannot parse " 00:00:00Z" as "T""#)]
    #[case("2026-01-01T00:00:00", false, r#"parsing time "2026-01-01T00:00:00" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "Z07:00""#)]
    #[case(
        "2026-01-01T00:00:00Zx",
        false,
        r#"parsing time "2026-01-01T00:00:00Zx": extra text: "x""#
    )]
    #[case("2026-01-01T00:00:01.5Z", true, r#"parsing time "2026-01-01T00:00:01.5Z" as "2006-01-02T15:04:05.000000Z07:00": cannot parse ".5Z" as ".000000""#)]
    #[case("2026-01-01T00:00:01.1234567Z", true, r#"parsing time "2026-01-01T00:00:01.1234567Z" as "2006-01-02T15:04:05.000000Z07:00": cannot parse "7Z" as "Z07:00""#)]
    fn other_texts_are_refused_as_go_refuses_them(
        #[case] text: &str,
        #[case] micro: bool,
        #[case] expected: &str,
    ) {
        assert_eq!(canonical(text, micro).unwrap_err(), expected);
    }
}
