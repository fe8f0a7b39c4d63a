//! NodeResourceTopologyMatch: whether the kubelet can align the pod, and how well the zones suit it (scheduler.md 3.1, 4).
//!
//! The filter and the choice of the score are here; [`allocation`] and [`least_numa_nodes`] are the formulas of the score.

use scheduler_config::args::{ScoringStrategy, ScoringStrategyType};
use topology::fit;
use topology::policy::{Policy, Scope};
use topology::request::Qos;

use super::score::MAX;
use crate::numa::simulate;
use crate::numa::view::View;
use crate::plugins::plugin::Plugin;
use crate::plugins::rejection::Rejection;
use crate::state::node::Node;
use crate::state::pod::Pod;

pub mod allocation;
pub mod least_numa_nodes;

/// Reason if the amounts of a node cannot be trusted at the moment.
pub const INVALID: &str = "invalid node topology data";

const PLUGIN: Plugin = Plugin::NodeResourceTopologyMatch;

/// Checks whether the kubelet can align the pod. Nodes without NRT and kubelets with another policy than single-numa-node accept every
/// pod. Pods that request nothing aligned fit on every node.
pub fn filter(pod: &Pod, node: &Node, view: &View) -> Result<(), Rejection> {
    if requests_nothing_aligned(pod) {
        return Ok(());
    }
    let fresh = match view {
        View::Absent => return Ok(()),
        View::Stale => return Err(Rejection::new(PLUGIN, INVALID)),
        View::Fresh(fresh) => fresh,
    };
    if fresh.config.policy != Policy::SingleNumaNode {
        return Ok(());
    }
    let known = |name: &str| lists(node, name);
    fit::fit(&pod.request, &fresh.config, &fresh.free, known).map_err(|misfit| Rejection {
        detail: Some(misfit.to_string()),
        lacks: Some(misfit.resource.clone()),
        ..Rejection::new(PLUGIN, misfit.reason())
    })?;
    let Some((other, misfit)) = fresh.pod_without_room(&pod.request, known) else {
        return Ok(());
    };
    // conformance suites match the reasons of pods that cannot be aligned themselves
    let reason = match fresh.config.scope {
        Scope::Pod => "cannot align pod",
        Scope::Container => "cannot align container",
    };
    Err(Rejection {
        detail: Some(format!(
            "would leave no room for {other}, which is on its way there: {misfit}"
        )),
        lacks: Some(misfit.resource.clone()),
        ..Rejection::new(PLUGIN, reason)
    })
}

/// Rejects a node if it is unknown what would be left without the victims of a preemption (scheduler.md 6).
pub fn refuse(pod: &Pod, error: &simulate::Error) -> Result<(), Rejection> {
    if requests_nothing_aligned(pod) {
        return Ok(());
    }
    Err(Rejection::new(
        PLUGIN,
        format!("eviction simulation in NRT is not possible:{error}"),
    ))
}

/// Returns whether the pod requests nothing that is aligned.
fn requests_nothing_aligned(pod: &Pod) -> bool {
    pod.request.qos() == Qos::BestEffort && !pod.request.asks_for_devices()
}

/// Returns whether a node lists a resource. The API server lists the first four on every live node.
pub fn lists(node: &Node, resource: &str) -> bool {
    matches!(resource, "cpu" | "memory" | "pods" | "ephemeral-storage")
        || node.allocatable.get(resource).is_some()
}

/// Returns the score of a node from its known topology.
pub fn score(pod: &Pod, view: &View, strategy: &ScoringStrategy) -> i64 {
    if pod.request.qos() != Qos::Guaranteed {
        return MAX;
    }
    let View::Fresh(fresh) = view else { return 0 };
    if strategy.kind == ScoringStrategyType::LeastNumaNodes {
        return least_numa_nodes::score(pod, fresh);
    }
    if fresh.config.policy != Policy::SingleNumaNode {
        return 0;
    }
    match fresh.config.scope {
        Scope::Pod => {
            allocation::lowest_zone_score(&pod.request.aligned_request(), fresh, strategy)
        }
        Scope::Container => {
            let containers = pod.request.containers();
            let sum: i64 = containers
                .iter()
                .map(|container| {
                    allocation::lowest_zone_score(&container.requests, fresh, strategy)
                })
                .sum();
            sum / (containers.len() as i64).max(1)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::numa::view::Fresh;
    use crate::testing::{mk_container, mk_node, mk_pod, mk_pod_of, mk_resources};
    use rstest::rstest;
    use topology::fit::FreeZone;
    use topology::mask::ZoneId;
    use topology::policy::ManagerConfig;
    use topology::request::ContainerKind;

    fn mk_view(policy: Policy, scope: Scope) -> View {
        let zone = |id, left| FreeZone {
            id: ZoneId::new(id).expect("small"),
            available: mk_resources(left),
            at_most: None,
        };
        let config = ManagerConfig {
            policy,
            scope,
            ..ManagerConfig::default()
        };
        let free = vec![zone(0, "cpu=4 memory=4Gi"), zone(1, "cpu=2 memory=4Gi")];
        View::Fresh(Fresh::new(config, free, Vec::new()))
    }

    fn reason(pod: &Pod, view: &View) -> Option<String> {
        filter(pod, &mk_node("n", "cpu=8 memory=8Gi"), view)
            .err()
            .map(|rejection| rejection.reasons.join(", "))
    }

    #[rstest]
    #[case(Policy::None, None)]
    #[case(Policy::BestEffort, None)]
    #[case(Policy::Restricted, None)]
    #[case(Policy::SingleNumaNode, Some("cannot align container"))]
    fn only_the_strict_policy_rules_out(#[case] policy: Policy, #[case] expected: Option<&str>) {
        let pod = mk_pod("p", "cpu=5 memory=1Gi");
        assert_eq!(
            reason(&pod, &mk_view(policy, Scope::Container)).as_deref(),
            expected
        );
    }

    #[test]
    fn scope_decides_what_is_aligned() {
        let part = || mk_container(ContainerKind::App, "cpu=3 memory=1Gi", "cpu=3 memory=1Gi");
        let small = || mk_container(ContainerKind::App, "cpu=2 memory=1Gi", "cpu=2 memory=1Gi");
        let pod = mk_pod_of("p", vec![part(), small()]);
        assert_eq!(
            reason(&pod, &mk_view(Policy::SingleNumaNode, Scope::Container)),
            None
        );
        let in_pod_scope = reason(&pod, &mk_view(Policy::SingleNumaNode, Scope::Pod));
        assert_eq!(in_pod_scope.as_deref(), Some("cannot align pod"));
    }

    #[test]
    fn best_effort_pods_do_not_even_look() {
        let idle = mk_pod("p", "");
        assert_eq!(reason(&idle, &View::Stale), None);
        let with_device = mk_pod("p", "v/nic=1");
        assert_eq!(reason(&with_device, &View::Stale).as_deref(), Some(INVALID));
        assert_eq!(reason(&with_device, &View::Absent), None);
    }

    #[test]
    fn the_detail_says_what_was_missing() {
        let rejection = filter(
            &mk_pod("p", "cpu=5 memory=1Gi"),
            &mk_node("n", "cpu=8 memory=8Gi"),
            &mk_view(Policy::SingleNumaNode, Scope::Container),
        )
        .expect_err("too large");
        assert_eq!(
            rejection.detail.as_deref(),
            Some(
                "cannot align container app: cpu wanted 5000m, zone 0 has 4000m, zone 1 has 2000m"
            )
        );
    }
}
