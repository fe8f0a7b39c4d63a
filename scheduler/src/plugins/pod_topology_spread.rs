//! PodTopologySpread: no topology domain may have too many more pods of a kind than the emptiest one, and domains with few of them are
//! preferred (scheduler.md 7.3, 7.5).
//!
//! The filter obeys hard constraints, the score prefers by soft ones.

use std::borrow::Cow;
use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::TopologySpreadConstraint;

use super::score::MAX;
use super::{node_affinity, taint_toleration};
use crate::plugins::plugin::Plugin;
use crate::plugins::rejection::Rejection;
use crate::state::cluster::Cluster;
use crate::state::node::{Node, NodeState};
use crate::state::pod::{Phase, Pod};
use crate::state::selector;

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
    (!by_affinity || node_affinity::selected(pod, node))
        && (!by_taints || taint_toleration::filter(pod, node).is_ok())
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

/// Label that makes every node a domain of its own, which simplifies counting.
const HOST: &str = "kubernetes.io/hostname";

/// Spread constraints of pods that have none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Defaults {
    /// The constraints.
    pub constraints: Vec<TopologySpreadConstraint>,
    /// Whether they are the built-in ones of Kubernetes, which do not leave out nodes without their labels.
    pub are_system: bool,
}

/// Returns the scores of `nodes`, in order; `None` if the pod has no soft constraints.
pub fn scores<'a>(
    cluster: &Cluster,
    pod: &Pod,
    nodes: impl Iterator<Item = (&'a Node, &'a NodeState)> + Clone,
    defaults: &Defaults,
) -> Option<Vec<i64>> {
    let constraints = constraints(cluster, pod, &defaults.constraints, "ScheduleAnyway");
    if constraints.is_empty() {
        return None;
    }
    let needs_all = !pod.constraints.spread.is_empty() || !defaults.are_system;
    let is_left_out = |node: &Node| needs_all && !has_all_keys(node, &constraints);
    let scored = nodes.clone().filter(|(node, _)| !is_left_out(node)).count();
    let mut rules: Vec<Rule> = Vec::new();
    for constraint in &constraints {
        let mut domains = BTreeMap::new();
        if constraint.topology_key != HOST {
            let considered = nodes.clone().filter(|(node, _)| !is_left_out(node));
            domains.extend(considered.map(|(node, _)| (domain(node, constraint), 0)));
            for (node, state) in cluster.nodes() {
                if is_left_out(node) || !counts_node(pod, constraint, node) {
                    continue;
                }
                if let Some(count) = domains.get_mut(domain(node, constraint)) {
                    *count += matching_pods(cluster, pod, constraint, state);
                }
            }
        }
        let size = if constraint.topology_key == HOST {
            scored
        } else {
            domains.len()
        };
        rules.push(Rule {
            constraint,
            weight: ((size + 2) as f64).ln(),
            domains,
        });
    }
    let raw = nodes.map(|(node, state)| {
        let sum: f64 = rules
            .iter()
            .filter_map(|rule| rule.score(cluster, pod, node, state))
            .sum();
        (!is_left_out(node)).then_some(sum.round() as i64)
    });
    Some(normalize(&raw.collect::<Vec<_>>()))
}

struct Rule<'a> {
    constraint: &'a TopologySpreadConstraint,
    /// Compensates for fewer pods in each domain when there are many domains.
    weight: f64,
    /// Pods of the same kind by domain.
    domains: BTreeMap<&'a str, i64>,
}

impl Rule<'_> {
    fn score(&self, cluster: &Cluster, pod: &Pod, node: &Node, state: &NodeState) -> Option<f64> {
        let value = node.labels.get(&self.constraint.topology_key)?;
        let count = if self.constraint.topology_key == HOST {
            matching_pods(cluster, pod, self.constraint, state)
        } else {
            *self.domains.get(value.as_str())?
        };
        Some(count as f64 * self.weight + f64::from(self.constraint.max_skew - 1))
    }
}

/// Returns the domain of a node. All nodes without the label share one domain.
fn domain<'a>(node: &'a Node, constraint: &TopologySpreadConstraint) -> &'a str {
    let value = node.labels.get(&constraint.topology_key);
    value.map(String::as_str).unwrap_or_default()
}

/// Turns counts into scores: the lowest count gets the best score, nodes that are left out get 0.
fn normalize(raw: &[Option<i64>]) -> Vec<i64> {
    let known = raw.iter().flatten().copied();
    let (least, most) = (known.clone().min().unwrap_or(0), known.max().unwrap_or(0));
    let turned = |score| {
        if most == 0 {
            MAX
        } else {
            MAX * (most + least - score) / most
        }
    };
    raw.iter().map(|score| score.map_or(0, turned)).collect()
}

#[cfg(test)]
mod tests;
