//! One attempt to place a pod: filter, score, choose. Pure; what follows from it is done by the caller.

use std::collections::BTreeMap;

use crate::cache::Cache;
use crate::cluster::Cluster;
use crate::filter::{Attempt, Plugins, Rejection};
use crate::pod::Pod;
use crate::profile::Profile;
use crate::score;

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// The pod may be bound.
    Placed {
        /// The chosen node.
        node: String,
        /// How many nodes would have been possible.
        feasible: usize,
    },
    /// No node will do.
    Rejected(Verdict),
}

/// Why no node will do.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// For the event and the condition (scheduler.md 7.7).
    pub message: String,
    /// Plugins that ruled out any node: when something changes for one of them, the pod is tried again.
    pub rejected_by: Plugins,
    /// Every node with why it was ruled out.
    pub nodes: Vec<(String, Rejection)>,
}

impl Verdict {
    /// What each node lacked, for the nodes that can tell: `worker-0: cannot align pod: cpu wanted 4000m, zone 0 has 2000m`.
    pub fn details(&self) -> String {
        let mut parts = Vec::new();
        for (node, rejection) in &self.nodes {
            if let Some(detail) = &rejection.detail {
                parts.push(format!("{node}: {detail}"));
            }
        }
        parts.join("; ")
    }
}

/// Looks for a node. `turn` decides between nodes of equal score, so that they are used in turn.
pub fn attempt(
    profile: &Profile,
    cluster: &Cluster,
    cache: &Cache,
    pod: &Pod,
    turn: usize,
) -> Outcome {
    let attempt = Attempt::new(cluster, cache, pod);
    let mut feasible = Vec::new();
    let mut rejected = Vec::new();
    for (node, state) in cluster.nodes() {
        match attempt.examine(&profile.filters, node, state) {
            Ok(()) => feasible.push((node, state)),
            Err(rejection) => rejected.push((node.name.clone(), rejection)),
        }
    }
    let count = feasible.len();
    if count == 0 {
        return Outcome::Rejected(verdict(rejected));
    }
    let totals = if count == 1 {
        vec![0]
    } else {
        score::totals(&profile.scores, pod, &feasible, cache)
    };
    let best = totals.iter().copied().max().unwrap_or(0);
    let equals: Vec<usize> = (0..count).filter(|index| totals[*index] == best).collect();
    let (node, _) = feasible[equals[turn % equals.len()]];
    Outcome::Placed {
        node: node.name.clone(),
        feasible: count,
    }
}

pub(crate) fn verdict(nodes: Vec<(String, Rejection)>) -> Verdict {
    let rejected_by = if nodes.is_empty() {
        Plugins::ALL
    } else {
        nodes
            .iter()
            .map(|(_, rejection)| rejection.plugin)
            .collect()
    };
    Verdict {
        message: message(&nodes),
        rejected_by,
        nodes,
    }
}

