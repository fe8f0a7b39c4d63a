//! The amounts in JSON values, and the canonical form in which the API returns them: `0.5` becomes `500m`, `1024Mi` becomes `1Gi`.

use api::quantity::Amount;
use serde_json::Value;

/// Parses the amount in a JSON value; zero for a value that is not an amount.
pub(crate) fn amount(value: &Value) -> Amount {
    match value {
        Value::String(text) => text.parse().unwrap_or_default(),
        Value::Number(number) => number.to_string().parse().unwrap_or_default(),
        _ => Amount::default(),
    }
}

/// Returns the canonical form; `None` for a text that is not an amount.
pub(crate) fn canonical(text: &str) -> Option<String> {
    let amount: Amount = text.parse().ok()?;
    Some(amount.to_string())
}

/// Returns an amount rounded up to thousandths; `None` for one that has no finer part.
pub(crate) fn rounded(text: &str) -> Option<String> {
    let amount: Amount = text.parse().ok()?;
    let is_fine = amount.nanos() % 1_000_000 != 0;
    is_fine.then(|| Amount::from_milli(amount.milli(), amount.format()).to_string())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case::milli("0.5", "500m")]
    #[case::whole("1000m", "1")]
    #[case::thousand("1000", "1k")]
    #[case::binary("1024Mi", "1Gi")]
    #[case::binary_stays("1536Mi", "1536Mi")]
    #[case::fraction_of_binary("1.5Gi", "1536Mi")]
    #[case::exponent("1e3", "1e3")]
    #[case::zero("0Gi", "0")]
    #[case::bytes("128974848", "128974848")]
    #[case::exponent_without_power("1e2", "100")]
    #[case::negative_exponent("15e-10", "2e-9")]
    #[case::finer_than_nano("-0.1n", "-1n")]
    #[case::large_decimal("9000000000E", "9000000000E")]
    #[case::large_binary("100Ei", "9223372036854775807")]
    fn amounts_have_one_form(#[case] given: &str, #[case] expected: &str) {
        assert_eq!(canonical(given).as_deref(), Some(expected));
    }

    #[test]
    fn words_are_no_amounts() {
        assert_eq!(canonical("lots"), None);
        assert_eq!(canonical(""), None);
        assert_eq!(canonical("1Qi"), None);
        assert_eq!(canonical("--1"), None);
    }

    #[test]
    fn other_values_count_as_zero() {
        assert_eq!(amount(&json!(2)).to_string(), "2");
        for value in [json!(null), json!("lots"), json!([1])] {
            assert!(amount(&value).is_zero(), "{value}");
        }
    }
}
