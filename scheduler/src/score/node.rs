//! Scores of the node as a whole (scheduler.md 7.4).

use scheduler_config::default_plugins::{ResourceSpec, ScoringStrategy, ShapePoint};
use topology::resource::ResourceName;

use super::MAX;
use crate::state::cluster::{Node, NodeState};
use crate::state::pod::Pod;

/// Scores how full the node gets, by the formula of the profile.
pub fn fit(pod: &Pod, node: &Node, state: &NodeState, strategy: &ScoringStrategy) -> i64 {
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
                match piecewise_linear(&shape.shape, full) {
                    // as in kube-scheduler, a resource with the worst score does not count
                    score if score <= 0 => continue,
                    score => score,
                }
            }
            _ if by_most => used.min(total) * MAX / total,
            _ if used > total => 0,
            _ => (total - used) * MAX / total,
        };
        sum += score * resource.weight;
        weights += resource.weight;
    }
    if weights == 0 {
        0
    } else if by_ratio {
        (sum as f64 / weights as f64).round() as i64
    } else {
        sum / weights
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

/// Scores how even the proportions are in which the resources are used. The score is 0 for pods that request none of them.
pub fn balanced(pod: &Pod, node: &Node, state: &NodeState, resources: &[ResourceSpec]) -> i64 {
    let wanted = |resource: &ResourceSpec| pod.node_request.amount(&resource.name);
    if resources.iter().all(|resource| wanted(resource) == 0) {
        return 0;
    }
    let fractions: Vec<f64> = resources
        .iter()
        .filter_map(|resource| amounts(pod, node, state, &resource.name, false))
        .map(|(total, used)| (used as f64 / total as f64).min(1.0))
        .collect();
    let deviation = match fractions.as_slice() {
        [one, other] => f64::abs((one - other) / 2.0),
        many if many.len() > 2 => {
            let mean = many.iter().sum::<f64>() / many.len() as f64;
            let squares = many.iter().map(|fraction| (fraction - mean).powi(2));
            (squares.sum::<f64>() / many.len() as f64).sqrt()
        }
        _ => 0.0,
    };
    ((1.0 - deviation) * MAX as f64) as i64
}

/// Returns the total of a resource on the node, and how much of it is used once the pod is there. `None` if the resource does not count:
/// the node has none, or it is an extended one that the pod does not request. `with_default_requests` makes containers without
/// requests for CPU or memory count with small defaults.
fn amounts(
    pod: &Pod,
    node: &Node,
    state: &NodeState,
    name: &str,
    with_default_requests: bool,
) -> Option<(i64, i64)> {
    let exact = || state.used.amount(name) + pod.node_request.amount(name);
    let used = match name {
        "cpu" if with_default_requests => state.nonzero_request.0 + pod.nonzero_request.0,
        "memory" if with_default_requests => state.nonzero_request.1 + pod.nonzero_request.1,
        "cpu" | "memory" | "ephemeral-storage" => exact(),
        _ if pod.node_request.amount(name) == 0 => return None,
        _ if !crate::filter::node::is_node_resource(&ResourceName::from(name)) => return None,
        _ => exact(),
    };
    let total = node.allocatable.amount(name);
    (total > 0).then_some((total, used))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::cluster::Cluster;
    use crate::testing::{mk_node, mk_pod};
    use rstest::rstest;
    use scheduler_config::default_plugins::{
        NodeResourcesBalancedAllocationArgs, NodeResourcesFitArgs, PluginArgs as _,
    };
    use serde_json::{Value, json};

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
                fit(&pod, node, state, &ScoringStrategy::default()),
                balanced(&pod, node, state, &resources)
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
        let score = fit(&mk_pod("p", pod), node, state, &args.scoring_strategy);
        assert_eq!(score, expected);
    }

    #[test]
    fn three_resources_are_compared_by_their_standard_deviation() {
        let args = json!({"resources": [{"name": "cpu"}, {"name": "memory"}, {"name": "v/nic"}]});
        let args = NodeResourcesBalancedAllocationArgs::decode(Some(&args)).expect("valid");
        let cluster = mk_cluster("");
        let (node, state) = cluster.nodes().next().expect("one node");
        let score = |pod| balanced(&mk_pod("p", pod), node, state, &args.resources);
        // 25, 50 and 75 percent: a deviation of 0.204
        assert_eq!(score("cpu=1 memory=2Gi v/nic=3"), 79);
        // devices do not count if the pod requests none
        assert_eq!(score("cpu=1 memory=2Gi"), 87);
        assert_eq!(score(""), 0);
    }
}
