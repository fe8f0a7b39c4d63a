//! Formats of texts in custom resources: those that a real server checks, and which texts it takes for them.

use std::collections::HashMap;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;

use goflags::GoDuration;
use jiff::civil::Date;
use regex::Regex;

mod email;
mod uri;

/// Formats that a pattern describes.
const PATTERNS: [(&str, &str); 11] = [
    ("bsonobjectid", "^[0-9a-fA-F]{24}$"),
    (
        "byte",
        "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})$",
    ),
    ("hexcolor", "^#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})$"),
    (
        "k8slongname",
        r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
    ),
    ("k8sshortname", "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"),
    (
        "rgbcolor",
        r"^rgb\([\t\n\f\r ]*(0|[1-9][0-9]?|1[0-9]{2}|2[0-4][0-9]|25[0-5])([\t\n\f\r ]*,[\t\n\f\r ]*(0|[1-9][0-9]?|1[0-9]{2}|2[0-4][0-9]|25[0-5])){2}[\t\n\f\r ]*\)$",
    ),
    ("ssn", "^[0-9]{3}[- ][0-9]{2}[- ][0-9]{4}$"),
    (
        "uuid",
        "^(?i-u:[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12})$",
    ),
    (
        "uuid3",
        "^(?i-u:[0-9a-f]{8}-?[0-9a-f]{4}-?3[0-9a-f]{3}-?[0-9a-f]{4}-?[0-9a-f]{12})$",
    ),
    (
        "uuid4",
        "^(?i-u:[0-9a-f]{8}-?[0-9a-f]{4}-?4[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12})$",
    ),
    (
        "uuid5",
        "^(?i-u:[0-9a-f]{8}-?[0-9a-f]{4}-?5[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12})$",
    ),
];

static COMPILED: LazyLock<HashMap<&str, Regex>> = LazyLock::new(|| {
    let compiled = PATTERNS.map(|(name, pattern)| (name, regex(pattern)));
    compiled.into_iter().collect()
});

/// Returns whether a real server checks texts of this format. Others it ignores.
pub(super) fn is_known(format: &str) -> bool {
    fit(format, "").is_some()
}

/// Returns whether a text has a format; texts have every format that is not known.
pub(super) fn fits(format: &str, text: &str) -> bool {
    fit(format, text).unwrap_or(true)
}

/// Returns whether a text has a format, or `None` if the format is not known. Dashes in its name mean nothing.
fn fit(format: &str, text: &str) -> Option<bool> {
    let name = format.replace('-', "");
    let is_short_enough = match name.as_str() {
        "cidr" => return Some(is_cidr(text)),
        "creditcard" => return Some(is_credit_card(text)),
        "date" => return Some(is_date(text)),
        "datetime" => return Some(is_date_time(text)),
        "duration" => return Some(is_duration(text)),
        "email" => return Some(email::is_address(text)),
        "hostname" => return Some(is_hostname(text)),
        "ipv4" => return Some(is_ipv4(text)),
        "ipv6" => return Some(text.parse::<Ipv6Addr>().is_ok()),
        "isbn" => return Some(is_isbn10(text) || is_isbn13(text)),
        "isbn10" => return Some(is_isbn10(text)),
        "isbn13" => return Some(is_isbn13(text)),
        "mac" => return Some(is_mac(text)),
        "password" => return Some(true),
        "uri" => return Some(uri::is_of_request(text)),
        "k8slongname" => text.len() <= 253,
        "k8sshortname" => text.len() <= 63,
        _ => true,
    };
    let pattern = COMPILED.get(name.as_str())?;
    Some(is_short_enough && pattern.is_match(text))
}

fn regex(pattern: &str) -> Regex {
    Regex::new(pattern).expect("patterns of this file are valid, as a test shows")
}

/// Returns whether a text is an address of IPv4, also one with leading zeros, or one of IPv6 that ends in one.
fn is_ipv4(text: &str) -> bool {
    let mapped = || text.contains('.') && text.parse::<Ipv6Addr>().is_ok();
    without_zeros(text).parse::<Ipv4Addr>().is_ok() || mapped()
}

