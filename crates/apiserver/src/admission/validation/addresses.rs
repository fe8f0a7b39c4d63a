//! Checks of addresses and of ranges of addresses.

use std::net::{IpAddr, Ipv6Addr};

use serde_json::json;

use crate::failure::Cause;

const IP: &str = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
const CIDR: &str = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";

/// How many bits of an IPv6 address say that it is one of IPv4.
const MAPPED: u32 = 96;

/// A range of addresses, with the bits beyond its prefix cleared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    base: u128,
    length: u32,
    is_v4: bool,
}

impl Range {
    pub(super) fn is_v4(self) -> bool {
        self.is_v4
    }

    /// Returns whether another range lies in this one and is smaller.
    pub(super) fn strictly_contains(self, other: Self) -> bool {
        self.is_v4 == other.is_v4
            && self.length < other.length
            && masked(other.base, self.length, self.is_v4) == self.base
    }

    fn canonical(self) -> String {
        // as Go prints an IPv4 address that is written as one of IPv6
        if !self.is_v4
            && self.length >= MAPPED
            && let Some(address) = Ipv6Addr::from(self.base).to_ipv4_mapped()
        {
            return format!("{address}/{}", self.length - MAPPED);
        }
        let address = if self.is_v4 {
            // the value has 32 bits
            IpAddr::V4(u32::try_from(self.base).unwrap_or_default().into())
        } else {
            IpAddr::V6(self.base.into())
        };
        format!("{address}/{}", self.length)
    }
}

fn masked(bits: u128, length: u32, is_v4: bool) -> u128 {
    let width = if is_v4 { 32 } else { 128 };
    let rest = width - length.min(width);
    bits.checked_shr(rest)
        .and_then(|kept| kept.checked_shl(rest))
        .unwrap_or_default()
}

/// Parses an address as a real server does in fields of old: the numbers of an IPv4 address may begin with zeros.
pub(super) fn parse(text: &str) -> Option<IpAddr> {
    if let Ok(address) = text.parse() {
        return Some(address);
    }
    let numbers: Vec<&str> = text.split('.').collect();
    let digits = |number: &&str| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
    if numbers.len() != 4 || !numbers.iter().all(digits) {
        return None;
    }
    let parsed: Option<Vec<u8>> = numbers.iter().map(|number| number.parse().ok()).collect();
    <[u8; 4]>::try_from(parsed?).ok().map(IpAddr::from)
}

/// Parses a range.
pub(super) fn parse_range(text: &str) -> Option<Range> {
    let (address, length) = text.split_once('/')?;
    let address = parse(address)?;
    if length.is_empty() || !length.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let length: u32 = length.parse().ok()?;
    let (bits, width, is_v4) = match address {
        IpAddr::V4(address) => (u128::from(u32::from(address)), 32, true),
        IpAddr::V6(address) => (u128::from(address), 128, false),
    };
    (length <= width).then(|| Range {
        base: masked(bits, length, is_v4),
        length,
        is_v4,
    })
}

/// Checks an address in a field of old.
pub(super) fn legacy(text: &str, path: &str, causes: &mut Vec<Cause>) {
    if parse(text).is_none() {
        causes.push(Cause::invalid(path, &json!(text), IP));
    }
}

/// Returns what is wrong with an address that must have its canonical form.
pub(super) fn strict(text: &str) -> Vec<String> {
    let Some(address) = parse(text) else {
        return vec![IP.to_owned()];
    };
    if text.parse::<IpAddr>().is_err() {
        return vec!["must not have leading 0s".to_owned()];
    }
    if let IpAddr::V6(address) = address
        && address.to_ipv4_mapped().is_some()
    {
        return vec!["must not be an IPv4-mapped IPv6 address".to_owned()];
    }
    let canonical = address.to_string();
    if text == canonical {
        Vec::new()
    } else {
        vec![format!("must be in canonical form ({canonical:?})")]
    }
}

/// Returns what is to be said about an address in a field of old that is no standard form, if it is an address.
pub(super) fn old_form(text: &str) -> Option<String> {
    let address = parse(text)?;
    match text.parse::<IpAddr>() {
        Ok(IpAddr::V6(address)) if address.to_ipv4_mapped().is_none() => {
            let canonical = address.to_string();
            (canonical != text).then(|| {
                format!(
                    "IPv6 address {text:?} should be in RFC 5952 canonical format ({canonical:?})"
                )
            })
        }
        Ok(IpAddr::V4(_)) => None,
        _ => Some(format!(
            "non-standard IP address {text:?} will be considered invalid in a future Kubernetes release: use {:?}",
            address.to_canonical().to_string()
        )),
    }
}

