//! Scores of the node as a whole (scheduler.md 7.4).

use super::MAX;
use crate::cluster::{Node, NodeState};
use crate::pod::Pod;

/// Most left of CPU and memory once the pod is there.
pub fn least_allocated(pod: &Pod, node: &Node, state: &NodeState) -> i64 {
    let left = |total: i64, used: i64, wanted: i64| {
        (total > 0).then(|| {
            if used + wanted > total {
                0
            } else {
                (total - used - wanted) * MAX / total
            }
        })
    };
    let parts = [
        left(node.allocatable.amount("cpu"), state.scored.0, pod.scored.0),
        left(
            node.allocatable.amount("memory"),
            state.scored.1,
            pod.scored.1,
        ),
    ];
    let known: Vec<i64> = parts.into_iter().flatten().collect();
    if known.is_empty() {
        0
    } else {
        known.iter().sum::<i64>() / known.len() as i64
    }
}

/// CPU and memory used in about the same proportion. Pods that ask for neither do not change it.
pub fn balanced(pod: &Pod, node: &Node, state: &NodeState) -> i64 {
    let wanted = |name| pod.node_request.amount(name);
    if wanted("cpu") == 0 && wanted("memory") == 0 {
        return 0;
    }
    let fraction = |name| {
        let total = node.allocatable.amount(name);
        let used = state.used.amount(name) + wanted(name);
        if total == 0 {
            1.0
        } else {
            (used as f64 / total as f64).min(1.0)
        }
    };
    let deviation = f64::abs(fraction("cpu") - fraction("memory")) / 2.0;
    ((1.0 - deviation) * MAX as f64) as i64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::Cluster;
    use crate::testing::{mk_node, mk_pod};
    use rstest::rstest;

    #[rstest]
    #[case::empty("cpu=1 memory=1Gi", "", 75, 100)]
    #[case::half_full("cpu=1 memory=1Gi", "cpu=2 memory=2Gi", 25, 100)]
    #[case::uneven("cpu=2 memory=0", "", 75, 75)]
    #[case::full("cpu=1 memory=1Gi", "cpu=4 memory=4Gi", 0, 100)]
    fn what_is_left_and_how_evenly(
        #[case] pod: &str,
        #[case] there: &str,
        #[case] least: i64,
        #[case] even: i64,
    ) {
        let mut cluster = Cluster::new();
        cluster.apply_node(mk_node("n", "cpu=4 memory=4Gi"));
        cluster.apply_pod(Pod {
            node: Some("n".to_owned()),
            ..mk_pod("other", there)
        });
        let (node, state) = cluster.nodes().next().expect("one node");
        let pod = mk_pod("p", pod);
        assert_eq!(
            (
                least_allocated(&pod, node, state),
                balanced(&pod, node, state)
            ),
            (least, even)
        );
    }
}
