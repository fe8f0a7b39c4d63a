//! Quantities in the canonical form in which the API returns them: `0.5` becomes `500m`, `1024Mi` becomes `1Gi`.

use serde_json::Value;

const BINARY: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
/// Decimal suffixes with their powers of ten, largest first.
const DECIMAL: [(&str, i32); 10] = [
    ("E", 18),
    ("P", 15),
    ("T", 12),
    ("G", 9),
    ("M", 6),
    ("k", 3),
    ("", 0),
    ("m", -3),
    ("u", -6),
    ("n", -9),
];

/// An amount in billionths, and the form in which it was written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quantity {
    nano: i128,
    form: Form,
}

impl Quantity {
    /// Zero.
    pub(crate) const ZERO: Self = Self {
        nano: 0,
        form: Form::Decimal,
    };

    /// Makes an amount from a whole number.
    pub(crate) fn whole(number: i64) -> Self {
        Self {
            nano: i128::from(number) * 1_000_000_000,
            form: Form::Decimal,
        }
    }

    /// Parses the amount in a JSON value; zero for a value that is not an amount.
    pub(crate) fn of(value: &Value) -> Self {
        match value {
            Value::String(text) => parse(text),
            Value::Number(number) => parse(&number.to_string()),
            _ => None,
        }
        .unwrap_or(Self::ZERO)
    }

    /// Returns whether it is zero.
    pub(crate) fn is_zero(self) -> bool {
        self.nano == 0
    }

    /// Returns whether it is below zero.
    pub(crate) fn is_negative(self) -> bool {
        self.nano < 0
    }

    /// Returns whether it is a whole number.
    pub(crate) fn is_whole(self) -> bool {
        self.nano % 1_000_000_000 == 0
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nano == other.nano
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.nano.cmp(&other.nano)
    }
}

impl std::ops::Add for Quantity {
    type Output = Self;

    /// Adds two amounts. The sum has the form of the first one, or that of the second when the first is zero.
    fn add(self, other: Self) -> Self {
        Self {
            nano: self.nano.saturating_add(other.nano),
            form: if self.is_zero() {
                other.form
            } else {
                self.form
            },
        }
    }
}

impl std::fmt::Display for Quantity {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&render(*self))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Form {
    Decimal,
    Binary,
    Exponent,
}

/// Returns the canonical form; `None` for a text that is not an amount.
pub(crate) fn canonical(text: &str) -> Option<String> {
    let amount = parse(text)?;
    Some(render(amount))
}

fn parse(text: &str) -> Option<Quantity> {
    let end = text
        .find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '+' || c == '-'))
        .unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (negative, digits) = match number.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, number.strip_prefix('+').unwrap_or(number)),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let mantissa: i128 = format!("{whole}{fraction}").parse().ok()?;
    let places = i32::try_from(fraction.len()).ok()?;
    let (form, factor, power) =
        if let Some(index) = BINARY.iter().position(|known| *known == suffix) {
            (
                Form::Binary,
                1024_i128.checked_pow(u32::try_from(index).ok()? + 1)?,
                0,
            )
        } else if let Some((_, power)) = DECIMAL.iter().find(|(known, _)| *known == suffix) {
            (Form::Decimal, 1, *power)
        } else {
            let exponent = suffix.strip_prefix(['e', 'E'])?;
            (Form::Exponent, 1, exponent.parse().ok()?)
        };
    let mut nano = mantissa.checked_mul(factor)?;
    let power = power - places + 9;
    let scale = 10_i128.checked_pow(power.unsigned_abs())?;
    nano = if power >= 0 {
        nano.checked_mul(scale)?
    } else {
        // parts of a billionth are rounded up, away from zero
        nano.div_euclid(scale) + i128::from(nano.rem_euclid(scale) != 0)
    };
    Some(Quantity {
        nano: if negative { -nano } else { nano },
        form,
    })
}

fn render(amount: Quantity) -> String {
    const UNIT: i128 = 1_000_000_000;
    let Quantity { nano, form } = amount;
    if nano == 0 {
        return "0".into();
    }
    if form == Form::Binary && nano % UNIT == 0 && (nano / UNIT).abs() >= 1024 {
        let mut value = nano / UNIT;
        let mut suffix = "";
        for name in BINARY {
            if value % 1024 != 0 {
                break;
            }
            value /= 1024;
            suffix = name;
        }
        return format!("{value}{suffix}");
    }
    for (suffix, power) in DECIMAL {
        let Some(scale) = u32::try_from(power + 9)
            .ok()
            .and_then(|power| 10_i128.checked_pow(power))
        else {
            continue;
        };
        if nano % scale == 0 {
            let value = nano / scale;
            return if form == Form::Exponent && power != 0 {
                format!("{value}e{power}")
            } else {
                format!("{value}{suffix}")
            };
        }
    }
    nano.to_string()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

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
    fn amounts_have_one_form(#[case] given: &str, #[case] expected: &str) {
        assert_eq!(canonical(given).as_deref(), Some(expected));
    }

    #[test]
    fn words_are_no_amounts() {
        assert_eq!(canonical("lots"), None);
        assert_eq!(canonical(""), None);
        assert_eq!(canonical("1Qi"), None);
    }
}
