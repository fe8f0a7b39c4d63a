//! Search for the set of pods that a fingerprint covers, among the pods that it may cover.

use nrt::fingerprint::{Fingerprint, compute_from_hashes};

/// Up to this many doubtful pods are tried in every combination. With more, only the likely sets are tried.
const DOUBTFUL: usize = 8;

/// A pod that may be in the set.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    /// Its contribution to the fingerprint.
    pub(super) hash: u64,
    /// It was in the last set and nothing has happened to it since.
    pub(super) certain: bool,
    /// It should be in the set once everything has settled.
    pub(super) likely: bool,
    /// It is known to run.
    pub(super) running: bool,
}

/// Returns the set of candidates with the published fingerprint, or `None` if no set that was tried has it.
pub(super) fn search(candidates: &[Candidate], published: &str) -> Option<Vec<bool>> {
    let published: Fingerprint = published.parse().ok()?;
    let matches = |set: &[bool]| compute(candidates, set) == published;
    let set =
        |rule: &dyn Fn(&Candidate) -> bool| -> Vec<bool> { candidates.iter().map(rule).collect() };

    let settled = set(&|candidate| candidate.certain || candidate.likely);
    if matches(&settled) {
        return Some(settled);
    }
    let doubtful = |fixed: &[bool]| -> Vec<usize> {
        (0..candidates.len())
            .filter(|index| !fixed[*index])
            .collect()
    };
    let certain = set(&|candidate| candidate.certain);
    let running = set(&|candidate| candidate.certain || candidate.running);
    for fixed in [certain, running] {
        let open = doubtful(&fixed);
        if open.len() <= DOUBTFUL {
            return combinations(&fixed, &open).find(|set| matches(set));
        }
        if matches(&fixed) {
            return Some(fixed);
        }
    }
    None
}

/// Returns the fingerprint of a set, as text.
pub(super) fn fingerprint_of(candidates: &[Candidate], set: &[bool]) -> String {
    compute(candidates, set).to_string()
}

fn compute(candidates: &[Candidate], set: &[bool]) -> Fingerprint {
    let included = candidates
        .iter()
        .zip(set)
        .filter(|(_, included)| **included);
    compute_from_hashes(included.map(|(candidate, _)| candidate.hash).collect())
}

/// Iterates over every set that contains all of `fixed` and any of `open`.
fn combinations<'a>(fixed: &'a [bool], open: &'a [usize]) -> impl Iterator<Item = Vec<bool>> + 'a {
    (0..1_u32 << open.len()).map(move |mask| {
        let mut set = fixed.to_vec();
        for (bit, index) in open.iter().enumerate() {
            set[*index] = mask & (1 << bit) != 0;
        }
        set
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mk_candidate(hash: u64, word: &str) -> Candidate {
        Candidate {
            hash,
            certain: word == "certain",
            likely: matches!(word, "certain" | "running" | "new"),
            running: matches!(word, "certain" | "running"),
        }
    }

    #[track_caller]
    fn check(candidates: &[(u64, &str)], published: &[u64], expected: Option<&[u64]>) {
        let list: Vec<Candidate> = candidates
            .iter()
            .map(|(hash, word)| mk_candidate(*hash, word))
            .collect();
        let text = compute_from_hashes(published.to_vec()).to_string();
        let found = search(&list, &text).map(|set| {
            candidates
                .iter()
                .zip(set)
                .filter(|(_, included)| *included)
                .map(|((hash, _), _)| *hash)
                .collect::<Vec<_>>()
        });
        assert_eq!(found.as_deref(), expected);
    }

    #[test]
    fn the_settled_set_is_found() {
        check(
            &[(1, "certain"), (2, "new"), (3, "gone")],
            &[2, 1],
            Some(&[1, 2]),
        );
        check(&[], &[], Some(&[]));
        check(&[(3, "gone")], &[], Some(&[]));
    }

    #[test]
    fn a_set_of_the_past_or_between_is_found() {
        check(
            &[(1, "certain"), (2, "new"), (3, "new"), (4, "gone")],
            &[1, 3, 4],
            Some(&[1, 3, 4]),
        );
        check(&[(1, "certain"), (2, "new")], &[1], Some(&[1]));
    }

    #[test]
    fn an_unknown_pod_is_not_explained_away() {
        check(&[(1, "certain"), (2, "new")], &[1, 2, 9], None);
        check(&[(1, "certain"), (2, "new")], &[2], None);
        assert_eq!(search(&[], "nonsense"), None);
    }

    #[test]
    fn many_running_pods_leave_room_for_a_few_doubtful_ones() {
        let mut list: Vec<(u64, &str)> = (0..30).map(|hash| (hash, "running")).collect();
        list.extend([(40, "new"), (41, "new"), (42, "gone")]);
        let published: Vec<u64> = (0..30).chain([41]).collect();
        check(&list, &published, Some(&published));
    }

    #[test]
    fn many_new_pods_are_found_when_all_have_arrived() {
        let list: Vec<(u64, &str)> = (0..40).map(|hash| (hash, "new")).collect();
        let all: Vec<u64> = (0..40).collect();
        check(&list, &all, Some(&all));
        check(&list, &all[1..], None);
    }
}
