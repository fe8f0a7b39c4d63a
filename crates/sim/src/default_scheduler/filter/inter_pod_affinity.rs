//! Required pod affinity and anti-affinity.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Node, PodAffinityTerm};

use crate::controllers::{objects, selectors};
use crate::default_scheduler::filter::Rejection;
use crate::default_scheduler::ledger::Ledger;
use crate::default_scheduler::pod::Task;

/// A topology domain: key and value of a label. All nodes with this label value belong to it.
type Domain = (String, String);

/// The domains that matter for a pod.
#[derive(Debug, Default)]
pub(super) struct InterPodAffinity {
    wanted_keys: Vec<String>,
    wanted: BTreeSet<Domain>,
    /// No placed pod matches the affinity terms, but the pod matches them itself.
    first_of_its_kind: bool,
    avoided: BTreeSet<Domain>,
    excluded_by_others: BTreeSet<Domain>,
}

impl InterPodAffinity {
    /// Evaluates all pods that have a node.
    pub(super) fn new(ledger: &Ledger, task: &Task) -> Self {
        let wanted = task.required_affinity();
        let mut found = Self {
            wanted_keys: wanted
                .iter()
                .map(|term| term.topology_key.clone())
                .collect(),
            ..Self::default()
        };
        let domain = |term: &PodAffinityTerm, node: &Node| -> Option<Domain> {
            let value = objects::labels(node).get(&term.topology_key)?;
            Some((term.topology_key.clone(), value.clone()))
        };
        if !wanted.is_empty() || !task.required_anti_affinity().is_empty() {
            for (name, other) in ledger.placed() {
                let Some((node, _)) = ledger.get(name) else {
                    continue;
                };
                if !wanted.is_empty()
                    && wanted
                        .iter()
                        .all(|term| term_matches(ledger, term, task, other))
                {
                    found
                        .wanted
                        .extend(wanted.iter().filter_map(|term| domain(term, node)));
                }
                for term in task.required_anti_affinity() {
                    if term_matches(ledger, term, task, other) {
                        found.avoided.extend(domain(term, node));
                    }
                }
            }
        }
        for (name, other) in ledger.with_anti_affinity() {
            let Some((node, _)) = ledger.get(name) else {
                continue;
            };
            for term in other.required_anti_affinity() {
                if term_matches(ledger, term, other, task) {
                    found.excluded_by_others.extend(domain(term, node));
                }
            }
        }
        found.first_of_its_kind = found.wanted.is_empty()
            && wanted
                .iter()
                .all(|term| term_matches(ledger, term, task, task));
        found
    }

    /// Checks whether a node fits the pod.
    pub(super) fn check(&self, node: &Node) -> Result<(), Rejection> {
        let labels = objects::labels(node);
        let is_at = |domains: &BTreeSet<Domain>| {
            domains
                .iter()
                .any(|(key, value)| labels.get(key) == Some(value))
        };
        let near_all = self.wanted_keys.iter().all(|key| {
            labels.get(key).is_some_and(|value| {
                self.first_of_its_kind || self.wanted.contains(&(key.clone(), value.clone()))
            })
        });
        if !near_all {
            return Err(
                Rejection::unresolvable("node(s) didn't match pod affinity rules")
                    .depends_on_other_pods(),
            );
        }
        if is_at(&self.avoided) {
            let reason = "node(s) didn't match pod anti-affinity rules";
            return Err(Rejection::resolvable(reason).depends_on_other_pods());
        }
        if is_at(&self.excluded_by_others) {
            let reason = "node(s) didn't satisfy existing pods anti-affinity rules";
            return Err(Rejection::resolvable(reason).depends_on_other_pods());
        }
        Ok(())
    }
}

/// Returns whether a term of `owner` matches `target`. Without namespaces and namespace selector it applies to the owner's namespace.
fn term_matches(ledger: &Ledger, term: &PodAffinityTerm, owner: &Task, target: &Task) -> bool {
    let namespace = &target.key.namespace;
    let listed = term.namespaces.as_deref().unwrap_or_default();
    let in_namespace = match &term.namespace_selector {
        None if listed.is_empty() => *namespace == owner.key.namespace,
        selector => {
            listed.contains(namespace)
                || selector.as_ref().is_some_and(|selector| {
                    selectors::selects(selector, &ledger.namespace_labels(namespace))
                })
        }
    };
    let selects = |selector| selectors::selects(selector, objects::labels(&*target.pod));
    in_namespace && term.label_selector.as_ref().is_some_and(selects)
}
