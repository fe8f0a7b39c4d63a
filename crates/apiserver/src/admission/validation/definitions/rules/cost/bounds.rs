//! Lower and upper bounds: of what a value holds, and of what a part of a rule costs. Nothing overflows: values stay at the maximum.
//!
//! The arithmetic is that of cel-go's `checker/cost.go`, including the rounding, because refusals depend on it.

/// A lower and an upper bound, both inclusive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Bounds {
    /// Lower bound.
    pub(super) min: u64,
    /// Upper bound.
    pub(super) max: u64,
}

impl Bounds {
    /// The bounds of an unknown amount.
    pub(super) const UNKNOWN: Self = Self::new(0, u64::MAX);
    /// The start value of a union.
    pub(super) const EMPTY: Self = Self::new(u64::MAX, 0);

    /// Makes bounds from the lower and the upper one.
    pub(super) const fn new(min: u64, max: u64) -> Self {
        Self { min, max }
    }

    /// Makes the bounds of an exact amount.
    pub(super) const fn exactly(amount: u64) -> Self {
        Self::new(amount, amount)
    }

    /// Adds both bounds.
    pub(super) fn plus(self, other: Self) -> Self {
        Self::new(
            self.min.saturating_add(other.min),
            self.max.saturating_add(other.max),
        )
    }

    /// Multiplies both bounds.
    pub(super) fn times(self, other: Self) -> Self {
        Self::new(
            self.min.saturating_mul(other.min),
            self.max.saturating_mul(other.max),
        )
    }

    /// Multiplies both bounds by a factor and rounds up.
    pub(super) fn scaled(self, factor: f64) -> Self {
        Self::new(scaled(self.min, factor), scaled(self.max, factor))
    }

    /// Returns the narrowest bounds that include both.
    pub(super) fn or(self, other: Self) -> Self {
        Self::new(self.min.min(other.min), self.max.max(other.max))
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
        let bounds = Bounds::new(1, 21);
        assert_eq!(bounds.scaled(0.1), Bounds::new(1, 3));
        assert_eq!(Bounds::UNKNOWN.scaled(2.0), Bounds::UNKNOWN);
        assert_eq!(Bounds::UNKNOWN.plus(bounds), Bounds::new(1, u64::MAX));
        assert_eq!(Bounds::UNKNOWN.times(bounds), Bounds::new(0, u64::MAX));
        assert_eq!(Bounds::EMPTY.or(bounds), bounds);
    }
}
