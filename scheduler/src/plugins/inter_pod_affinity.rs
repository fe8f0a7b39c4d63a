//! InterPodAffinity: near which pods a pod must be, near which it must not, and near which it prefers to be (scheduler.md 7.3, 7.5).
//!
//! The filter obeys required terms, the score prefers by preferred ones.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::PodAffinityTerm;
use scheduler_config::default_plugins::InterPodAffinityArgs;

use super::score::MAX;
use crate::plugins::plugin::Plugin;
use crate::plugins::rejection::Rejection;
use crate::state::cluster::Cluster;
use crate::state::node::Node;
use crate::state::pod::{Phase, Pod};
use crate::state::selector;

/// A label with a value. All nodes that carry it are one topology domain.
type Domain = (String, String);

/// The domains that matter to a pod.
#[derive(Debug, Default)]
pub struct Domains {
    /// Topology keys of the pod's affinity terms.
    wanted_keys: Vec<String>,
    /// Domains with pods that the pod must be near.
    wanted: BTreeSet<Domain>,
    /// Whether no such pod exists and the pod itself matches: it is the first of its kind.
    first_of_its_kind: bool,
    /// Domains with pods that the pod must not be near.
    avoided: BTreeSet<Domain>,
    /// Domains with pods whose anti-affinity excludes the pod.
    excluded_by_others: BTreeSet<Domain>,
}

impl Domains {
    /// Collects the domains from all pods that have a node.
    pub fn new(cluster: &Cluster, pod: &Pod) -> Self {
        let affinity = &pod.constraints.affinity;
        let mut found = Self {
            wanted_keys: affinity
                .iter()
                .map(|term| term.topology_key.clone())
                .collect(),
            ..Self::default()
        };
        let has_no_required_terms = affinity.is_empty() && pod.anti_affinity.is_empty();
        let others: Vec<&Pod> = if has_no_required_terms {
            cluster.pods_with_anti_affinity().collect()
        } else {
            cluster.pods().collect()
        };
        for other in others {
            if other.phase == Phase::Terminal || other.key == pod.key {
                continue;
            }
            let Some(node) = node_of(cluster, other) else {
                continue;
            };
            let selects = |term: &PodAffinityTerm, owner: &Pod, target: &Pod| {
                selects(cluster, term, owner, target)
            };
            if !affinity.is_empty() && affinity.iter().all(|term| selects(term, pod, other)) {
                found
                    .wanted
                    .extend(affinity.iter().filter_map(|term| domain_of(term, node)));
            }
            let near = pod
                .anti_affinity
                .iter()
                .filter(|term| selects(term, pod, other));
            found
                .avoided
                .extend(near.filter_map(|term| domain_of(term, node)));
            let near = other
                .anti_affinity
                .iter()
                .filter(|term| selects(term, other, pod));
            found
                .excluded_by_others
                .extend(near.filter_map(|term| domain_of(term, node)));
        }
        found.first_of_its_kind =
            found.wanted.is_empty() && affinity.iter().all(|term| selects(cluster, term, pod, pod));
        found
    }

    /// Returns whether every node fits.
    pub fn is_empty(&self) -> bool {
        self.wanted_keys.is_empty() && self.avoided.is_empty() && self.excluded_by_others.is_empty()
    }

    /// Checks whether the pod may be on the node.
    pub fn filter(&self, node: &Node) -> Result<(), Rejection> {
        let reject = |reason| Err(Rejection::new(Plugin::InterPodAffinity, reason));
        let is_at = |domains: &BTreeSet<Domain>| {
            domains
                .iter()
                .any(|(key, value)| node.labels.get(key) == Some(value))
        };
        let near_all = self.wanted_keys.iter().all(|key| {
            node.labels.get(key).is_some_and(|value| {
                self.first_of_its_kind || self.wanted.contains(&(key.clone(), value.clone()))
            })
        });
        if !near_all {
            return Err(Rejection::unresolvable(
                Plugin::InterPodAffinity,
                "node(s) didn't match pod affinity rules",
            ));
        }
        if is_at(&self.avoided) {
            return reject("node(s) didn't match pod anti-affinity rules");
        }
        if is_at(&self.excluded_by_others) {
            return reject("node(s) didn't satisfy existing pods anti-affinity rules");
        }
        Ok(())
    }
}

