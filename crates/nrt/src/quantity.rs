//! Amounts of the domain as Kubernetes quantities: thousandths of a core for CPU, whole units for everything else
//! ([`topology::resource`]).

use api::quantity::{Amount, Format, ParseError};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use topology::resource::ResourceName;

/// Returns the amount of a resource, rounded away from zero.
pub fn read(name: &ResourceName, quantity: &Quantity) -> Result<i64, ParseError> {
    let amount = Amount::try_from(quantity)?;
    Ok(if name.is_cpu() {
        amount.milli()
    } else {
        amount.units()
    })
}

/// Formats an amount as decimal, as other exporters do: `33554432k` for 32,000 MiB (rte.md 4.4).
pub fn write(name: &ResourceName, amount: i64) -> Quantity {
    if name.is_cpu() {
        Amount::from_milli(amount, Format::DecimalSi).to_quantity()
    } else {
        Amount::from_units(amount, Format::DecimalSi).to_quantity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rstest::rstest;

    #[rstest]
    #[case("cpu", 4000, "4")]
    #[case("cpu", 1500, "1500m")]
    #[case("cpu", 1_000_000, "1k")]
    #[case("vendor/nic", 1000, "1k")]
    #[case("vendor/nic", 0, "0")]
    #[case("vendor/nic", 999, "999")]
    #[case("vendor/nic", 5_000_000, "5M")]
    #[case("memory", 33_554_432_000, "33554432k")]
    #[case("memory", 68_719_476_736, "68719476736")]
    #[case("memory", 0, "0")]
    #[case("hugepages-2Mi", 33_554_432_000, "33554432k")]
    #[case("hugepages-1Gi", 68_719_476_736, "68719476736")]
    #[case("hugepages-1Gi", 9_000_000_000_000_000_000, "9E")]
    fn amounts_are_decimal(#[case] name: &str, #[case] amount: i64, #[case] expected: &str) {
        assert_eq!(write(&name.into(), amount).0, expected);
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(name in prop::sample::select(vec!["cpu", "memory", "a.b/c"]), amount in 0..=i64::MAX) {
            let name = ResourceName::from(name);
            prop_assert_eq!(read(&name, &write(&name, amount)), Ok(amount));
        }
    }
}
