//! NodeResourcesBalancedAllocation: prefers nodes whose resources are used evenly (scheduler.md 7.4).

use scheduler_config::default_plugins::ResourceSpec;

use super::node_resources_fit::amounts;
use super::score::MAX;
use crate::state::node::{Node, NodeState};
use crate::state::pod::Pod;

/// Scores how even the proportions are in which the resources are used. The score is 0 for pods that request none of them.
pub fn score(pod: &Pod, node: &Node, state: &NodeState, resources: &[ResourceSpec]) -> i64 {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::cluster::Cluster;
    use crate::testing::{mk_node, mk_pod};
    use scheduler_config::default_plugins::{NodeResourcesBalancedAllocationArgs, PluginArgs as _};
    use serde_json::json;

    /// Builds a node with 4 CPUs, 4 GiB and 4 devices, and an idle pod on it.
    fn mk_cluster() -> Cluster {
        let mut cluster = Cluster::new();
        cluster.apply_node(mk_node("n", "cpu=4 memory=4Gi v/nic=4"));
        cluster.apply_pod(Pod {
            node: Some("n".to_owned()),
            ..mk_pod("other", "")
        });
        cluster
    }

    #[test]
    fn three_resources_are_compared_by_their_standard_deviation() {
        let args = json!({"resources": [{"name": "cpu"}, {"name": "memory"}, {"name": "v/nic"}]});
        let args = NodeResourcesBalancedAllocationArgs::decode(Some(&args)).expect("valid");
        let cluster = mk_cluster();
        let (node, state) = cluster.nodes().next().expect("one node");
        let score = |pod| super::score(&mk_pod("p", pod), node, state, &args.resources);
        // 25, 50 and 75 percent: a deviation of 0.204
        assert_eq!(score("cpu=1 memory=2Gi v/nic=3"), 79);
        // devices do not count if the pod requests none
        assert_eq!(score("cpu=1 memory=2Gi"), 87);
        assert_eq!(score(""), 0);
    }
}
