//! PodTopologySpread, hard constraints: no topology domain may have too many more pods than the emptiest one (scheduler.md 7.3). Soft
//! constraints are scored ([`crate::score::spread`]).

use std::borrow::Cow;
use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::TopologySpreadConstraint;

use super::{Plugin, Rejection, node, selector};
use crate::state::cluster::{Cluster, Node, NodeState};
use crate::state::pod::{Phase, Pod};

const REASON: &str = "node(s) didn't match pod topology spread constraints";
const MISSING_LABEL: &str =
    "node(s) didn't match pod topology spread constraints (missing required label)";

/// Number of matching pods by domain, for each constraint.
#[derive(Debug, Default)]
pub struct Counts(Vec<Constraint>);

#[derive(Debug)]
struct Constraint {
    key: String,
    max_skew: i64,
    /// 1 if the pod itself counts.
    own: i64,
    domains: BTreeMap<String, i64>,
    lowest: i64,
}

impl Counts {
    /// Counts the matching pods for a pod. The result is empty if the pod has no hard constraints, neither its own nor by `defaults`.
    pub fn new(cluster: &Cluster, pod: &Pod, defaults: &[TopologySpreadConstraint]) -> Self {
        let constraints = constraints(cluster, pod, defaults, "DoNotSchedule");
        if constraints.is_empty() {
            return Self::default();
        }
        let eligible: Vec<&Node> = cluster
            .nodes()
            .map(|(node, _)| node)
            .filter(|node| has_all_keys(node, &constraints))
            .collect();
        Self(
            constraints
                .iter()
                .map(|constraint| count(cluster, pod, constraint, &eligible))
                .collect(),
        )
    }

    /// Returns whether there are no constraints.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Checks whether the node's domains may take one more pod.
    pub fn filter(&self, node: &Node) -> Result<(), Rejection> {
        for constraint in &self.0 {
            let Some(value) = node.labels.get(&constraint.key) else {
                return Err(Rejection::unresolvable(
                    Plugin::PodTopologySpread,
                    MISSING_LABEL,
                ));
            };
            let count = constraint.domains.get(value).copied().unwrap_or(0);
            if count + constraint.own - constraint.lowest > constraint.max_skew {
                return Err(Rejection {
                    detail: Some(format!(
                        "{}={value} has {count} matching pods, the lowest {}",
                        constraint.key, constraint.lowest
                    )),
                    ..Rejection::new(Plugin::PodTopologySpread, REASON)
                });
            }
        }
        Ok(())
    }
}

/// Returns the constraints of a pod whose `whenUnsatisfiable` is `action`. A pod without constraints gets `defaults`, with the selectors
/// of its services and its controller; if these select nothing, it gets none.
pub fn constraints<'a>(
    cluster: &Cluster,
    pod: &'a Pod,
    defaults: &[TopologySpreadConstraint],
    action: &str,
) -> Vec<Cow<'a, TopologySpreadConstraint>> {
    let acts = |constraint: &&TopologySpreadConstraint| constraint.when_unsatisfiable == action;
    if !pod.constraints.spread.is_empty() {
        let own = pod.constraints.spread.iter().filter(acts);
        return own.map(Cow::Borrowed).collect();
    }
    let mut defaults = defaults.iter().filter(acts).peekable();
    if defaults.peek().is_none() {
        return Vec::new();
    }
    let Some(selector) = cluster.default_selector(pod) else {
        return Vec::new();
    };
    let with_selector = |constraint: &TopologySpreadConstraint| TopologySpreadConstraint {
        label_selector: Some(selector.clone()),
        ..constraint.clone()
    };
    defaults.map(|it| Cow::Owned(with_selector(it))).collect()
}

/// Returns whether a node is in a domain of each constraint.
pub fn has_all_keys(node: &Node, constraints: &[Cow<TopologySpreadConstraint>]) -> bool {
    constraints
        .iter()
        .all(|constraint| node.labels.contains_key(&constraint.topology_key))
}

/// Returns whether a constraint counts another pod as one of the pod's kind.
fn matches(constraint: &TopologySpreadConstraint, pod: &Pod, other: &Pod) -> bool {
    let label_keys = constraint.match_label_keys.as_deref().unwrap_or_default();
    other.key.namespace == pod.key.namespace
        && selector::labels(constraint.label_selector.as_ref(), &other.labels)
        && label_keys.iter().all(|key| {
            pod.labels
                .get(key)
                .is_none_or(|value| other.labels.get(key) == Some(value))
        })
}

