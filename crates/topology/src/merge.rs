//! How the kubelet's topology manager merges the hints of all resources into one placement (kubelet-node.md 5.3).

use std::cmp::Ordering;

use crate::hint::{Hint, number};
use crate::mask::{NumaMask, ZoneId};
use crate::policy::Policy;

/// The merge rules of one topology manager.
#[derive(Clone, Debug)]
pub struct Merger {
    policy: Policy,
    all: NumaMask,
    /// Distances between zones, row = from; set only if closer zones are preferred.
    distances: Option<Vec<Vec<u32>>>,
}

impl Merger {
    /// Creates the rules of this policy for a machine with these zones.
    pub fn new(policy: Policy, zones: &[ZoneId]) -> Self {
        Self {
            policy,
            all: zones.iter().copied().collect(),
            distances: None,
        }
    }

    /// Enables the option `prefer-closest-numa-nodes`, which has no effect under single-numa-node.
    #[must_use]
    pub fn with_distances(mut self, distances: Vec<Vec<u32>>) -> Self {
        self.distances = Some(distances);
        self
    }

    /// Returns whether a pod or container with this placement is admitted.
    pub fn admits(&self, best: Hint) -> bool {
        match self.policy {
            Policy::None | Policy::BestEffort => true,
            Policy::Restricted | Policy::SingleNumaNode => best.preferred,
        }
    }

    /// Returns the best placement. `lists` has one list for each resource.
    pub fn merge(&self, lists: &[Vec<Hint>]) -> Hint {
        if self.policy == Policy::None {
            return Hint::anywhere(false);
        }
        let single = self.policy == Policy::SingleNumaNode;
        let lists: Vec<Vec<Hint>> = lists
            .iter()
            .map(|list| {
                list.iter()
                    .copied()
                    .filter(|hint| !single || allowed_for_single(*hint))
                    .collect()
            })
            .collect();
        let widest = lists
            .iter()
            .filter_map(|list| {
                let lengths = list.iter().filter_map(|hint| hint.affinity);
                lengths.map(NumaMask::len).min()
            })
            .max()
            .unwrap_or(0);
        let mut best: Option<Hint> = None;
        combine(&lists, self.all, true, None, &mut |candidate| {
            best = self.better(best, candidate, widest);
        });
        let mut best = best.unwrap_or_else(|| Hint::of(self.all, false));
        if single && best.affinity == Some(self.all) {
            best.affinity = None;
        }
        best
    }

    fn better(&self, current: Option<Hint>, candidate: Hint, widest: u32) -> Option<Hint> {
        let length = |hint: Hint| hint.affinity.unwrap_or_default().len();
        if length(candidate) == 0 {
            return current;
        }
        let Some(held) = current else {
            return Some(candidate);
        };
        if held.preferred != candidate.preferred {
            return Some(if held.preferred { held } else { candidate });
        }
        if held.preferred {
            return Some(self.narrower(held, candidate));
        }
        let (c, k) = (length(held), length(candidate));
        Some(match c.cmp(&widest) {
            Ordering::Equal if k != widest => held,
            Ordering::Less if k > widest || (k != widest && k < c) => held,
            Ordering::Less if k == widest || k > c => candidate,
            Ordering::Less | Ordering::Equal | Ordering::Greater => self.narrower(held, candidate),
        })
    }

    fn narrower(&self, current: Hint, candidate: Hint) -> Hint {
        let held = current.affinity.unwrap_or_default();
        let other = candidate.affinity.unwrap_or_default();
        let order = match &self.distances {
            Some(distances) if self.policy != Policy::SingleNumaNode => other
                .len()
                .cmp(&held.len())
                .then_with(|| average(distances, other).total_cmp(&average(distances, held))),
            _ => other.len().cmp(&held.len()),
        };
        match order.then_with(|| number(other).cmp(&number(held))) {
            Ordering::Less => candidate,
            Ordering::Equal | Ordering::Greater => current,
        }
    }
}

/// Calls `visit` with the merged hint of every combination of one hint from each list. The last list varies fastest.
fn combine(
    lists: &[Vec<Hint>],
    mask: NumaMask,
    preferred: bool,
    same: Option<NumaMask>,
    visit: &mut impl FnMut(Hint),
) {
    let Some((first, rest)) = lists.split_first() else {
        visit(Hint::of(mask, preferred));
        return;
    };
    for hint in first {
        let equal = same.is_none() || hint.affinity.is_none() || same == hint.affinity;
        let merged = hint.affinity.map_or(mask, |affinity| mask & affinity);
        let preferred = preferred && hint.preferred && equal;
        combine(rest, merged, preferred, same.or(hint.affinity), visit);
    }
}

