//! Score by the number of zones that a pod needs; closer zones score higher (scheduler.md 4.3).

use topology::distance;
use topology::policy::Scope;
use topology::request::Qos;
use topology::resource::Resources;
use topology::zone::Zone;

use crate::numa::view::Fresh;
use crate::plugins::score::MAX;
use crate::state::pod::Pod;

/// The zones that a request needs.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Need {
    /// Positions in the list of zones.
    zones: Vec<usize>,
    /// Whether no set of as many zones is closer together.
    optimal: bool,
}

/// Returns the score of a node.
pub fn score(pod: &Pod, fresh: &Fresh) -> i64 {
    let guaranteed = pod.request.qos() == Qos::Guaranteed;
    let mut free: Vec<Resources> = fresh
        .free
        .iter()
        .map(|zone| zone.available.clone())
        .collect();
    let requests: Vec<Resources> = match fresh.config.scope {
        Scope::Pod => vec![pod.request.aligned_request()],
        Scope::Container => pod
            .request
            .containers()
            .iter()
            .map(|container| container.requests.clone())
            .collect(),
    };
    let (mut count, mut optimal, mut any) = (0, true, false);
    for request in requests {
        let zoned: Resources = request
            .iter()
            .filter(|(name, _)| free.iter().any(|zone| zone.get(name.as_str()).is_some()))
            .map(|(name, amount)| (name.clone(), amount))
            .collect();
        if zoned.is_empty() {
            continue;
        }
        let Some(need) = need(&zoned, guaranteed, &free, &fresh.zones) else {
            return 0;
        };
        take(&zoned, &need.zones, &mut free, &fresh.zones);
        any = true;
        count = count.max(need.zones.len() as i64);
        optimal &= need.optimal;
    }
    if !any {
        return MAX;
    }
    let step = MAX / i64::from(fresh.config.max_numa_nodes);
    let bonus = if optimal { step / 2 } else { 0 };
    (MAX - count * step + bonus).clamp(0, MAX)
}

/// Number of sets of zones that are tried for one request: all sets of ten zones. Kubelets refuse to start with more than eight, unless they are
/// told to (`max-allowable-numa-nodes`, kubelet-node.md 5.1), and nodes with 64 zones have more sets than can be tried.
const SETS: usize = 1 << 10;

/// Returns the smallest set of zones that together suffice; of equally small sets the closest. Where too many sets would have to be tried, it is that
/// of all zones.
fn need(request: &Resources, guaranteed: bool, free: &[Resources], zones: &[Zone]) -> Option<Need> {
    let mut left = SETS;
    for size in 1..=free.len() {
        let mut closest_possible = distance::UNKNOWN as f32;
        let mut best: Option<(Vec<usize>, f32)> = None;
        for set in Combinations::new(free.len(), size) {
            let Some(others) = left.checked_sub(1) else {
                let all: Vec<usize> = (0..free.len()).collect();
                return suffices(request, guaranteed, free, &all).then_some(Need {
                    zones: all,
                    optimal: false,
                });
            };
            left = others;
            let distance =
                distance::average(&set.iter().map(|index| &zones[*index]).collect::<Vec<_>>());
            closest_possible = closest_possible.min(distance);
            let closer = best.as_ref().is_none_or(|(_, best)| distance < *best);
            if closer && suffices(request, guaranteed, free, &set) {
                best = Some((set, distance));
            }
        }
        if let Some((zones, distance)) = best {
            return Some(Need {
                zones,
                optimal: distance <= closest_possible,
            });
        }
    }
    None
}

/// Returns whether every zone of the set holds all requested resources and the zones together have enough.
fn suffices(request: &Resources, guaranteed: bool, free: &[Resources], set: &[usize]) -> bool {
    request.iter().all(|(name, wanted)| {
        let mut sum = 0_i64;
        for index in set {
            let Some(available) = free[*index].get(name.as_str()) else {
                return false;
            };
            sum = sum.saturating_add(available);
        }
        wanted == 0 || (!guaranteed && name.is_affine()) || sum >= wanted
    })
}

