//! Sets of the indexes of an Indexed job, in the form of its status: `0-2,4`.

use std::fmt;

/// Indexes as ranges that are sorted and do not touch; both ends belong to a range.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Indexes(Vec<(i32, i32)>);

impl Indexes {
    /// Reads the form of a status. Indexes that a job with so many completions does not have, and what cannot be read, are left out.
    pub(super) fn parse(text: &str, completions: i32) -> Self {
        let mut indexes = Self::default();
        for range in text.split(',') {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            if let (Ok(first), Ok(last)) = (first.parse::<i32>(), last.parse::<i32>()) {
                let last = last.min(completions - 1);
                if first >= 0 && first <= last {
                    indexes.insert(first, last);
                }
            }
        }
        indexes
    }

    /// Adds the indexes from `first` to `last`.
    pub(super) fn insert(&mut self, first: i32, last: i32) {
        let (mut first, mut last) = (first, last);
        self.0.retain(|(from, to)| {
            let is_apart = *to < first - 1 || *from > last.saturating_add(1);
            if !is_apart {
                first = first.min(*from);
                last = last.max(*to);
            }
            is_apart
        });
        let place = self.0.partition_point(|(from, _)| *from < first);
        self.0.insert(place, (first, last));
    }

    /// Adds the indexes of another set.
    pub(super) fn merge(&mut self, other: &Self) {
        for (first, last) in &other.0 {
            self.insert(*first, *last);
        }
    }

    /// Returns whether an index is in the set.
    pub(super) fn contains(&self, index: i32) -> bool {
        let ranges = self.0.iter();
        ranges
            .clone()
            .any(|(first, last)| (*first..=*last).contains(&index))
    }

    /// Returns the number of indexes.
    pub(super) fn total(&self) -> i32 {
        self.0.iter().map(|(first, last)| last - first + 1).sum()
    }

    /// Returns how many of these indexes are in the other set, too.
    pub(super) fn shared_with(&self, other: &Self) -> i32 {
        let pairs = self
            .0
            .iter()
            .flat_map(|own| other.0.iter().map(move |other| (own, other)));
        pairs
            .map(|(own, other)| (own.1.min(other.1) - own.0.max(other.0) + 1).max(0))
            .sum()
    }

    /// Returns the first indexes below `end` that are not in the set, at most `count`.
    pub(super) fn first_missing(&self, count: usize, end: i32) -> Vec<i32> {
        let mut missing = Vec::new();
        let mut next = 0;
        let ends = self.0.iter().copied().chain([(end, end)]);
        for (first, last) in ends {
            let gap = next..first.min(end);
            missing.extend(gap.take(count - missing.len()));
            next = last + 1;
        }
        missing
    }
}

impl FromIterator<i32> for Indexes {
    fn from_iter<I: IntoIterator<Item = i32>>(indexes: I) -> Self {
        let mut set = Self::default();
        for index in indexes {
            set.insert(index, index);
        }
        set
    }
}

impl fmt::Display for Indexes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, (first, last)) in self.0.iter().enumerate() {
            if place > 0 {
                f.write_str(",")?;
            }
            match last - first {
                0 => write!(f, "{first}")?,
                1 => write!(f, "{first},{last}")?,
                _ => write!(f, "{first}-{last}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::nothing("", 5, "")]
    #[case::one("3", 5, "3")]
    #[case::two_in_a_row("0,1", 5, "0,1")]
    #[case::three_in_a_row("0,1,2", 5, "0-2")]
    #[case::with_a_hole("0-2,4", 5, "0-2,4")]
    #[case::of_more_completions("0-2,4-9", 3, "0-2")]
    #[case::unreadable("x,1-y,2", 5, "2")]
    #[case::disordered("4,0-3", 9, "0-4")]
    fn a_status_is_read_and_written(
        #[case] text: &str,
        #[case] completions: i32,
        #[case] expected: &str,
    ) {
        assert_eq!(Indexes::parse(text, completions).to_string(), expected);
    }

    #[rstest]
    #[case::from_the_beginning("", 2, vec![0, 1])]
    #[case::around_ranges("0,2-3", 9, vec![1, 4, 5])]
    #[case::no_more_than_wanted("1", 1, vec![0])]
    #[case::none_left("0-5", 3, vec![])]
    fn what_is_missing_comes_in_order(
        #[case] held: &str,
        #[case] count: usize,
        #[case] expected: Vec<i32>,
    ) {
        assert_eq!(Indexes::parse(held, 6).first_missing(count, 6), expected);
    }

    #[test]
    fn two_sets_share_what_is_in_both() {
        let held = Indexes::parse("0-4,7,9-11", 20);
        assert_eq!(held.shared_with(&Indexes::parse("3-7,10", 20)), 4);
    }
}
