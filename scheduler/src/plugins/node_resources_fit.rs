//! NodeResourcesFit: whether a node as a whole has enough left for a pod, and how full the node gets (scheduler.md 7.3, 7.4).

use std::borrow::Cow;

use scheduler_config::default_plugins::{ScoringStrategy, ShapePoint};
use topology::resource::ResourceName;

use super::score::MAX;
use crate::plugins::plugin::Plugin;
use crate::plugins::rejection::Rejection;
use crate::state::node::{Node, NodeState};
use crate::state::pod::Pod;

/// Returns what a pod requests of a node as a whole, for the resources that count. It is the same for every node.
pub fn wanted(pod: &Pod, counts: impl Fn(&ResourceName) -> bool) -> Vec<(&ResourceName, i64)> {
    pod.node_request
        .iter()
        .filter(|(name, wanted)| *wanted > 0 && counts(name))
        .collect()
}

/// Checks that the node as a whole has enough left of everything that is [`wanted`].
pub fn filter(
    wanted: &[(&ResourceName, i64)],
    node: &Node,
    state: &NodeState,
) -> Result<(), Rejection> {
    let mut reasons: Vec<Cow<'static, str>> = Vec::new();
    let mut details = Vec::new();
    let mut lacks = None;
    let mut unresolvable = false;
    if state.pods.len() as i64 >= node.allocatable.amount("pods") {
        reasons.push("Too many pods".into());
    }
    for (name, wanted) in wanted.iter().copied() {
        let (wanted, total, used) = (
            i128::from(wanted),
            i128::from(node.allocatable.amount(name.as_str())),
            state.used.amount(name.as_str()),
        );
        if wanted > total - used {
            reasons.push(format!("Insufficient {name}").into());
            lacks.get_or_insert_with(|| name.clone());
            unresolvable |= wanted > total;
            details.push(format!("{name} wanted {wanted}, {used} of {total} used"));
        }
    }
    if reasons.is_empty() {
        return Ok(());
    }
    let detail = (!details.is_empty()).then(|| details.join("; "));
    Err(Rejection {
        plugin: Plugin::NodeResourcesFit,
        reasons,
        detail,
        lacks,
        unresolvable,
        everywhere: false,
    })
}

/// Returns whether nodes as a whole account for a resource (scheduler.md 7.4).
pub fn is_node_resource(name: &ResourceName) -> bool {
    name.is_affine()
        || name.as_str() == "ephemeral-storage"
        || name.as_str().starts_with("attachable-volumes-")
        || name.as_str().contains('/')
}

/// [`MAX`] as wide as the sums of requests.
const MOST: i128 = MAX as i128;

/// Scores how full the node gets, by the formula of the profile.
pub fn score(pod: &Pod, node: &Node, state: &NodeState, strategy: &ScoringStrategy) -> i64 {
    let shape = strategy.requested_to_capacity_ratio.as_ref();
    let by_ratio = strategy.kind == ScoringStrategy::REQUESTED_TO_CAPACITY_RATIO;
    let by_most = strategy.kind == ScoringStrategy::MOST_ALLOCATED;
    let (mut sum, mut weights) = (0, 0);
    for resource in &strategy.resources {
        let Some((total, used)) = amounts(pod, node, state, &resource.name, true) else {
            continue;
        };
        let score = match shape {
            Some(shape) if by_ratio => {
                let full = if used > total {
                    100
                } else {
                    used * 100 / total
                };
                match piecewise_linear(&shape.shape, full as i64) {
                    // as in kube-scheduler, a resource with the worst score does not count
                    score if score <= 0 => continue,
                    score => i128::from(score),
                }
            }
            _ if by_most => used.min(total) * MOST / total,
            _ if used > total => 0,
            _ => (total - used) * MOST / total,
        };
        sum += score * i128::from(resource.weight);
        weights += i128::from(resource.weight);
    }
    // each score is at most MAX, and so is their mean
    if weights == 0 {
        0
    } else if by_ratio {
        (sum as f64 / weights as f64).round() as i64
    } else {
        (sum / weights) as i64
    }
}

/// Returns the value of a piecewise linear function, given as points with scores from 0 to 10, scaled to [`MAX`].
fn piecewise_linear(shape: &[ShapePoint], utilization: i64) -> i64 {
    const SCALE: i64 = MAX / 10;
    let Some(right) = shape
        .iter()
        .position(|point| utilization <= point.utilization)
    else {
        return shape.last().map_or(0, |last| last.score * SCALE);
    };
    let Some(left) = right.checked_sub(1).map(|left| shape[left]) else {
        return shape[right].score * SCALE;
    };
    let right = shape[right];
    left.score * SCALE
        + (right.score - left.score) * SCALE * (utilization - left.utilization)
            / (right.utilization - left.utilization)
}