/// `0/3 nodes are available: 1 cannot align pod, 2 Insufficient cpu.` Sorted as text, numbers included, as others print it.
fn message(nodes: &[(String, Rejection)]) -> String {
    if nodes.is_empty() {
        return "no nodes available to schedule pods".to_owned();
    }
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for reason in nodes.iter().flat_map(|(_, rejection)| &rejection.reasons) {
        *counts.entry(reason).or_default() += 1;
    }
    let mut parts: Vec<String> = counts
        .iter()
        .map(|(reason, count)| format!("{count} {reason}"))
        .collect();
    parts.sort();
    format!(
        "0/{} nodes are available: {}.",
        nodes.len(),
        parts.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::{Mode, Settings};
    use crate::cluster::Node;
    use crate::filter::Plugin;
    use crate::testing::{mk_node, mk_pod};
    use k8s_openapi::api::core::v1::Taint;
    use nrt::decode::NodeTopology;
    use scheduler_config::args::{ForeignPodsDetect, NodeResourceTopologyMatchArgs, ResyncMethod};
    use topology::mask::ZoneId;
    use topology::policy::{ManagerConfig, Policy};
    use topology::zone::{Amounts, Zone};

    fn mk_profile() -> Profile {
        Profile {
            name: "topo".to_owned(),
            filters: vec![
                Plugin::NodeUnschedulable,
                Plugin::TaintToleration,
                Plugin::NodeAffinity,
                Plugin::NodeResourcesFit,
                Plugin::NodeResourceTopologyMatch,
                Plugin::Volumes,
            ],
            scores: vec![
                score::Weighted {
                    plugin: score::Plugin::NodeResourcesFit,
                    weight: 1,
                },
                score::Weighted {
                    plugin: score::Plugin::NodeResourceTopologyMatch(
                        NodeResourceTopologyMatchArgs::default().scoring_strategy,
                    ),
                    weight: 1,
                },
            ],
        }
    }

    fn mk_cache() -> Cache {
        Cache::new(Settings {
            mode: Mode::OverReserve,
            foreign: ForeignPodsDetect::All,
            method: ResyncMethod::Autodetect,
            profiles: ["topo".to_owned()].into(),
            trace: false,
        })
    }

    fn mk_nrt(zones: &[&str]) -> NodeTopology {
        let zone = |(id, left): (usize, &&str)| Zone {
            resources: crate::testing::mk_resources(left)
                .iter()
                .map(|(name, available)| {
                    (
                        name.clone(),
                        Amounts {
                            capacity: available,
                            allocatable: available,
                            available,
                        },
                    )
                })
                .collect(),
            ..Zone::new(ZoneId::new(id as u64).expect("small"))
        };
        NodeTopology {
            zones: zones.iter().enumerate().map(zone).collect(),
            config: ManagerConfig {
                policy: Policy::SingleNumaNode,
                ..ManagerConfig::default()
            },
            fingerprint: None,
        }
    }

    #[test]
    fn the_only_node_with_a_fitting_zone_is_chosen() {
        let (mut cluster, mut cache) = (Cluster::new(), mk_cache());
        for name in ["a", "b", "c"] {
            cluster.apply_node(mk_node(name, "cpu=8 memory=8Gi"));
        }
        let split = "cpu=4 memory=4Gi";
        cache.apply_nrt("a", mk_nrt(&[split, split]));
        cache.apply_nrt("b", mk_nrt(&["cpu=6 memory=4Gi", "cpu=2 memory=4Gi"]));
        cache.apply_nrt("c", mk_nrt(&[split, split]));
        let pod = mk_pod("p", "cpu=5 memory=1Gi");
        let outcome = attempt(&mk_profile(), &cluster, &cache, &pod, 0);
        assert_eq!(
            outcome,
            Outcome::Placed {
                node: "b".to_owned(),
                feasible: 1
            }
        );
    }

    #[test]
    fn the_message_counts_every_reason_in_text_order() {
        let (mut cluster, mut cache) = (Cluster::new(), mk_cache());
        let taint = Taint {
            key: "k".to_owned(),
            effect: "NoSchedule".to_owned(),
            ..Taint::default()
        };
        cluster.apply_node(Node {
            taints: vec![taint],
            ..mk_node("control-plane-0", "cpu=64 memory=64Gi")
        });
        cluster.apply_node(mk_node("worker-0", "cpu=8 memory=8Gi"));
        cache.apply_nrt(
            "worker-0",
            mk_nrt(&["cpu=4 memory=4Gi", "cpu=4 memory=4Gi"]),
        );
        for index in 1..4 {
            cluster.apply_node(mk_node(&format!("worker-{index}"), "cpu=2 memory=1Gi"));
        }
        let pod = mk_pod("p", "cpu=5 memory=1Gi");
        let Outcome::Rejected(verdict) = attempt(&mk_profile(), &cluster, &cache, &pod, 0) else {
            panic!("no node fits");
        };
        assert_eq!(
            verdict.message,
            "0/5 nodes are available: 1 cannot align container, 1 node(s) had untolerated taint(s), 3 Insufficient cpu."
        );
        assert!(
            verdict
                .rejected_by
                .intersects([Plugin::NodeResourceTopologyMatch].into_iter().collect())
        );
        assert!(
            !verdict
                .rejected_by
                .intersects([Plugin::NodeAffinity].into_iter().collect())
        );
        assert_eq!(verdict.nodes.len(), 5);
    }

    #[test]
    fn an_empty_cluster_has_its_own_message() {
        let Outcome::Rejected(verdict) = attempt(
            &mk_profile(),
            &Cluster::new(),
            &mk_cache(),
            &mk_pod("p", ""),
            0,
        ) else {
            panic!("no node");
        };
        assert_eq!(verdict.message, "no nodes available to schedule pods");
    }

    #[test]
    fn equal_nodes_are_used_in_turn() {
        let (mut cluster, cache) = (Cluster::new(), mk_cache());
        for name in ["a", "b"] {
            cluster.apply_node(mk_node(name, "cpu=8 memory=8Gi"));
        }
        let chosen: Vec<_> = (0..3)
            .map(|turn| {
                attempt(
                    &mk_profile(),
                    &cluster,
                    &cache,
                    &mk_pod("p", "cpu=1 memory=1Gi"),
                    turn,
                )
            })
            .map(|outcome| match outcome {
                Outcome::Placed { node, .. } => node,
                Outcome::Rejected(verdict) => verdict.message,
            })
            .collect();
        assert_eq!(chosen, ["a", "b", "a"]);
    }

    #[test]
    fn the_emptier_node_is_preferred() {
        let (mut cluster, cache) = (Cluster::new(), mk_cache());
        for name in ["a", "b"] {
            cluster.apply_node(mk_node(name, "cpu=8 memory=8Gi"));
        }
        cluster.apply_pod(Pod {
            node: Some("a".to_owned()),
            ..mk_pod("other", "cpu=4 memory=4Gi")
        });
        for turn in 0..2 {
            let outcome = attempt(
                &mk_profile(),
                &cluster,
                &cache,
                &mk_pod("p", "cpu=1 memory=1Gi"),
                turn,
            );
            assert_eq!(
                outcome,
                Outcome::Placed {
                    node: "b".to_owned(),
                    feasible: 2
                }
            );
        }
    }

    #[test]
    fn a_pod_with_a_claim_is_rejected_with_the_reason() {
        let mut cluster = Cluster::new();
        cluster.apply_node(mk_node("a", "cpu=8"));
        let mut pod = mk_pod("p", "cpu=1");
        pod.wishes.volumes = Some("claims are not supported");
        let Outcome::Rejected(verdict) = attempt(&mk_profile(), &cluster, &mk_cache(), &pod, 0)
        else {
            panic!("claims are refused");
        };
        assert_eq!(
            verdict.message,
            "0/1 nodes are available: 1 claims are not supported."
        );
    }
}
