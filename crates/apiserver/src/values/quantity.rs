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

    fn texts() -> Vec<String> {
        const NUMBERS: &[&str] = &[
            "",
            "0",
            "00",
            "1",
            "3",
            "7",
            "10",
            "007",
            "100",
            "512",
            "999",
            "1000",
            "1001",
            "1023",
            "1024",
            "1025",
            "1536",
            "2048",
            "1000000",
            "1048576",
            "123456789",
            "1073741824",
            "4294967296",
            "8191",
            "9000000000",
            "0.",
            ".",
            ".5",
            "0.5",
            "1.5",
            "1.",
            "1.0",
            "1.10",
            "0.1",
            "0.25",
            "0.001",
            "0.0001",
            "0.000000001",
            "0.0000000001",
            "0.1234567891",
            "1.9999999999",
            "1023.5",
            "1024.125",
            "1.000000001",
            "1.0000000000000000001",
            "1.2.3",
            "x",
            "1x",
        ];
        const SUFFIXES: &[&str] = &[
            "", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei",
            "K", "ki", "mi", "i", "Zi", "e", "E+", "e-", "e0", "E0", "e1", "e2", "e3", "E3", "e03",
            "e+3", "e-3", "E-3", "e6", "e9", "e-6", "e-9", "e-10", "e-20", "e12", "e1.5", "e3m",
            " ", " Gi", "Gi ", "%", "\u{b5}",
        ];
        let mut all = Vec::new();
        for sign in ["", "+", "-"] {
            for number in NUMBERS {
                for suffix in SUFFIXES {
                    all.push(format!("{sign}{number}{suffix}"));
                }
            }
        }
        all
    }

    #[test]
    fn both_types_read_and_write_the_same() {
        let limit = i128::from(i64::MAX) * 1_000_000_000;
        let (mut equal, mut beyond, mut refused) = (0, 0, 0);
        let mut different = Vec::new();
        for text in texts() {
            let old = parse(&text);
            let new = text.parse::<api::quantity::Amount>().ok();
            match (old, new) {
                (None, None) => refused += 1,
                (Some(old), Some(_)) if old.form == Form::Binary && old.nano.abs() > limit => {
                    beyond += 1
                }
                (Some(old), Some(new))
                    if old.nano == new.nanos()
                        && render(old) == new.to_string()
                        && old.is_whole() == new.is_whole() =>
                {
                    equal += 1;
                }
                (old, new) => different.push(format!(
                    "{text:?}: {:?} {:?}",
                    old.map(render),
                    new.map(|new| new.to_string())
                )),
            }
        }
        println!(
            "{equal} equal, {beyond} beyond the cap, {refused} refused, {} different",
            different.len()
        );
        assert!(different.is_empty(), "{different:#?}");
    }

    #[test]
    fn both_types_add_the_same() {
        let texts = [
            "0", "0Gi", "1", "-1", "1500m", "1Ki", "1Gi", "3n", "1e3", "2e-3", "1024", "-1Gi",
            "5E", "100M",
        ];
        for one in texts {
            for two in texts {
                let amount = |text: &str| text.parse::<api::quantity::Amount>().unwrap();
                let old = parse(one).unwrap() + parse(two).unwrap();
                let new = amount(one) + amount(two);
                assert_eq!(render(old), new.to_string(), "{one} + {two}");
                assert_eq!(
                    parse(one).unwrap().cmp(&parse(two).unwrap()),
                    amount(one).cmp(&amount(two)),
                    "{one} {two}"
                );
            }
        }
    }
}