fn allowed_for_single(hint: Hint) -> bool {
    hint.preferred && hint.affinity.is_none_or(|mask| mask.len() == 1)
}

/// Returns the average distance over all ordered pairs of zones, including the pair of each zone with itself.
fn average(distances: &[Vec<u32>], mask: NumaMask) -> f64 {
    let distance = |from: ZoneId, to: ZoneId| {
        distances
            .get(from.index())
            .and_then(|row| row.get(to.index()))
            .copied()
            .unwrap_or_default()
    };
    let sum: u32 = mask
        .iter()
        .flat_map(|from| mask.iter().map(move |to| distance(from, to)))
        .sum();
    f64::from(sum) / f64::from(mask.len() * mask.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hint::{ProviderHints, lists, masks};
    use proptest::prelude::*;
    use rstest::rstest;

    fn mask(bits: u64) -> NumaMask {
        (0..64)
            .filter(|bit| bits & (1 << bit) != 0)
            .filter_map(ZoneId::new)
            .collect()
    }

    fn zones(count: u64) -> Vec<ZoneId> {
        (0..count).filter_map(ZoneId::new).collect()
    }

    fn list(hints: &[(u64, bool)]) -> Vec<Hint> {
        hints
            .iter()
            .map(|(bits, preferred)| Hint::of(mask(*bits), *preferred))
            .collect()
    }

    const POLICIES: [Policy; 3] = [
        Policy::BestEffort,
        Policy::Restricted,
        Policy::SingleNumaNode,
    ];

    #[test]
    fn vector_m1_the_one_zone_that_suits_all() {
        let all = [
            list(&[(1, true), (2, true), (3, false)]),
            list(&[(2, true), (3, false)]),
            list(&[(1, true), (2, true), (3, false)]),
        ];
        for policy in POLICIES {
            let best = Merger::new(policy, &zones(2)).merge(&all);
            assert_eq!(best, Hint::of(mask(2), true), "{policy}");
        }
    }

    #[test]
    fn vector_m2_best_count_beats_the_narrower() {
        let all = [list(&[(3, true)]), list(&[(1, true), (3, false)])];
        let best = Merger::new(Policy::BestEffort, &zones(2)).merge(&all);
        assert_eq!(best, Hint::of(mask(3), false));
    }

    #[rstest]
    #[case::best_effort(Policy::BestEffort, Hint::of(mask(3), true))]
    #[case::restricted(Policy::Restricted, Hint::of(mask(3), true))]
    #[case::single(Policy::SingleNumaNode, Hint::anywhere(true))]
    fn vector_m3_nobody_cares(#[case] policy: Policy, #[case] expected: Hint) {
        let all = lists(&[ProviderHints::new(), ProviderHints::new()]);
        assert_eq!(Merger::new(policy, &zones(2)).merge(&all), expected);
    }

    #[test]
    fn vector_m4_contradiction_is_refused() {
        let all = [list(&[(1, true)]), list(&[(2, true)])];
        for policy in POLICIES {
            let merger = Merger::new(policy, &zones(2));
            let best = merger.merge(&all);
            assert!(!best.preferred);
            assert_eq!(merger.admits(best), policy == Policy::BestEffort);
        }
    }

    #[test]
    fn closest_zones_are_preferred_when_asked_for() {
        let distances = vec![vec![10, 30, 20], vec![30, 10, 30], vec![20, 30, 10]];
        let all = [list(&[(3, true), (5, true), (6, true)])];
        let merger = Merger::new(Policy::Restricted, &zones(3));
        assert_eq!(merger.merge(&all).affinity, Some(mask(3)));
        let merger = merger.with_distances(distances);
        assert_eq!(merger.merge(&all).affinity, Some(mask(5)));
    }

    proptest! {
        #[test]
        fn a_preferred_result_is_in_every_list(
            chosen in proptest::collection::vec(proptest::collection::vec((1_u64..8, any::<bool>()), 1..4), 1..4),
            policy in proptest::sample::select(POLICIES.to_vec()),
        ) {
            let all: Vec<Vec<Hint>> = chosen.iter().map(|hints| list(hints)).collect();
            let best = Merger::new(policy, &zones(3)).merge(&all);
            if best.preferred {
                let affinity = best.affinity.unwrap_or_else(|| mask(7));
                prop_assert!(all.iter().all(|list| list.contains(&Hint::of(affinity, true))));
            }
            prop_assert!(best.affinity.is_none_or(|mask| masks(&zones(3)).contains(&mask)));
        }
    }
}
