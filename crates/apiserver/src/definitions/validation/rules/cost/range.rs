//! Least and most: of what a value holds, and of what a part of a rule costs. Nothing overflows, it stays at the most that there is.
//!
//! The arithmetic is that of cel-go's `checker/cost.go`, rounding included: refusals depend on it.

/// A least and a most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Range {
    /// Least.
    pub(super) least: u64,
    /// Most.
    pub(super) most: u64,
}

impl Range {
    /// Nothing is known.
    pub(super) const UNKNOWN: Self = Self::new(0, u64::MAX);
    /// What a union starts with.
    pub(super) const NOTHING: Self = Self::new(u64::MAX, 0);

    /// From a least to a most.
    pub(super) const fn new(least: u64, most: u64) -> Self {
        Self { least, most }
    }

    /// Exactly so much.
    pub(super) const fn exactly(amount: u64) -> Self {
        Self::new(amount, amount)
    }

    /// Both together.
    pub(super) fn plus(self, other: Self) -> Self {
        Self::new(
            self.least.saturating_add(other.least),
            self.most.saturating_add(other.most),
        )
    }

    /// One for each of the other.
    pub(super) fn times(self, other: Self) -> Self {
        Self::new(
            self.least.saturating_mul(other.least),
            self.most.saturating_mul(other.most),
        )
    }

    /// A part or a multiple, rounded up.
    pub(super) fn scaled(self, factor: f64) -> Self {
        Self::new(scaled(self.least, factor), scaled(self.most, factor))
    }

    /// What holds both.
    pub(super) fn or(self, other: Self) -> Self {
        Self::new(self.least.min(other.least), self.most.max(other.most))
    }
}

/// A float that is too big becomes the most that there is, as conversions of Rust do it.
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
