//! InterPodAffinity, required terms: near which pods a pod must be, and near which it must not (scheduler.md 7.3). Preferred terms are
//! scored ([`crate::score::inter_pod`]).

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::PodAffinityTerm;

use super::{Plugin, Rejection, selector};
use crate::state::cluster::{Cluster, Node};
use crate::state::pod::{Phase, Pod};

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{mk_node, mk_pod};
    use serde_json::json;

    fn mk_term(app: &str) -> PodAffinityTerm {
        serde_json::from_value(json!({
            "labelSelector": {"matchLabels": {"app": app}}, "topologyKey": "kubernetes.io/hostname",
        }))
        .expect("term")
    }

    fn mk_cluster(guest: Pod) -> Cluster {
        let mut cluster = Cluster::new();
        for name in ["a", "b"] {
            cluster.apply_node(mk_node(name, "cpu=4"));
        }
        cluster.apply_pod(Pod {
            node: Some("a".to_owned()),
            ..guest
        });
        cluster
    }

    fn allowed(cluster: &Cluster, pod: &Pod) -> Vec<String> {
        let domains = Domains::new(cluster, pod);
        let nodes = cluster
            .nodes()
            .filter(|(node, _)| domains.filter(node).is_ok());
        nodes.map(|(node, _)| node.name.clone()).collect()
    }

    #[test]
    fn affinity_draws_to_the_pod_and_anti_affinity_away() {
        let cluster = mk_cluster(mk_pod("guest", ""));
        let mut pod = mk_pod("p", "");
        pod.constraints.affinity = vec![mk_term("guest")];
        assert_eq!(allowed(&cluster, &pod), ["a"]);
        let mut pod = mk_pod("p", "");
        pod.anti_affinity = vec![mk_term("guest")];
        assert_eq!(allowed(&cluster, &pod), ["b"]);
        assert_eq!(allowed(&cluster, &mk_pod("p", "")), ["a", "b"]);
    }

    #[test]
    fn what_a_pod_does_not_want_near_it_stays_away() {
        let cluster = mk_cluster(Pod {
            anti_affinity: vec![mk_term("p")],
            ..mk_pod("guest", "")
        });
        assert_eq!(allowed(&cluster, &mk_pod("p", "")), ["b"]);
        assert_eq!(allowed(&cluster, &mk_pod("q", "")), ["a", "b"]);
    }

    #[test]
    fn the_first_of_a_kind_may_go_anywhere() {
        let cluster = mk_cluster(mk_pod("guest", ""));
        let mut pod = mk_pod("p", "");
        pod.constraints.affinity = vec![mk_term("p")];
        assert_eq!(allowed(&cluster, &pod), ["a", "b"]);
        pod.constraints.affinity = vec![mk_term("absent")];
        assert!(allowed(&cluster, &pod).is_empty());
    }

    #[test]
    fn other_namespaces_count_only_where_named_or_selected() {
        let mut guest = mk_pod("guest", "");
        guest.key.namespace = "other".to_owned();
        let mut cluster = mk_cluster(guest);
        let mut pod = mk_pod("p", "");
        pod.anti_affinity = vec![mk_term("guest")];
        assert_eq!(allowed(&cluster, &pod), ["a", "b"]);
        pod.anti_affinity[0].namespaces = Some(vec!["other".to_owned()]);
        assert_eq!(allowed(&cluster, &pod), ["b"]);
        pod.anti_affinity[0].namespaces = None;
        pod.anti_affinity[0].namespace_selector =
            serde_json::from_value(json!({"matchLabels": {"team": "x"}})).ok();
        assert_eq!(allowed(&cluster, &pod), ["a", "b"]);
        cluster.apply_namespace(
            "other".to_owned(),
            [("team".to_owned(), "x".to_owned())].into(),
        );
        assert_eq!(allowed(&cluster, &pod), ["b"]);
    }
}
