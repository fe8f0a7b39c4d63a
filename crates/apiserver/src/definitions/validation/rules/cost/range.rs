//! Lower and upper bounds: of what a value holds, and of what a part of a rule costs. Nothing overflows: values stay at the maximum.
//!
//! The arithmetic is that of cel-go's `checker/cost.go`, including the rounding, because refusals depend on it.

/// A lower and an upper bound, both inclusive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Range {
    /// Lower bound.
    pub(super) least: u64,
    /// Upper bound.
    pub(super) most: u64,
}

impl Range {
    /// The range of an unknown amount.
    pub(super) const UNKNOWN: Self = Self::new(0, u64::MAX);
    /// The start value of a union.
    pub(super) const NOTHING: Self = Self::new(u64::MAX, 0);

    /// Makes a range from its bounds.
    pub(super) const fn new(least: u64, most: u64) -> Self {
        Self { least, most }
    }

    /// Makes the range of an exact amount.
    pub(super) const fn exactly(amount: u64) -> Self {
        Self::new(amount, amount)
    }

    /// Adds both bounds.
    pub(super) fn plus(self, other: Self) -> Self {
        Self::new(
            self.least.saturating_add(other.least),
            self.most.saturating_add(other.most),
        )
    }

    /// Multiplies both bounds.
    pub(super) fn times(self, other: Self) -> Self {
        Self::new(
            self.least.saturating_mul(other.least),
            self.most.saturating_mul(other.most),
        )
    }

    /// Multiplies both bounds by a factor and rounds up.
    pub(super) fn scaled(self, factor: f64) -> Self {
        Self::new(scaled(self.least, factor), scaled(self.most, factor))
    }

    /// Returns the smallest range that includes both.
    pub(super) fn or(self, other: Self) -> Self {
        Self::new(self.least.min(other.least), self.most.max(other.most))
    }
}

/// Multiplies and rounds up; a result that is too large becomes `u64::MAX`, because float conversions in Rust saturate.
fn scaled(amount: u64, factor: f64) -> u64 {
    (amount as f64 * factor).ceil() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_rounded_up_and_never_overflow() {
        let range = Range::new(1, 21);
        assert_eq!(range.scaled(0.1), Range::new(1, 3));
        assert_eq!(Range::UNKNOWN.scaled(2.0), Range::UNKNOWN);
        assert_eq!(Range::UNKNOWN.plus(range), Range::new(1, u64::MAX));
        assert_eq!(Range::UNKNOWN.times(range), Range::new(0, u64::MAX));
        assert_eq!(Range::NOTHING.or(range), range);
    }
}