/// Returns the address with the leading zeros of its numbers left out.
fn without_zeros(address: &str) -> String {
    let numbers = address.split('.').map(|number| {
        let last = number.len().saturating_sub(1);
        let zeros = number.bytes().take(last).take_while(|byte| *byte == b'0');
        &number[zeros.count()..]
    });
    numbers.collect::<Vec<_>>().join(".")
}

fn is_cidr(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else {
        return false;
    };
    let max = if address.contains(':') {
        address.parse::<Ipv6Addr>().ok().map(|_| 128)
    } else {
        is_ipv4(address).then_some(32)
    };
    let is_number = bits.bytes().all(|byte| byte.is_ascii_digit());
    is_number && max.is_some_and(|max| bits.parse().is_ok_and(|bits: u32| bits <= max))
}

/// Returns whether a text is a hardware address of 6, 8 or 20 bytes: parted by colons, dashes or, two by two, points, or not parted.
fn is_mac(text: &str) -> bool {
    let (separator, digits) = match text.as_bytes() {
        [_, _, b':', ..] => (':', 2),
        [_, _, b'-', ..] => ('-', 2),
        [_, _, _, _, b'.', ..] => ('.', 4),
        whole => ('.', whole.len()),
    };
    let groups: Vec<&str> = text.split(separator).collect();
    let are_hex = groups
        .iter()
        .all(|group| group.len() == digits && group.bytes().all(|byte| byte.is_ascii_hexdigit()));
    are_hex && [12, 16, 40].contains(&(groups.len() * digits))
}

fn is_date(text: &str) -> bool {
    // other ways of writing a date are none of RFC 3339
    let is_short = |(at, byte): (usize, u8)| match at {
        4 | 7 => byte == b'-',
        _ => byte.is_ascii_digit(),
    };
    text.len() == 10 && text.bytes().enumerate().all(is_short) && text.parse::<Date>().is_ok()
}

/// Returns whether a text is a time as a real server takes it: no leap seconds, any character before a fraction, and whatever follows another `T`.
fn is_date_time(text: &str) -> bool {
    static TIME: LazyLock<Regex> = LazyLock::new(|| {
        regex("^([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](.[0-9]+)?(z|[+-][0-9]{2}:[0-9]{2})$")
    });
    let text = text.to_lowercase();
    let mut parts = text.split('t');
    let (date, time) = (parts.next(), parts.next());
    date.is_some_and(is_date) && time.is_some_and(|time| TIME.is_match(time))
}

/// Returns whether a text is a duration of Go's, or has somewhere a number with a unit of Scala's.
fn is_duration(text: &str) -> bool {
    static PARTS: LazyLock<Regex> = LazyLock::new(|| regex(r"([0-9]+)[\t\n\f\r ]*([A-Za-zµ]+)"));
    const UNITS: [&str; 15] = [
        "ns", "us", "µs", "ms", "s", "sec", "m", "h", "hr", "d", "w", "wk", "min", "hour", "week",
    ];
    const STARTS: [&str; 8] = [
        "nano", "micro", "milli", "sec", "min", "hour", "day", "week",
    ];
    if text.parse::<GoDuration>().is_ok() {
        return true;
    }
    let mut has_unit = false;
    for part in PARTS.captures_iter(text) {
        if part[1].parse::<i64>().is_err() {
            return false;
        }
        let unit = part[2].to_lowercase();
        has_unit |=
            UNITS.contains(&unit.as_str()) || STARTS.iter().any(|start| unit.starts_with(start));
    }
    has_unit
}

fn is_hostname(text: &str) -> bool {
    // a name without points may have one dash, after its first character
    static NAME: LazyLock<Regex> = LazyLock::new(|| {
        regex(
            r"^([a-zA-Z0-9\p{S}\p{L}]-?[a-zA-Z0-9\p{S}\p{L}]*|([a-zA-Z0-9\p{S}\p{L}]([-a-zA-Z0-9\p{S}\p{L}]*[a-zA-Z0-9\p{S}\p{L}])?\.)+\p{L}{2,})$",
        )
    });
    text.len() <= 255 && text.split('.').all(|label| label.len() <= 63) && NAME.is_match(text)
}