/// Returns the node that a pod is on, if it is known.
pub fn node_of<'a>(cluster: &'a Cluster, pod: &Pod) -> Option<&'a Node> {
    cluster.node(pod.node.as_ref()?)?.node.as_ref()
}

fn domain_of(term: &PodAffinityTerm, node: &Node) -> Option<Domain> {
    let value = node.labels.get(&term.topology_key)?;
    Some((term.topology_key.clone(), value.clone()))
}

/// Returns whether a term of `owner` selects `target`. Without namespaces and namespace selector, only the owner's namespace is selected.
pub fn selects(cluster: &Cluster, term: &PodAffinityTerm, owner: &Pod, target: &Pod) -> bool {
    let namespace = &target.key.namespace;
    let listed = term.namespaces.as_deref().unwrap_or_default();
    let in_namespace = if listed.is_empty() && term.namespace_selector.is_none() {
        *namespace == owner.key.namespace
    } else {
        let selected = |labels| selector::labels(term.namespace_selector.as_ref(), labels);
        listed.contains(namespace) || cluster.namespace_labels(namespace).is_some_and(selected)
    };
    in_namespace && selector::labels(term.label_selector.as_ref(), &target.labels)
}

/// Returns the scores of `nodes`, in order; `None` if no preference applies.
pub fn scores<'a>(
    cluster: &Cluster,
    pod: &Pod,
    nodes: impl Iterator<Item = &'a Node>,
    args: InterPodAffinityArgs,
) -> Option<Vec<i64>> {
    let own = pod.constraints.preferences.as_deref();
    if own.is_none() && args.ignore_preferred_terms_of_existing_pods {
        return None;
    }
    let others: Vec<&Pod> = if own.is_some() {
        cluster.pods().collect()
    } else {
        cluster.pods_with_affinity().collect()
    };
    let mut domains: BTreeMap<(&str, &str), i64> = BTreeMap::new();
    for other in others {
        if other.phase == Phase::Terminal || other.key == pod.key {
            continue;
        }
        let Some(node) = node_of(cluster, other) else {
            continue;
        };
        let mut add = |term: &PodAffinityTerm, weight: i64, owner: &Pod, target: &Pod| {
            let Some((key, value)) = node.labels.get_key_value(&term.topology_key) else {
                return;
            };
            if selects(cluster, term, owner, target) {
                *domains.entry((key, value)).or_default() += weight;
            }
        };
        if let Some(own) = own {
            for term in &own.near {
                add(&term.pod_affinity_term, term.weight.into(), pod, other);
            }
            for term in &own.apart {
                add(&term.pod_affinity_term, -i64::from(term.weight), pod, other);
            }
        }
        if args.hard_pod_affinity_weight > 0 {
            for term in &other.constraints.affinity {
                add(term, args.hard_pod_affinity_weight, other, pod);
            }
        }
        if let Some(theirs) = other.constraints.preferences.as_deref() {
            for term in &theirs.near {
                add(&term.pod_affinity_term, term.weight.into(), other, pod);
            }
            for term in &theirs.apart {
                add(&term.pod_affinity_term, -i64::from(term.weight), other, pod);
            }
        }
    }
    if domains.is_empty() {
        return None;
    }
    let raw = nodes.map(|node| {
        let domains = domains.iter();
        let here = domains
            .filter(|((key, value), _)| node.labels.get(*key).is_some_and(|label| label == value));
        here.map(|(_, weight)| weight).sum()
    });
    Some(normalize(&raw.collect::<Vec<i64>>()))
}

/// Scales scores so that the lowest becomes 0 and the highest [`MAX`]. If all are equal, all become 0.
fn normalize(raw: &[i64]) -> Vec<i64> {
    let (least, most) = (
        raw.iter().copied().min().unwrap_or(0),
        raw.iter().copied().max().unwrap_or(0),
    );
    let stretched = |score: i64| {
        if most == least {
            0
        } else {
            (MAX as f64 * ((score - least) as f64 / (most - least) as f64)) as i64
        }
    };
    raw.iter().copied().map(stretched).collect()
}

#[cfg(test)]
mod tests;
