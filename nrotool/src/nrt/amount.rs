//! Amounts as people read them, and as programs do.

use std::collections::BTreeMap;

use api::quantity::{Amount, Format};
use topology::resource::{ResourceName, Resources};

/// Units of bytes, the largest first.
const UNITS: [(&str, i64); 4] = [
    ("Ti", 1 << 40),
    ("Gi", 1 << 30),
    ("Mi", 1 << 20),
    ("Ki", 1 << 10),
];

/// Formats an amount in Kubernetes notation, exactly.
pub(crate) fn exact(name: &ResourceName, amount: i64) -> String {
    let format = if is_bytes(name) {
        Format::BinarySi
    } else {
        Format::DecimalSi
    };
    Amount::of(name.as_str(), amount, format).to_string()
}

/// Formats amounts in Kubernetes notation, exactly.
pub(crate) fn all_exact(resources: &Resources) -> BTreeMap<String, String> {
    resources
        .iter()
        .map(|(name, amount)| (name.to_string(), exact(name, amount)))
        .collect()
}

/// Formats an amount for people: bytes with at most one digit after the point, rounded down; everything else exactly.
pub(crate) fn rounded(name: &ResourceName, amount: i64) -> String {
    if name.is_cpu() {
        return decimal(amount, 1000);
    }
    if is_bytes(name) {
        for (unit, size) in UNITS {
            if amount >= size {
                let tenths = i128::from(amount) * 10 / i128::from(size);
                return decimal(i64::try_from(tenths).unwrap_or(i64::MAX), 10) + unit;
            }
        }
    }
    amount.to_string()
}

/// Formats `name=amount` for people, by name.
pub(crate) fn list(resources: &Resources) -> String {
    let words: Vec<String> = resources
        .iter()
        .filter(|(_, amount)| *amount != 0)
        .map(|(name, amount)| format!("{name}={}", rounded(name, amount)))
        .collect();
    words.join(" ")
}

fn is_bytes(name: &ResourceName) -> bool {
    name.is_memory_like() || name.as_str() == "ephemeral-storage"
}

/// Writes a fraction with a decimal point and without trailing zeros. `scale` is a power of ten.
fn decimal(amount: i64, scale: i64) -> String {
    let (whole, rest) = (amount / scale, (amount % scale).abs());
    if rest == 0 {
        return whole.to_string();
    }
    let width = scale.ilog10() as usize;
    let digits = format!("{rest:0width$}");
    format!("{whole}.{}", digits.trim_end_matches('0'))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::whole_cpus("cpu", 46_000, "46", "46")]
    #[case::part_of_a_cpu("cpu", 1_250, "1.25", "1250m")]
    #[case::whole_bytes("memory", 4 << 30, "4Gi", "4Gi")]
    #[case::rounded_down("memory", 66_434_367_488, "61.8Gi", "64877312Ki")]
    #[case::few_bytes("memory", 100, "100", "100")]
    #[case::hugepages("hugepages-2Mi", 1 << 30, "1Gi", "1Gi")]
    #[case::devices("vendor.io/nic", 5000, "5000", "5k")]
    fn amounts_are_short_for_people_and_exact_for_programs(
        #[case] name: &str,
        #[case] amount: i64,
        #[case] short: &str,
        #[case] full: &str,
    ) {
        let name = ResourceName::from(name);
        assert_eq!(rounded(&name, amount), short);
        assert_eq!(exact(&name, amount), full);
    }
}