/// Returns what is to be said about a range in a field of old, if it is a range.
pub(super) fn old_forms_of_range(text: &str) -> Vec<String> {
    let (Some(range), Some((address, length))) = (parse_range(text), text.split_once('/')) else {
        return Vec::new();
    };
    let mut told = Vec::new();
    let canonical = range.canonical();
    let single = parse(address).map(|address| address.to_canonical());
    let first = canonical
        .split_once('/')
        .and_then(|(first, _)| parse(first));
    if let Some(single) =
        single.filter(|single| Some(*single) != first.map(|first| first.to_canonical()))
    {
        let width = if range.is_v4 { 32 } else { 128 };
        told.push(format!(
            "CIDR value {text:?} is ambiguous in this context (should be {canonical:?} or \"{single}/{width}\"?)"
        ));
    }
    let is_standard = match address.parse::<IpAddr>() {
        Ok(IpAddr::V6(address)) => address.to_ipv4_mapped().is_none(),
        Ok(IpAddr::V4(_)) => true,
        Err(_) => false,
    };
    if !is_standard || (length.len() > 1 && length.starts_with('0')) {
        told.push(format!(
            "non-standard CIDR value {text:?} will be considered invalid in a future Kubernetes release: use {canonical:?}"
        ));
    }
    if told.is_empty() && !range.is_v4 && text != canonical {
        told.push(format!(
            "IPv6 CIDR value {text:?} should be in RFC 5952 canonical format ({canonical:?})"
        ));
    }
    told
}

/// Checks a range in a field of old.
pub(super) fn legacy_range(text: &str, path: &str, causes: &mut Vec<Cause>) {
    if parse_range(text).is_none() {
        causes.push(Cause::invalid(path, &json!(text), CIDR));
    }
}

/// Checks a range that must have its canonical form.
pub(super) fn strict_range(text: &str, path: &str, causes: &mut Vec<Cause>) {
    let mut refuse = |why: &str| causes.push(Cause::invalid(path, &json!(text), why));
    let Some(range) = parse_range(text) else {
        return refuse(CIDR);
    };
    let (address, length) = text.split_once('/').unwrap_or_default();
    if address.parse::<IpAddr>().is_err() || (length.len() > 1 && length.starts_with('0')) {
        return refuse("must not have leading 0s in IP or prefix length");
    }
    let canonical = range.canonical();
    if address.parse::<IpAddr>().ok()
        != canonical
            .split_once('/')
            .and_then(|(ip, _)| ip.parse().ok())
    {
        return refuse("must not have bits set beyond the prefix length");
    }
    if text != canonical {
        refuse(&format!("must be in canonical form ({canonical:?})"));
    }
}

/// Checks that an address is that of another machine.
pub(super) fn not_loopback(text: &str, path: &str, causes: &mut Vec<Cause>) {
    if parse(text).is_some_and(|address| address.is_loopback()) {
        let why = "may not be in the loopback range (127.0.0.0/8, ::1/128)";
        causes.push(Cause::invalid(path, &json!(text), why));
    }
}

/// Checks that an address can be that of an endpoint. A loopback address can, which a real server refuses: pods of the embedded cluster have such
/// addresses.
pub(super) fn endpoint(text: &str, path: &str, causes: &mut Vec<Cause>) {
    let mut refuse = |why: &str| causes.push(Cause::invalid(path, &json!(text), why));
    let Some(address) = parse(text) else {
        return refuse("must be a valid IP address");
    };
    if address.is_unspecified() {
        refuse(&format!("may not be unspecified ({text})"));
    }
    let (unicast, multicast) = match address {
        IpAddr::V4(address) => (
            address.is_link_local(),
            address.octets().starts_with(&[224, 0, 0]),
        ),
        IpAddr::V6(address) => (
            address.is_unicast_link_local(),
            address.octets()[0] == 0xff && address.octets()[1] & 0x0f == 2,
        ),
    };
    if unicast {
        refuse("may not be in the link-local range (169.254.0.0/16, fe80::/10)");
    }
    if multicast {
        refuse("may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)");
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::plain("192.0.2.1", true)]
    #[case::leading_zeros("192.000.002.001", true)]
    #[case::too_large("192.0.2.256", false)]
    #[case::too_few("192.0.2", false)]
    #[case::v6("2001:db8::1", true)]
    #[case::name("a.example.com", false)]
    fn fields_of_old_take_leading_zeros(#[case] text: &str, #[case] right: bool) {
        assert_eq!(parse(text).is_some(), right);
    }

    #[rstest]
    #[case::canonical("198.51.100.0/24", None)]
    #[case::bits_beyond(
        "198.51.100.1/24",
        Some("must not have bits set beyond the prefix length")
    )]
    #[case::too_long("198.51.100.0/33", Some(CIDR))]
    #[case::zeros(
        "2001:0db8::/32",
        Some("must be in canonical form (\"2001:db8::/32\")")
    )]
    fn ranges_have_one_form(#[case] text: &str, #[case] why: Option<&str>) {
        let mut causes = Vec::new();
        strict_range(text, "p", &mut causes);
        let wanted: Vec<Cause> = why
            .map(|why| Cause::invalid("p", &json!(text), why))
            .into_iter()
            .collect();
        assert_eq!(causes, wanted);
    }

    #[test]
    fn a_smaller_range_lies_in_a_larger_one() {
        let range = |text| parse_range(text).unwrap();
        assert!(range("192.0.2.0/24").strictly_contains(range("192.0.2.128/25")));
        assert!(!range("192.0.2.0/24").strictly_contains(range("192.0.2.0/24")));
        assert!(!range("192.0.2.0/24").strictly_contains(range("192.0.3.0/25")));
        assert!(range("0.0.0.0/0").strictly_contains(range("192.0.2.0/24")));
    }
}
