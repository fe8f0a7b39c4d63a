//! NodeUnschedulable: whether a node is closed to new pods (scheduler.md 7.3).

use k8s_openapi::api::core::v1::Taint;

use super::taint_toleration::{NO_SCHEDULE, tolerated};
use crate::plugins::plugin::Plugin;
use crate::plugins::rejection::Rejection;
use crate::state::node::Node;
use crate::state::pod::Pod;

/// Taint of a cordoned node.
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// Rejects a cordoned node unless the pod tolerates it.
pub fn filter(pod: &Pod, node: &Node) -> Result<(), Rejection> {
    if !node.unschedulable {
        return Ok(());
    }
    let taint = Taint {
        key: UNSCHEDULABLE.to_owned(),
        effect: NO_SCHEDULE.to_owned(),
        ..Taint::default()
    };
    if tolerated(pod, &taint) {
        return Ok(());
    }
    Err(Rejection::unresolvable(
        Plugin::NodeUnschedulable,
        "node(s) were unschedulable",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{mk_node, mk_pod};
    use k8s_openapi::api::core::v1::Toleration;

    fn reason(result: Result<(), Rejection>) -> Option<String> {
        result.err().map(|rejection| rejection.reasons.join(", "))
    }

    #[test]
    fn a_cordoned_node_is_refused_unless_tolerated() {
        let node = Node {
            unschedulable: true,
            ..mk_node("n", "cpu=4")
        };
        let mut pod = mk_pod("p", "cpu=1");
        assert_eq!(
            reason(filter(&pod, &node)).as_deref(),
            Some("node(s) were unschedulable")
        );
        pod.constraints.tolerations = vec![Toleration {
            operator: Some("Exists".to_owned()),
            ..Toleration::default()
        }];
        assert_eq!(filter(&pod, &node), Ok(()));
    }
}