/// Returns the total of a resource on the node, and how much of it is used once the pod is there. `None` if the resource does not count:
/// the node has none, or it is an extended one that the pod does not request. `with_default_requests` makes containers without
/// requests for CPU or memory count with small defaults.
pub(super) fn amounts(
    pod: &Pod,
    node: &Node,
    state: &NodeState,
    name: &str,
    with_default_requests: bool,
) -> Option<(i128, i128)> {
    let exact = || state.used.amount(name) + i128::from(pod.node_request.amount(name));
    let used = match name {
        "cpu" if with_default_requests => {
            state.nonzero_request.0 + i128::from(pod.nonzero_request.0)
        }
        "memory" if with_default_requests => {
            state.nonzero_request.1 + i128::from(pod.nonzero_request.1)
        }
        "cpu" | "memory" | "ephemeral-storage" => exact(),
        _ if pod.node_request.amount(name) == 0 => return None,
        _ if !is_node_resource(&ResourceName::from(name)) => return None,
        _ => exact(),
    };
    let total = i128::from(node.allocatable.amount(name));
    (total > 0).then_some((total, used))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugins::node_resources_balanced_allocation;
    use crate::state::cluster::Cluster;
    use crate::testing::{mk_node, mk_pod};
    use rstest::rstest;
    use scheduler_config::default_plugins::{
        NodeResourcesBalancedAllocationArgs, NodeResourcesFitArgs, PluginArgs as _,
    };
    use serde_json::{Value, json};

    fn reason(result: Result<(), Rejection>) -> Option<String> {
        result.err().map(|rejection| rejection.reasons.join(", "))
    }

    /// Builds a node with 4 CPUs, 4 GiB and 4 devices, and a pod on it.
    fn mk_cluster(used: &str) -> Cluster {
        let mut cluster = Cluster::new();
        cluster.apply_node(mk_node("n", "cpu=4 memory=4Gi v/nic=4"));
        cluster.apply_pod(Pod {
            node: Some("n".to_owned()),
            ..mk_pod("other", used)
        });
        cluster
    }

    #[rstest]
    #[case::fits("cpu=2 memory=1Gi", None)]
    #[case::exactly("cpu=3 memory=4Gi", None)]
    #[case::cpu("cpu=3100m", Some("Insufficient cpu"))]
    #[case::both("cpu=4 memory=5Gi", Some("Insufficient cpu, Insufficient memory"))]
    #[case::scratch("cpu=1 ephemeral-storage=1Gi", Some("Insufficient ephemeral-storage"))]
    #[case::device("v/nic=3", Some("Insufficient v/nic"))]
    #[case::absent_zero("v/other=0", None)]
    #[case::not_counted("storage=5", None)]
    fn amounts_are_compared_for_the_whole_node(
        #[case] requests: &str,
        #[case] expected: Option<&str>,
    ) {
        let mut cluster = Cluster::new();
        cluster.apply_node(mk_node("n", "cpu=4 memory=4Gi v/nic=2"));
        cluster.apply_pod(Pod {
            node: Some("n".to_owned()),
            ..mk_pod("other", "cpu=1")
        });
        let (node, state) = cluster.nodes().next().expect("one node");
        assert_eq!(
            reason(filter(
                &wanted(&mk_pod("p", requests), is_node_resource),
                node,
                state
            ))
            .as_deref(),
            expected
        );
    }

    #[test]
    fn pods_at_the_edge_of_64_bits_are_rejected_and_scored_as_any_other() {
        let mut cluster = Cluster::new();
        cluster.apply_node(mk_node("n", "cpu=4 memory=4Gi"));
        for name in ["a", "b"] {
            cluster.apply_pod(Pod {
                node: Some("n".to_owned()),
                ..mk_pod(name, "memory=7Ei")
            });
        }
        let (node, state) = cluster.nodes().next().expect("one node");
        let pod = mk_pod("p", "cpu=1 memory=7Ei");
        let rejected = filter(&wanted(&pod, is_node_resource), node, state);
        assert_eq!(reason(rejected).as_deref(), Some("Insufficient memory"));
        let strategy = ScoringStrategy::default();
        // three quarters of the CPUs are left, none of the memory
        assert_eq!(score(&pod, node, state, &strategy), 37);
        let mut large = Cluster::new();
        large.apply_node(mk_node("n", "cpu=4 memory=7Ei"));
        let (node, state) = large.nodes().next().expect("one node");
        assert_eq!(
            score(&mk_pod("p", "cpu=2 memory=0"), node, state, &strategy),
            75
        );
    }

    #[test]
    fn pods_are_counted_even_without_requests() {
        let mut cluster = Cluster::new();
        cluster.apply_node(mk_node("n", "cpu=4 pods=1"));
        cluster.apply_pod(Pod {
            node: Some("n".to_owned()),
            ..mk_pod("other", "")
        });
        let (node, state) = cluster.nodes().next().expect("one node");
        assert_eq!(
            reason(filter(&[], node, state)).as_deref(),
            Some("Too many pods")
        );
    }

    #[rstest]
    #[case::named(&["v/nic"], &[])]
    #[case::grouped(&[], &["v"])]
    fn extended_resources_can_be_left_out(#[case] resources_: &[&str], #[case] groups: &[&str]) {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let filters = crate::framework::extension_points::Filters {
            ignored_resources: owned(resources_),
            ignored_resource_groups: owned(groups),
            ..crate::framework::extension_points::Filters::default()
        };
        let mut cluster = Cluster::new();
        cluster.apply_node(mk_node("n", "cpu=4"));
        let (node, state) = cluster.nodes().next().expect("one node");
        let rejected = |requests| {
            let pod = mk_pod("p", requests);
            reason(filter(
                &wanted(&pod, |name| filters.compares(name)),
                node,
                state,
            ))
        };
        assert_eq!(rejected("v/nic=1"), None);
        assert_eq!(rejected("w/nic=1").as_deref(), Some("Insufficient w/nic"));
        assert_eq!(rejected("cpu=5").as_deref(), Some("Insufficient cpu"));
    }

    #[rstest]
    #[case::empty("cpu=1 memory=1Gi", "", 75, 100)]
    #[case::half_full("cpu=1 memory=1Gi", "cpu=2 memory=2Gi", 25, 100)]
    #[case::uneven("cpu=2 memory=0", "", 75, 75)]
    #[case::full("cpu=1 memory=1Gi", "cpu=4 memory=4Gi", 0, 100)]
    fn what_is_left_and_how_evenly(
        #[case] pod: &str,
        #[case] used: &str,
        #[case] least: i64,
        #[case] even: i64,
    ) {
        let cluster = mk_cluster(used);
        let (node, state) = cluster.nodes().next().expect("one node");
        let pod = mk_pod("p", pod);
        let resources = NodeResourcesBalancedAllocationArgs::default().resources;
        assert_eq!(
            (
                score(&pod, node, state, &ScoringStrategy::default()),
                node_resources_balanced_allocation::score(&pod, node, state, &resources)
            ),
            (least, even)
        );
    }

    #[rstest]
    #[case::most(json!({"type": "MostAllocated"}), "cpu=1 memory=2Gi", 37)]
    #[case::weighted(json!({"type": "MostAllocated", "resources": [{"name": "cpu", "weight": 3}, {"name": "memory", "weight": 1}]}), "cpu=1 memory=2Gi", 31)]
    #[case::devices(json!({"type": "LeastAllocated", "resources": [{"name": "cpu"}, {"name": "v/nic"}]}), "cpu=1 v/nic=3", 50)]
    #[case::no_devices_wanted(json!({"type": "LeastAllocated", "resources": [{"name": "cpu"}, {"name": "v/nic"}]}), "cpu=1", 75)]
    #[case::unknown(json!({"type": "LeastAllocated", "resources": [{"name": "v/other"}]}), "cpu=1 v/other=1", 0)]
    // 25 percent is halfway to 50, where the score is 10, so cpu scores 50; memory is 50 percent full and scores 100
    #[case::line(json!({"type": "RequestedToCapacityRatio", "requestedToCapacityRatio": {"shape": [{"utilization": 0, "score": 0}, {"utilization": 50, "score": 10}, {"utilization": 100, "score": 0}]}}), "cpu=1 memory=2Gi", 75)]
    fn the_formula_is_that_of_the_profile(
        #[case] strategy: Value,
        #[case] pod: &str,
        #[case] expected: i64,
    ) {
        let args = json!({"scoringStrategy": strategy});
        let args = NodeResourcesFitArgs::decode(Some(&args)).expect("valid");
        let cluster = mk_cluster("");
        let (node, state) = cluster.nodes().next().expect("one node");
        let score = score(&mk_pod("p", pod), node, state, &args.scoring_strategy);
        assert_eq!(score, expected);
    }
}