/// Returns whether a text has the digits of a card that one of the great companies gave out, and the last one fits the others.
fn is_credit_card(text: &str) -> bool {
    static CARD: LazyLock<Regex> = LazyLock::new(|| {
        regex(
            "^(4[0-9]{12}([0-9]{3})?|5[1-5][0-9]{14}|6(011|5[0-9]{2})[0-9]{12}|3[47][0-9]{13}|3(0[0-5]|[68][0-9])[0-9]{11}|(2131|1800|35[0-9]{3})[0-9]{11})$",
        )
    });
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    let doubled = |(at, digit): (usize, u32)| match (at % 2, digit * 2) {
        (0, _) => digit,
        (_, twice) => twice / 10 + twice % 10,
    };
    let sum: u32 = digits_of(&digits).rev().enumerate().map(doubled).sum();
    CARD.is_match(&digits) && sum.is_multiple_of(10)
}

fn is_isbn10(text: &str) -> bool {
    static NUMBER: LazyLock<Regex> = LazyLock::new(|| regex("^[0-9]{9}[0-9X]$"));
    let text = without_gaps(text);
    if !NUMBER.is_match(&text) {
        return false;
    }
    let last = if text.ends_with('X') { 10 } else { 0 };
    let sum: u32 = digits_of(&text)
        .zip(1..)
        .map(|(digit, at)| digit * at)
        .sum();
    (sum + last * 10).is_multiple_of(11)
}

fn is_isbn13(text: &str) -> bool {
    static NUMBER: LazyLock<Regex> = LazyLock::new(|| regex("^[0-9]{13}$"));
    let text = without_gaps(text);
    let factors = [1, 3].into_iter().cycle();
    let sum: u32 = digits_of(&text)
        .zip(factors)
        .map(|(digit, factor)| digit * factor)
        .sum();
    NUMBER.is_match(&text) && sum.is_multiple_of(10)
}

fn without_gaps(text: &str) -> String {
    text.replace(['-', '\t', '\n', '\u{c}', '\r', ' '], "")
}

fn digits_of(text: &str) -> impl DoubleEndedIterator<Item = u32> {
    text.chars().filter_map(|character| character.to_digit(10))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[test]
    fn every_pattern_is_valid_and_known() {
        for (name, _) in PATTERNS {
            assert!(is_known(name), "{name}");
        }
        assert!(is_known("date-time"));
        assert!(!is_known("int32"));
        assert!(fits("int32", "anything"));
    }

    /// What a real server says of these texts is in the recorded conversations (`formats.yaml`).
    #[rstest]
    #[case("byte", "", false)]
    #[case("cidr", "010.0.0.0/08", true)]
    #[case("cidr", "10.0.0.0/+8", false)]
    #[case("creditcard", "4111 1111 1111 1111", true)]
    #[case("creditcard", "4111 1111 1111 1112", false)]
    #[case("date", "20240229", false)]
    #[case("date", "2023-02-29", false)]
    #[case("date-time", "2024-02-29T23:59:60Z", false)]
    #[case("date-time", "2024-02-29t23:59:59,5+25:00", true)]
    #[case("duration", "about 3 weeks", true)]
    #[case("duration", "99999999999999999999 d", false)]
    #[case("email", "Name <n@example.com>", true)]
    #[case("email", "example.com", false)]
    #[case("hostname", "a-b", true)]
    #[case("hostname", "a-b-c", false)]
    #[case("hostname", "a-b-c.example", true)]
    #[case("ipv4", "010.1.2.3", true)]
    #[case("ipv4", "::ffff:1.2.3.4", true)]
    #[case("ipv6", "1.2.3.4", false)]
    #[case("isbn", "978-0321751041", true)]
    #[case("isbn10", "080442957X", true)]
    #[case("isbn10", "0804429570", false)]
    #[case("isbn13", "978-0321751042", false)]
    #[case("k8s-short-name", "A", false)]
    #[case("mac", "0123.4567.89ab", true)]
    #[case("mac", "0123456789ab", true)]
    #[case("mac", "01:23-45:67:89:ab", false)]
    #[case("rgbcolor", "rgb(0, 99 ,255)", true)]
    #[case("rgbcolor", "rgb(0,1,256)", false)]
    #[case("uuid4", "f47ac10b-58cc-3372-8567-0e02b2c3d479", false)]
    fn a_text_has_a_format(#[case] format: &str, #[case] text: &str, #[case] expected: bool) {
        assert_eq!(fits(format, text), expected);
    }
}
