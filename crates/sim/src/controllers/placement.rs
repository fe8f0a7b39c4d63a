//! Decides which nodes a pod may run on: node selectors, node affinity and taints.

use k8s_openapi::api::core::v1::{
    Node, NodeSelectorRequirement, NodeSelectorTerm, PodSpec, Taint, Toleration,
};

use super::{objects, selectors};

/// Effect that keeps new pods away.
pub(crate) const NO_SCHEDULE: &str = "NoSchedule";
/// Effect that also evicts running pods.
pub(crate) const NO_EXECUTE: &str = "NoExecute";
/// Effect that lowers the score of a node.
pub(crate) const PREFER_NO_SCHEDULE: &str = "PreferNoSchedule";

/// Returns whether a toleration covers a taint. An empty key with `Exists` covers all taints; no effect covers every effect.
pub(crate) fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let effect = toleration.effect.as_deref().unwrap_or_default();
    let key = toleration.key.as_deref().unwrap_or_default();
    if !(effect.is_empty() || effect == taint.effect) || !(key.is_empty() || key == taint.key) {
        return false;
    }
    match toleration.operator.as_deref().unwrap_or_default() {
        "Exists" => true,
        "" | "Equal" => {
            !key.is_empty()
                && toleration.value.as_deref().unwrap_or_default()
                    == taint.value.as_deref().unwrap_or_default()
        }
        _ => false,
    }
}

/// Returns whether any of the tolerations covers a taint.
pub(crate) fn tolerated(tolerations: &[Toleration], taint: &Taint) -> bool {
    tolerations
        .iter()
        .any(|toleration| tolerates(toleration, taint))
}

/// Returns the taints of a node that have an effect.
pub(crate) fn taints<'a>(node: &'a Node, effect: &'a str) -> impl Iterator<Item = &'a Taint> {
    node.spec
        .iter()
        .flat_map(|spec| spec.taints.iter().flatten())
        .filter(move |taint| taint.effect == effect)
}

/// Returns whether a term selects a node. A term without requirements selects nothing.
pub(crate) fn term_selects(term: &NodeSelectorTerm, node: &Node) -> bool {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    let holds = |requirement: &NodeSelectorRequirement, value: Option<&String>| {
        let values = requirement.values.as_deref().unwrap_or_default();
        selectors::holds(&requirement.operator, values, value)
    };
    !(expressions.is_empty() && fields.is_empty())
        && expressions
            .iter()
            .all(|item| holds(item, objects::labels(node).get(&item.key)))
        && fields
            .iter()
            .all(|item| item.key == "metadata.name" && holds(item, node.metadata.name.as_ref()))
}

/// Returns whether the node selector and the required node affinity of a pod select a node.
pub(crate) fn selected(spec: &PodSpec, node: &Node) -> bool {
    let required = spec
        .affinity
        .as_ref()
        .and_then(|affinity| affinity.node_affinity.as_ref())
        .and_then(|affinity| {
            affinity
                .required_during_scheduling_ignored_during_execution
                .as_ref()
        });
    spec.node_selector
        .iter()
        .flatten()
        .all(|(key, value)| objects::labels(node).get(key) == Some(value))
        && required.is_none_or(|required| {
            required
                .node_selector_terms
                .iter()
                .any(|term| term_selects(term, node))
        })
}
