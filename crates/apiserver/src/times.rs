//! Times as the server's own types read them, and what it says of texts that are none.

use jiff::Timestamp;

/// The form of `metav1.Time`, as the refusals name it.
const SECONDS: &str = "2006-01-02T15:04:05Z07:00";
/// The form of `metav1.MicroTime`: exactly six digits after the point.
const MICROSECONDS: &str = "2006-01-02T15:04:05.000000Z07:00";

/// A time as it is written: in UTC, in whole seconds or with `micro` in microseconds, with which the text has to have six digits
/// after the point. The error is what a real server says.
pub(crate) fn canonical(text: &str, micro: bool) -> Result<String, String> {
    let layout = if micro { MICROSECONDS } else { SECONDS };
    let why = match read(text, micro) {
        Ok(()) => {
            let format = if micro {
                "%Y-%m-%dT%H:%M:%S%.6fZ"
            } else {
                "%Y-%m-%dT%H:%M:%SZ"
            };
            // what lies outside of the years that can be computed with stays as it is
            return Ok(text.parse::<Timestamp>().map_or_else(
                |_| text.to_owned(),
                |time| time.strftime(format).to_string(),
            ));
        }
        Err(Wrong::Element { rest, element }) => {
            format!(" as {layout:?}: cannot parse {rest:?} as {element:?}")
        }
        Err(Wrong::Range(what)) => format!(": {what} out of range"),
        Err(Wrong::Extra(rest)) => format!(": extra text: {rest:?}"),
    };
    Err(format!("parsing time {text:?}{why}"))
}

/// What is wrong with a text.
#[derive(Debug, PartialEq)]
enum Wrong<'a> {
    /// What is left of it does not begin with what comes next in the form.
    Element {
        rest: &'a str,
        element: &'static str,
    },
    /// A number that is too large or too small.
    Range(&'static str),
    /// Something follows.
    Extra(&'a str),
}

fn read(text: &str, micro: bool) -> Result<(), Wrong<'_>> {
    let mut rest = text;
    let year = digits(&mut rest, 4, "2006")?;
    literal(&mut rest, "-")?;
    let month = digits(&mut rest, 2, "01")?;
    in_range(month, 1..=12, "month")?;
    literal(&mut rest, "-")?;
    let day = digits(&mut rest, 2, "02")?;
    literal(&mut rest, "T")?;
    // hours alone may have one digit
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
        return Err(Wrong::Extra(rest));
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
) -> Result<(), Wrong<'static>> {
    if allowed.contains(&number) {
        Ok(())
    } else {
        Err(Wrong::Range(what))
    }
}

fn digits<'a>(rest: &mut &'a str, count: usize, element: &'static str) -> Result<i64, Wrong<'a>> {
    let wrong = Wrong::Element { rest, element };
    match rest.split_at_checked(count) {
        Some((number, after)) if number.bytes().all(|byte| byte.is_ascii_digit()) => {
            *rest = after;
            number.parse().map_err(|_| wrong)
        }
        _ => Err(wrong),
    }
}

fn literal<'a>(rest: &mut &'a str, element: &'static str) -> Result<(), Wrong<'a>> {
    *rest = rest
        .strip_prefix(element)
        .ok_or(Wrong::Element { rest, element })?;
    Ok(())
}

/// Parts of a second: six digits, or as many as there are.
fn fraction<'a>(rest: &mut &'a str, micro: bool) -> Result<(), Wrong<'a>> {
    let count = rest.strip_prefix(['.', ',']).map_or(0, |rest| {
        rest.bytes().take_while(u8::is_ascii_digit).count()
    });
    if micro {
        if count < 6 {
            return Err(Wrong::Element {
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

/// `Z` or `+01:00`.
fn zone<'a>(rest: &mut &'a str) -> Result<(), Wrong<'a>> {
    if let Some(after) = rest.strip_prefix('Z') {
        *rest = after;
        return Ok(());
    }
    let wrong = || Wrong::Element {
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
