//! Sums of what pods request.

use topology::resource::{ResourceName, Resources};

/// Sums by resource name, wide enough that no number of 64-bit amounts leaves them: what is subtracted later is exactly what was added.
///
/// A sum that stops at the largest 64-bit number would forget what other pods use: one pod with `nodeName` and 8Ei of memory, which its kubelet
/// refuses, would free the node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals(Vec<(ResourceName, i128)>);

impl Totals {
    /// Adds every amount of a list.
    pub fn add(&mut self, list: &Resources) {
        for (name, amount) in list.iter() {
            *self.entry(name) += i128::from(amount);
        }
    }

    /// Takes back what [`Totals::add`] added. Names of which nothing is left are forgotten, because users choose them.
    pub fn subtract(&mut self, list: &Resources) {
        for (name, amount) in list.iter() {
            *self.entry(name) -= i128::from(amount);
        }
        self.0.retain(|(_, sum)| *sum != 0);
    }

    /// Returns the sum of a resource.
    #[inline]
    pub fn amount(&self, name: &str) -> i128 {
        let listed = self.0.iter().find(|(listed, _)| listed.as_str() == name);
        listed.map_or(0, |(_, sum)| *sum)
    }

    fn entry(&mut self, name: &ResourceName) -> &mut i128 {
        let index = match self.0.binary_search_by(|(listed, _)| listed.cmp(name)) {
            Ok(index) => index,
            Err(index) => {
                self.0.insert(index, (name.clone(), 0));
                index
            }
        };
        &mut self.0[index].1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_subtracted_is_what_was_added_whatever_the_amounts() {
        let small = Resources::from_iter([("memory", 1)]);
        let huge = Resources::from_iter([("memory", i64::MAX), ("vendor.io/x", i64::MAX)]);
        let mut totals = Totals::default();
        totals.add(&small);
        for _ in 0..3 {
            totals.add(&huge);
        }
        assert_eq!(totals.amount("memory"), 1 + 3 * i128::from(i64::MAX));
        for _ in 0..3 {
            totals.subtract(&huge);
        }
        assert_eq!(totals.amount("memory"), 1);
        let mut expected = Totals::default();
        expected.add(&small);
        assert_eq!(totals, expected, "no name is kept without an amount");
    }
}