/// Returns the number of pods of the pod's kind on a node.
pub fn matching_pods(
    cluster: &Cluster,
    pod: &Pod,
    constraint: &TopologySpreadConstraint,
    state: &NodeState,
) -> i64 {
    // kube-scheduler counts no pods for an empty selector, although that selects the pod itself
    if selector::is_empty(constraint.label_selector.as_ref()) {
        return 0;
    }
    let pods = state.pods.iter().filter_map(|key| cluster.pod(key));
    pods.filter(|other| {
        other.phase != Phase::Terminal && !other.deleting && matches(constraint, pod, other)
    })
    .count() as i64
}

/// Returns whether the node counts for a constraint, by the constraint's policies for nodes that the pod cannot use.
pub fn counts_node(pod: &Pod, constraint: &TopologySpreadConstraint, node: &Node) -> bool {
    let honoured = |policy: &Option<String>, default: bool| {
        policy
            .as_deref()
            .map_or(default, |policy| policy == "Honor")
    };
    let by_affinity = honoured(&constraint.node_affinity_policy, true);
    let by_taints = honoured(&constraint.node_taints_policy, false);
    (!by_affinity || node::selected(pod, node)) && (!by_taints || node::taints(pod, node).is_ok())
}

fn count(
    cluster: &Cluster,
    pod: &Pod,
    constraint: &TopologySpreadConstraint,
    eligible: &[&Node],
) -> Constraint {
    let mut domains: BTreeMap<String, i64> = BTreeMap::new();
    for node in eligible {
        if !counts_node(pod, constraint, node) {
            continue;
        }
        let Some(value) = node.labels.get(&constraint.topology_key) else {
            continue;
        };
        let matching = cluster
            .node(&node.name)
            .map_or(0, |state| matching_pods(cluster, pod, constraint, state));
        *domains.entry(value.clone()).or_default() += matching;
    }
    let wanted = constraint.min_domains.unwrap_or(1);
    let enough = domains.len() as i64 >= i64::from(wanted);
    Constraint {
        key: constraint.topology_key.clone(),
        max_skew: i64::from(constraint.max_skew),
        own: i64::from(matches(constraint, pod, pod)),
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
    use crate::state::cluster::GroupKind;
    use crate::testing::{mk_key, mk_node, mk_pod};

    fn mk_spread(pod: Pod, max_skew: i32, min_domains: Option<i32>) -> Pod {
        let mut pod = pod;
        pod.labels = [("app".to_owned(), "web".to_owned())].into();
        pod.constraints.spread = vec![TopologySpreadConstraint {
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
        allowed_by(cluster, pod, &[])
    }

    fn allowed_by(
        cluster: &Cluster,
        pod: &Pod,
        defaults: &[TopologySpreadConstraint],
    ) -> Vec<String> {
        let counts = Counts::new(cluster, pod, defaults);
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
        pod.constraints.node_selector =
            [("kubernetes.io/hostname".to_owned(), "a".to_owned())].into();
        assert_eq!(Counts::new(&cluster, &pod, &[]).0[0].domains.len(), 1);
        assert!(allowed(&cluster, &pod).contains(&"a".to_owned()));
    }

    #[test]
    fn hard_defaults_keep_apart_what_belongs_to_one_service_and_has_no_rules_of_its_own() {
        let mut cluster = mk_cluster();
        let mut pod = mk_spread(mk_pod("p", ""), 1, None);
        let mut default = std::mem::take(&mut pod.constraints.spread).remove(0);
        let selector = default.label_selector.take().expect("selector");
        let soft = TopologySpreadConstraint {
            when_unsatisfiable: "ScheduleAnyway".to_owned(),
            ..default.clone()
        };
        let hard = [default];
        assert_eq!(allowed_by(&cluster, &pod, &hard), ["a", "b"], "no service");
        let service = mk_key("ns", "web");
        cluster.apply_group(GroupKind::Service, service, selector);
        assert_eq!(allowed_by(&cluster, &pod, &hard), ["b"]);
        assert_eq!(
            allowed_by(&cluster, &pod, &[soft]),
            ["a", "b"],
            "only scored"
        );
        let looser = mk_spread(pod, 2, None);
        assert_eq!(allowed_by(&cluster, &looser, &hard), ["a", "b"], "its own");
    }

    #[test]
    fn a_node_without_the_label_is_refused_with_its_own_reason() {
        let mut cluster = mk_cluster();
        let mut bare = mk_node("c", "cpu=4");
        bare.labels.clear();
        cluster.apply_node(bare.clone());
        let counts = Counts::new(&cluster, &mk_spread(mk_pod("p", ""), 1, None), &[]);
        assert_eq!(
            counts.filter(&bare).expect_err("no label").reasons,
            [MISSING_LABEL]
        );
    }
}
