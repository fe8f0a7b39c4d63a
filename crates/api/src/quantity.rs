//! Kubernetes quantities: exact values with a suffix, such as `1500m`, `2Gi` or `1e3`.
//!
//! A value is an integer number of nanos (10^-9), the smallest step that Kubernetes supports. As in Kubernetes, finer input is rounded up,
//! and values with a binary suffix are capped at 2^63-1. Kubernetes has no limit for decimal values; here it is 10^29, far above everything
//! that exists. Output has the canonical form: no fraction, and the largest suffix that keeps the exact value.

use std::fmt;
use std::ops::{Add, Sub};
use std::str::FromStr;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// The resource that programs calculate with in thousandths.
const CPU: &str = "cpu";

const NANO: i128 = 1_000_000_000;
/// The largest value with a binary suffix.
const MAX_BINARY: i128 = (i64::MAX as i128) * NANO;
/// The largest other value.
const MAX_DECIMAL: i128 = 10_i128.pow(38);

/// The suffixes that a quantity is written with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Format {
    /// `m`, no suffix, `k`, `M`, ... in steps of 1000.
    #[default]
    DecimalSi,
    /// `Ki`, `Mi`, ... in steps of 1024.
    BinarySi,
    /// `e3`, `e6`, ...
    DecimalExponent,
}

/// A parsed quantity. Equality and order compare the value and ignore the format.
#[derive(Clone, Copy, Debug, Default)]
pub struct Amount {
    nanos: i128,
    format: Format,
}

/// The text is not a quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid quantity {0:?}")]
pub struct ParseError(String);

impl Amount {
    /// Creates an amount from whole units (cores, bytes, devices).
    pub fn from_units(units: i64, format: Format) -> Self {
        Self {
            nanos: i128::from(units) * NANO,
            format,
        }
    }

    /// Creates an amount from thousandths of a unit.
    pub fn from_milli(milli: i64, format: Format) -> Self {
        Self {
            nanos: i128::from(milli) * (NANO / 1000),
            format,
        }
    }

    /// Creates an amount of a resource from the unit that programs calculate with: thousandths of a core for `cpu`, whole units for
    /// everything else.
    pub fn of(resource: &str, amount: i64, format: Format) -> Self {
        if resource == CPU {
            Self::from_milli(amount, format)
        } else {
            Self::from_units(amount, format)
        }
    }

    /// Returns the value in the unit of [`Amount::of`], rounded away from zero, capped to 64 bits.
    pub fn in_unit_of(self, resource: &str) -> i64 {
        if resource == CPU {
            self.milli()
        } else {
            self.units()
        }
    }

    /// Returns the value in nanos.
    pub fn nanos(self) -> i128 {
        self.nanos
    }

    /// Returns the value in thousandths, rounded away from zero, capped to 64 bits.
    pub fn milli(self) -> i64 {
        saturate(divide_away(self.nanos, NANO / 1000))
    }

    /// Returns the value in whole units, rounded away from zero.
    pub fn units(self) -> i64 {
        saturate(divide_away(self.nanos, NANO))
    }

    /// Returns whether the amount is zero.
    pub fn is_zero(self) -> bool {
        self.nanos == 0
    }

    /// Returns whether the amount is below zero.
    pub fn is_negative(self) -> bool {
        self.nanos < 0
    }

    /// Returns whether the amount is a number of whole units.
    pub fn is_whole(self) -> bool {
        self.nanos % NANO == 0
    }

    /// Returns the format that the amount is written in.
    pub fn format(self) -> Format {
        self.format
    }

    /// Returns the canonical wire form.
    pub fn to_quantity(self) -> Quantity {
        Quantity(self.to_string())
    }
}

/// Returns the value of a quantity in the unit of [`Amount::of`], rounded away from zero.
pub fn in_unit_of(resource: &str, quantity: &Quantity) -> Result<i64, ParseError> {
    let amount: Amount = quantity.0.parse()?;
    Ok(amount.in_unit_of(resource))
}

/// Returns the whole units of a quantity, rounded away from zero.
pub fn units(quantity: &Quantity) -> Result<i64, ParseError> {
    quantity.0.parse::<Amount>().map(Amount::units)
}

/// Returns the thousandths of a quantity, rounded away from zero.
pub fn milli(quantity: &Quantity) -> Result<i64, ParseError> {
    quantity.0.parse::<Amount>().map(Amount::milli)
}

fn saturate(value: i128) -> i64 {
    i64::try_from(value).unwrap_or(if value < 0 { i64::MIN } else { i64::MAX })
}

fn divide_away(value: i128, by: i128) -> i128 {
    let rest = value % by;
    value / by + rest.signum()
}

impl PartialEq for Amount {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Amount {}

impl PartialOrd for Amount {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Amount {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

impl Add for Amount {
    type Output = Self;

    /// Adds two amounts. The sum has the format of the first one, or that of the second when the first is zero.
    fn add(self, other: Self) -> Self {
        Self {
            nanos: self.nanos.saturating_add(other.nanos),
            format: if self.is_zero() {
                other.format
            } else {
                self.format
            },
        }
    }
}

impl Sub for Amount {
    type Output = Self;

    /// Takes one amount from another. The difference has the format of the first one.
    fn sub(self, other: Self) -> Self {
        Self {
            nanos: self.nanos.saturating_sub(other.nanos),
            ..self
        }
    }
}

impl TryFrom<&Quantity> for Amount {
    type Error = ParseError;