/// Subtracts the request from the chosen zones, lowest id first. Each zone is used up before the next.
fn take(request: &Resources, chosen: &[usize], free: &mut [Resources], zones: &[Zone]) {
    let mut chosen = chosen.to_vec();
    chosen.sort_by_key(|index| zones[*index].id);
    for (name, wanted) in request.iter() {
        let mut left = wanted;
        for index in &chosen {
            let available = free[*index].amount(name.as_str());
            let taken = available.min(left);
            free[*index].set(name.clone(), available - taken);
            left -= taken;
        }
    }
}

/// Iterates over all subsets of `size` numbers below `count`, each ascending, in lexicographic order.
struct Combinations {
    count: usize,
    next: Option<Vec<usize>>,
}

impl Combinations {
    fn new(count: usize, size: usize) -> Self {
        Self {
            count,
            next: (size <= count).then(|| (0..size).collect()),
        }
    }
}

impl Iterator for Combinations {
    type Item = Vec<usize>;

    fn next(&mut self) -> Option<Vec<usize>> {
        let current = self.next.take()?;
        let size = current.len();
        let movable = (0..size)
            .rev()
            .find(|position| current[*position] < self.count - size + position);
        self.next = movable.map(|position| {
            let mut next = current.clone();
            let start = current[position] + 1;
            for (offset, value) in next[position..].iter_mut().enumerate() {
                *value = start + offset;
            }
            next
        });
        Some(current)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{mk_container, mk_pod_of, mk_resources};
    use rstest::rstest;
    use topology::fit::FreeZone;
    use topology::mask::ZoneId;
    use topology::policy::{ManagerConfig, Policy};
    use topology::request::ContainerKind;

    fn mk_fresh(
        scope: Scope,
        zones: &[(u64, &str)],
        distance: impl Fn(u64, u64) -> Option<i64>,
    ) -> Fresh {
        let id = |id| ZoneId::new(id).expect("small");
        let config = ManagerConfig {
            policy: Policy::BestEffort,
            scope,
            ..ManagerConfig::default()
        };
        let free = zones.iter().map(|(zone, left)| FreeZone {
            id: id(*zone),
            available: mk_resources(left),
            at_most: None,
        });
        let known = zones.iter().map(|(from, _)| Zone {
            distances: zones
                .iter()
                .filter_map(|(to, _)| Some((id(*to), distance(*from, *to)?)))
                .collect(),
            ..Zone::new(id(*from))
        });
        Fresh::new(config, free.collect(), known.collect())
    }

    fn mk_pod_of_parts(parts: &[&str]) -> Pod {
        mk_pod_of(
            "p",
            parts
                .iter()
                .map(|text| mk_container(ContainerKind::App, text, text))
                .collect(),
        )
    }

    /// Tests the three nodes of scheduler.md 4.3, two zones each, without distances.
    #[rstest]
    #[case::two(Scope::Container, &["cpu=2 memory=50Mi"], [94, 94, 94])]
    #[case::four(Scope::Container, &["cpu=4 memory=50Mi"], [94, 82, 94])]
    #[case::six(Scope::Container, &["cpu=6 memory=50Mi"], [82, 0, 94])]
    #[case::two_and_two(Scope::Container, &["cpu=2 memory=50Mi", "cpu=2 memory=50Mi"], [94, 94, 94])]
    #[case::one_and_three(Scope::Container, &["cpu=1 memory=50Mi", "cpu=3 memory=50Mi"], [94, 82, 94])]
    #[case::five_and_three(Scope::Container, &["cpu=5 memory=50Mi", "cpu=3 memory=50Mi"], [82, 0, 94])]
    #[case::pod_two_and_two(Scope::Pod, &["cpu=2 memory=50Mi", "cpu=2 memory=50Mi"], [94, 82, 82])]
    #[case::pod_one_and_three(Scope::Pod, &["cpu=1 memory=50Mi", "cpu=3 memory=50Mi"], [94, 82, 82])]
    #[case::pod_five_and_three(Scope::Pod, &["cpu=5 memory=50Mi", "cpu=3 memory=50Mi"], [82, 0, 82])]
    #[case::unzoned(Scope::Container, &["v/other=1"], [100, 100, 100])]
    #[case::unzoned_pod(Scope::Pod, &["v/other=1"], [100, 100, 100])]
    fn nodes_with_two_zones(
        #[case] scope: Scope,
        #[case] parts: &[&str],
        #[case] expected: [i64; 3],
    ) {
        let nodes = [
            "cpu=4 memory=500Mi",
            "cpu=2 memory=50Mi",
            "cpu=6 memory=60Mi",
        ];
        let pod = mk_pod_of_parts(parts);
        let scores =
            nodes.map(|left| score(&pod, &mk_fresh(scope, &[(0, left), (1, left)], |_, _| None)));
        assert_eq!(scores, expected);
    }

    fn pairs(from: u64, to: u64) -> i64 {
        match (from == to, from / 2 == to / 2) {
            (true, _) => 10,
            (_, true) => 12,
            _ => 20,
        }
    }

    #[rstest]
    #[case::one_gpu([1, 1, 0, 0], &["cpu=2 memory=50Mi gpu=1"], 94)]
    #[case::one_gpu_spread([1, 0, 1, 0], &["cpu=2 memory=50Mi gpu=1"], 94)]
    #[case::close_pair([1, 1, 0, 0], &["cpu=2 memory=50Mi gpu=2"], 82)]
    #[case::far_pair([1, 0, 1, 0], &["cpu=2 memory=50Mi gpu=2"], 76)]
    #[case::close_with_another([1, 1, 0, 0], &["cpu=2 memory=50Mi", "cpu=2 memory=50Mi gpu=2"], 82)]
    #[case::far_with_another([1, 0, 1, 0], &["cpu=2 memory=50Mi", "cpu=2 memory=50Mi gpu=2"], 76)]
    fn four_zones_with_distances(
        #[case] gpus: [i64; 4],
        #[case] parts: &[&str],
        #[case] expected: i64,
    ) {
        let zones: Vec<(u64, String)> = (0..4)
            .zip(gpus)
            .map(|(id, gpus)| (id, format!("cpu=8 memory=1Gi gpu={gpus}")))
            .collect();
        let zones: Vec<(u64, &str)> = zones
            .iter()
            .map(|(id, text)| (*id, text.as_str()))
            .collect();
        let fresh = mk_fresh(Scope::Container, &zones, |from, to| Some(pairs(from, to)));
        assert_eq!(score(&mk_pod_of_parts(parts), &fresh), expected);
    }

    #[test]
    fn draining_starts_at_the_lowest_id() {
        let left = "cpu=8 memory=10Gi";
        let fresh = mk_fresh(Scope::Container, &[(1, left), (0, left)], |from, to| {
            Some(pairs(from, to))
        });
        let mut free = vec![mk_resources(left), mk_resources(left)];
        take(
            &mk_resources("cpu=12 memory=2Gi"),
            &[0, 1],
            &mut free,
            &fresh.zones,
        );
        assert_eq!(
            free,
            [
                mk_resources("cpu=4 memory=10Gi"),
                mk_resources("cpu=0 memory=8Gi")
            ]
        );
    }

    #[test]
    fn sparse_ids_and_many_zones_are_no_trouble() {
        let zones: Vec<(u64, &str)> = [0, 30, 5, 7, 63]
            .map(|id| (id, "cpu=1 memory=1Gi"))
            .to_vec();
        let mut fresh = mk_fresh(Scope::Pod, &zones, |_, _| None);
        fresh.config.max_numa_nodes = 2;
        assert_eq!(score(&mk_pod_of_parts(&["cpu=5 memory=1Gi"]), &fresh), 0);
    }

    #[test]
    fn a_node_with_more_sets_of_zones_than_can_be_tried_gets_a_score_all_the_same() {
        let zones: Vec<(u64, &str)> = (0..64).map(|id| (id, "cpu=1 memory=1Gi")).collect();
        let fresh = mk_fresh(Scope::Pod, &zones, |_, _| None);
        assert_eq!(score(&mk_pod_of_parts(&["cpu=1 memory=1Gi"]), &fresh), 94);
        // 32 of 64 zones: more sets than a year has nanoseconds
        assert_eq!(score(&mk_pod_of_parts(&["cpu=32 memory=1Gi"]), &fresh), 0);
    }

    #[test]
    fn combinations_come_in_order() {
        let all: Vec<Vec<usize>> = Combinations::new(4, 2).collect();
        assert_eq!(all, [[0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]]);
        assert_eq!(Combinations::new(2, 3).count(), 0);
        assert_eq!(Combinations::new(3, 3).count(), 1);
    }
}
