//! PodTopologySpread, hard constraints: no topology domain may be too far ahead of the emptiest one (scheduler.md 7.3).

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::TopologySpreadConstraint;

use super::{Plugin, Rejection, node, selector};
use crate::cluster::{Cluster, Node};
use crate::pod::{Phase, Pod};

const REASON: &str = "node(s) didn't match pod topology spread constraints";
const MISSING_LABEL: &str =
    "node(s) didn't match pod topology spread constraints (missing required label)";

/// Matching pods by domain, for each constraint.
#[derive(Debug, Default)]
pub struct Counts(Vec<Constraint>);

#[derive(Debug)]
struct Constraint {
    key: String,
    max_skew: i64,
    /// 1 if the pod itself will count.
    own: i64,
    domains: BTreeMap<String, i64>,
    lowest: i64,
}

impl Counts {
    /// Counts for a pod; nothing to do if it has no hard constraints.
    pub fn new(cluster: &Cluster, pod: &Pod) -> Self {
        let constraints = &pod.wishes.spread;
        if constraints.is_empty() {
            return Self::default();
        }
        let has_all_keys = |node: &Node| {
            constraints
                .iter()
                .all(|item| node.labels.contains_key(&item.topology_key))
        };
        let eligible: Vec<&Node> = cluster
            .nodes()
            .map(|(node, _)| node)
            .filter(|node| has_all_keys(node))
            .collect();
        Self(
            constraints
                .iter()
                .map(|constraint| count(cluster, pod, constraint, &eligible))
                .collect(),
        )
    }

    /// Whether the node's domains may take one more.
    pub fn filter(&self, node: &Node) -> Result<(), Rejection> {
        for constraint in &self.0 {
            let Some(value) = node.labels.get(&constraint.key) else {
                return Err(Rejection::new(Plugin::PodTopologySpread, MISSING_LABEL));
            };
            let there = constraint.domains.get(value).copied().unwrap_or(0);
            if there + constraint.own - constraint.lowest > constraint.max_skew {
                return Err(Rejection {
                    detail: Some(format!(
                        "{}={value} has {there} matching pods, the lowest {}",
                        constraint.key, constraint.lowest
                    )),
                    ..Rejection::new(Plugin::PodTopologySpread, REASON)
                });
            }
        }
        Ok(())
    }
}

fn count(
    cluster: &Cluster,
    pod: &Pod,
    constraint: &TopologySpreadConstraint,
    eligible: &[&Node],
) -> Constraint {
    let honoured = |policy: &Option<String>, default: bool| {
        policy
            .as_deref()
            .map_or(default, |policy| policy == "Honor")
    };
    let by_affinity = honoured(&constraint.node_affinity_policy, true);
    let by_taints = honoured(&constraint.node_taints_policy, false);
    let label_keys = constraint.match_label_keys.as_deref().unwrap_or_default();
    let matches = |other: &Pod| {
        other.key.namespace == pod.key.namespace
            && selector::labels(constraint.label_selector.as_ref(), &other.labels)
            && label_keys.iter().all(|key| {
                pod.labels
                    .get(key)
                    .is_none_or(|value| other.labels.get(key) == Some(value))
            })
    };
    let mut domains: BTreeMap<String, i64> = BTreeMap::new();
    for node in eligible {
        if (by_affinity && !node::selected(pod, node))
            || (by_taints && node::taints(pod, node).is_err())
        {
            continue;
        }
        let Some(value) = node.labels.get(&constraint.topology_key) else {
            continue;
        };
        let pods = cluster
            .node(&node.name)
            .map(|state| &state.pods)
            .into_iter()
            .flatten();
        let there = pods
            .filter_map(|key| cluster.pod(key))
            .filter(|other| other.phase != Phase::Terminal && !other.deleting && matches(other))
            .count();
        *domains.entry(value.clone()).or_default() += there as i64;
    }
    let wanted = constraint.min_domains.unwrap_or(1);
    let enough = domains.len() as i64 >= i64::from(wanted);
    Constraint {
        key: constraint.topology_key.clone(),
        max_skew: i64::from(constraint.max_skew),
        own: i64::from(matches(pod)),
        lowest: if enough {
            domains.values().copied().min().unwrap_or(0)
        } else {
            0
        },
        domains,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{mk_node, mk_pod};

    fn mk_spread(pod: Pod, max_skew: i32, min_domains: Option<i32>) -> Pod {
        let mut pod = pod;
        pod.labels = [("app".to_owned(), "web".to_owned())].into();
        pod.wishes.spread = vec![TopologySpreadConstraint {
            max_skew,
            min_domains,
            topology_key: "kubernetes.io/hostname".to_owned(),
            when_unsatisfiable: "DoNotSchedule".to_owned(),
            label_selector: serde_json::from_value(
                serde_json::json!({"matchLabels": {"app": "web"}}),
            )
            .ok(),
            ..TopologySpreadConstraint::default()
        }];
        pod
    }

    fn mk_cluster() -> Cluster {
        let mut cluster = Cluster::new();
        for name in ["a", "b"] {
            cluster.apply_node(mk_node(name, "cpu=4"));
        }
        cluster.apply_pod(Pod {
            node: Some("a".to_owned()),
            ..mk_spread(mk_pod("one", ""), 1, None)
        });
        cluster
    }

    fn allowed(cluster: &Cluster, pod: &Pod) -> Vec<String> {
        let counts = Counts::new(cluster, pod);
        let nodes = cluster
            .nodes()
            .filter(|(node, _)| counts.filter(node).is_ok());
        nodes.map(|(node, _)| node.name.clone()).collect()
    }

    #[test]
    fn the_emptier_domain_is_the_only_choice() {
        let cluster = mk_cluster();
        assert_eq!(
            allowed(&cluster, &mk_spread(mk_pod("p", ""), 1, None)),
            ["b"]
        );
        assert_eq!(
            allowed(&cluster, &mk_spread(mk_pod("p", ""), 2, None)),
            ["a", "b"]
        );
    }

    #[test]
    fn too_few_domains_count_as_an_empty_one() {
        let mut cluster = mk_cluster();
        cluster.apply_pod(Pod {
            node: Some("b".to_owned()),
            ..mk_spread(mk_pod("two", ""), 1, None)
        });
        assert_eq!(
            allowed(&cluster, &mk_spread(mk_pod("p", ""), 1, None)),
            ["a", "b"]
        );
        assert!(allowed(&cluster, &mk_spread(mk_pod("p", ""), 1, Some(3))).is_empty());
    }

    #[test]
    fn nodes_that_the_pod_cannot_use_do_not_count() {
        let cluster = mk_cluster();
        let mut pod = mk_spread(mk_pod("p", ""), 1, None);
        pod.wishes.node_selector = [("kubernetes.io/hostname".to_owned(), "a".to_owned())].into();
        assert_eq!(Counts::new(&cluster, &pod).0[0].domains.len(), 1);
        assert!(allowed(&cluster, &pod).contains(&"a".to_owned()));
    }

    #[test]
    fn a_node_without_the_label_is_refused_with_its_own_reason() {
        let mut cluster = mk_cluster();
        let mut bare = mk_node("c", "cpu=4");
        bare.labels.clear();
        cluster.apply_node(bare.clone());
        let counts = Counts::new(&cluster, &mk_spread(mk_pod("p", ""), 1, None));
        assert_eq!(
            counts.filter(&bare).expect_err("no label").reasons,
            [MISSING_LABEL]
        );
    }
}