    fn try_from(quantity: &Quantity) -> Result<Self, ParseError> {
        quantity.0.parse()
    }
}

impl From<Amount> for Quantity {
    fn from(amount: Amount) -> Self {
        amount.to_quantity()
    }
}

/// Parses a suffix into its format and exponent; the base is 1024 or 10.
fn suffix(text: &str) -> Option<(Format, i32)> {
    let binary = |steps| Some((Format::BinarySi, steps));
    let decimal = |exponent| Some((Format::DecimalSi, exponent));
    match text {
        "n" => decimal(-9),
        "u" => decimal(-6),
        "m" => decimal(-3),
        "" => decimal(0),
        "k" => decimal(3),
        "M" => decimal(6),
        "G" => decimal(9),
        "T" => decimal(12),
        "P" => decimal(15),
        "E" => decimal(18),
        "Ki" => binary(1),
        "Mi" => binary(2),
        "Gi" => binary(3),
        "Ti" => binary(4),
        "Pi" => binary(5),
        "Ei" => binary(6),
        _ => {
            let exponent = text.strip_prefix(['e', 'E'])?;
            if exponent.is_empty() {
                return None;
            }
            let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
            if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
                return None;
            }
            let value: i64 = exponent.parse().ok()?;
            Some((
                Format::DecimalExponent,
                i32::try_from(value.clamp(-1000, 1000)).ok()?,
            ))
        }
    }
}

impl FromStr for Amount {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let error = || ParseError(text.into());
        let (negative, rest) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let split = rest
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(rest.len());
        let (whole, rest) = rest.split_at(split);
        let (fraction, rest) = match rest.strip_prefix('.') {
            Some(after) => after.split_at(
                after
                    .find(|c: char| !c.is_ascii_digit())
                    .unwrap_or(after.len()),
            ),
            None => ("", rest),
        };
        if whole.is_empty() && fraction.is_empty() {
            return Err(error());
        }
        let (format, power) = suffix(rest).ok_or_else(error)?;
        let magnitude = match format {
            Format::BinarySi => scaled(whole, fraction, 1_i128 << (10 * power), 0, MAX_BINARY),
            Format::DecimalSi | Format::DecimalExponent => {
                scaled(whole, fraction, 1, power, MAX_DECIMAL)
            }
        };
        Ok(Self {
            nanos: if negative { -magnitude } else { magnitude },
            format,
        })
    }
}

/// Computes `whole.fraction * factor * 10^exponent` in nanos, rounded up and capped at `max`.
fn scaled(whole: &str, fraction: &str, factor: i128, exponent: i32, max: i128) -> i128 {
    let digits = whole
        .bytes()
        .chain(fraction.bytes())
        .map(|b| i128::from(b - b'0'));
    // moves the decimal point behind all digits and converts to nanos
    let mut shift = i64::from(exponent) + 9 - i64::try_from(fraction.len()).unwrap_or(i64::MAX / 2);
    let mut value: i128 = 0;
    let mut lost = false;
    let mut skipped: i64 = 0;
    for digit in digits {
        // no value below the cap has more than 38 digits; further ones only move the decimal point
        if value >= 10_i128.pow(37) {
            lost |= digit != 0;
            skipped += 1;
        } else {
            value = value * 10 + digit;
        }
    }
    shift += skipped;
    if value == 0 {
        return i128::from(lost);
    }
    if shift >= 0 {
        let power = u32::try_from(shift)
            .ok()
            .and_then(|shift| 10_i128.checked_pow(shift));
        let product = power
            .and_then(|power| value.checked_mul(power))
            .and_then(|value| value.checked_mul(factor));
        return product.map_or(max, |value| value.min(max));
    }
    let divisor = u32::try_from(-shift)
        .ok()
        .and_then(|shift| 10_i128.checked_pow(shift));
    let Some(divisor) = divisor else { return 1 };
    // multiply in two parts: the product of the whole value and the factor could overflow although the result fits
    let (high, low) = (value / divisor, value % divisor);
    let Some(high) = high.checked_mul(factor) else {
        return max;
    };
    let low = match low.checked_mul(factor) {
        Some(low) => low / divisor + i128::from(low % divisor != 0 || lost),
        None => divide_away(low, (divisor / factor).max(1)),
    };
    high.saturating_add(low).min(max)
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nanos == 0 {
            return f.write_str("0");
        }
        let whole = self.nanos % NANO == 0;
        if self.format == Format::BinarySi && whole && self.nanos.abs() >= 1024 * NANO {
            let mut value = self.nanos / NANO;
            let mut step = 0;
            while step < 6 && value % 1024 == 0 {
                value /= 1024;
                step += 1;
            }
            return write!(
                f,
                "{value}{}",
                ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"][step]
            );
        }
        let mut value = self.nanos;
        let mut step = 0;
        while step < 9 && value % 1000 == 0 {
            value /= 1000;
            step += 1;
        }
        if self.format == Format::DecimalExponent {
            let exponent = i32::try_from(step).unwrap_or(0) * 3 - 9;
            return if exponent == 0 {
                write!(f, "{value}")
            } else {
                write!(f, "{value}e{exponent}")
            };
        }
        write!(
            f,
            "{value}{}",
            ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"][step]
        )
    }
}

#[cfg(test)]
mod tests;
