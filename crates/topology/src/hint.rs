//! Hints of the kubelet's resource managers: where something could be placed, and whether that placement is as narrow as possible
//! (kubelet-node.md 5.2).

use crate::mask::{NumaMask, ZoneId};
use std::collections::BTreeMap;

/// One possible placement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hint {
    /// The zones; `None` if any zone will do.
    pub affinity: Option<NumaMask>,
    /// Whether no narrower placement is possible on an empty machine.
    pub preferred: bool,
}

impl Hint {
    /// Creates a hint for these zones.
    pub fn of(mask: NumaMask, preferred: bool) -> Self {
        Self {
            affinity: Some(mask),
            preferred,
        }
    }

    /// Creates a hint without zones.
    pub fn anywhere(preferred: bool) -> Self {
        Self {
            affinity: None,
            preferred,
        }
    }
}

/// The hints of one manager for one container or pod, by resource: `None` if the manager has no preference, an empty list if it
/// cannot serve the request.
pub type ProviderHints = BTreeMap<String, Option<Vec<Hint>>>;

/// Returns the lists of all managers in the form that merging needs, one for each resource.
pub fn lists(providers: &[ProviderHints]) -> Vec<Vec<Hint>> {
    let mut lists = Vec::new();
    for provider in providers {
        if provider.is_empty() {
            lists.push(vec![Hint::anywhere(true)]);
        }
        lists.extend(provider.values().map(|hints| match hints {
            None => vec![Hint::anywhere(true)],
            Some(hints) if hints.is_empty() => vec![Hint::anywhere(false)],
            Some(hints) => hints.clone(),
        }));
    }
    lists
}

/// Returns every non-empty set of these zones, by size, then in lexicographic order.
pub fn masks(zones: &[ZoneId]) -> Vec<NumaMask> {
    let mut all = Vec::new();
    for size in 1..=zones.len() {
        for_each_subset(zones, size, &mut |subset| {
            all.push(subset.iter().copied().collect());
        });
    }
    all
}

/// Calls `visit` with every subset of `items` of this size, in lexicographic order of positions.
pub fn for_each_subset<T: Copy>(items: &[T], size: usize, visit: &mut impl FnMut(&[T])) {
    fn extend<T: Copy>(
        items: &[T],
        size: usize,
        chosen: &mut Vec<T>,
        visit: &mut impl FnMut(&[T]),
    ) {
        if chosen.len() == size {
            visit(chosen);
            return;
        }
        for (index, item) in items.iter().enumerate() {
            chosen.push(*item);
            extend(&items[index + 1..], size, chosen, visit);
            chosen.pop();
        }
    }
    extend(items, size, &mut Vec::new(), visit);
}

/// Returns the mask as a number, bit n for zone n.
pub(crate) fn number(mask: NumaMask) -> u64 {
    mask.iter().fold(0, |sum, zone| sum | 1 << zone.get())
}

/// Returns whether the first mask has fewer zones, or as many zones and the smaller number.
pub fn is_narrower(first: NumaMask, second: NumaMask) -> bool {
    (first.len(), number(first)) < (second.len(), number(second))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zones(count: u64) -> Vec<ZoneId> {
        (0..count).filter_map(ZoneId::new).collect()
    }

    #[test]
    fn masks_come_by_size_and_then_by_position() {
        let numbers: Vec<u64> = masks(&zones(3)).into_iter().map(number).collect();
        assert_eq!(numbers, [1, 2, 4, 3, 5, 6, 7]);
    }

    #[test]
    fn no_map_no_list_an_empty_list_and_hints_mean_different_things() {
        let hints = masks(&zones(2)).into_iter();
        let hints: Vec<Hint> = hints.map(|mask| Hint::of(mask, mask.len() == 1)).collect();
        let providers = [
            ProviderHints::new(),
            ProviderHints::from([("a".to_owned(), None), ("b".to_owned(), Some(Vec::new()))]),
            ProviderHints::from([("c".to_owned(), Some(hints.clone()))]),
        ];
        assert_eq!(
            lists(&providers),
            [
                vec![Hint::anywhere(true)],
                vec![Hint::anywhere(true)],
                vec![Hint::anywhere(false)],
                hints,
            ]
        );
    }
}
