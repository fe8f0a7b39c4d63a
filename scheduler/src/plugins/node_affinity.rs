//! NodeAffinity: which nodes the node selector and the node affinity of a pod allow and prefer (scheduler.md 7.3, 7.5).

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::NodeAffinity;

use crate::plugins::plugin::Plugin;
use crate::plugins::rejection::Rejection;
use crate::state::node::Node;
use crate::state::pod::Pod;
use crate::state::selector;

/// Returns the nodes to which the required terms limit the search by name; `None` if any term allows other nodes (scheduler.md 7.3,
/// PreFilter).
pub fn named(pod: &Pod) -> Option<BTreeSet<&str>> {
    let affinity = pod.constraints.node_affinity.as_ref()?;
    let required = affinity
        .required_during_scheduling_ignored_during_execution
        .as_ref()?;
    let terms = &required.node_selector_terms;
    if terms.is_empty() {
        return None;
    }
    let mut named = BTreeSet::new();
    for term in terms {
        let lists = term
            .match_fields
            .iter()
            .flatten()
            .filter(|field| field.key == "metadata.name" && field.operator == "In")
            .map(|field| field.values.iter().flatten().map(String::as_str));
        let in_term = lists
            .map(Iterator::collect::<BTreeSet<&str>>)
            .reduce(|some, more| &some & &more)?;
        named.extend(in_term);
    }
    Some(named)
}

/// Rejects every node if [`named`] leaves none.
pub fn conflict(named: Option<&BTreeSet<&str>>) -> Option<Rejection> {
    named.is_some_and(BTreeSet::is_empty).then(|| Rejection {
        everywhere: true,
        ..Rejection::unresolvable(Plugin::NodeAffinity, "pod affinity terms conflict")
    })
}

/// Rejects nodes that [`named`] leaves out.
pub fn restrict_to_named(named: Option<&BTreeSet<&str>>, node: &Node) -> Result<(), Rejection> {
    match named {
        Some(named) if !named.contains(node.name.as_str()) => Err(Rejection::unresolvable(
            Plugin::NodeAffinity,
            "node(s) didn't satisfy plugin(s) [NodeAffinity]",
        )),
        _ => Ok(()),
    }
}

/// Returns whether the node selector and the required terms select the node.
pub fn selected(pod: &Pod, node: &Node) -> bool {
    let required = pod.constraints.node_affinity.as_ref().and_then(|affinity| {
        affinity
            .required_during_scheduling_ignored_during_execution
            .as_ref()
    });
    pod.constraints
        .node_selector
        .iter()
        .all(|(key, value)| node.labels.get(key) == Some(value))
        && required.is_none_or(|required| selector::any_term(&required.node_selector_terms, node))
}

/// Checks the affinity that the profile requires, then node selector and required terms of the pod.
pub fn filter(pod: &Pod, node: &Node, added: Option<&NodeAffinity>) -> Result<(), Rejection> {
    let added = added.and_then(|affinity| {
        affinity
            .required_during_scheduling_ignored_during_execution
            .as_ref()
    });
    if added.is_some_and(|added| !selector::any_term(&added.node_selector_terms, node)) {
        return Err(Rejection::unresolvable(
            Plugin::NodeAffinity,
            "node(s) didn't match scheduler-enforced node affinity",
        ));
    }
    if selected(pod, node) {
        return Ok(());
    }
    Err(Rejection::unresolvable(
        Plugin::NodeAffinity,
        "node(s) didn't match Pod's node affinity/selector",
    ))
}

/// Returns the sum of the weights of the preferred terms, of the pod and of the profile, that select the node.
pub fn raw_score(pod: &Pod, node: &Node, added: Option<&NodeAffinity>) -> i64 {
    let preferred = [pod.constraints.node_affinity.as_ref(), added]
        .into_iter()
        .flatten()
        .filter_map(|affinity| {
            affinity
                .preferred_during_scheduling_ignored_during_execution
                .as_deref()
        });
    preferred
        .flatten()
        .filter(|term| selector::term(&term.preference, node))
        .map(|term| i64::from(term.weight))
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{mk_node, mk_pod};
    use serde_json::json;

    fn reason(result: Result<(), Rejection>) -> Option<String> {
        result.err().map(|rejection| rejection.reasons.join(", "))
    }

    #[test]
    fn selector_and_required_terms_must_both_select() {
        let node = Node {
            labels: [("zone".to_owned(), "a".to_owned())].into(),
            ..mk_node("n", "cpu=4")
        };
        let mut pod = mk_pod("p", "cpu=1");
        pod.constraints.node_selector = [("zone".to_owned(), "a".to_owned())].into();
        assert!(selected(&pod, &node));
        pod.constraints.node_affinity = serde_json::from_value(json!({
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": ["a"]}]},
            ]},
        }))
        .expect("affinity");
        assert!(!selected(&pod, &node));
        assert_eq!(
            reason(filter(&pod, &node, None)).as_deref(),
            Some("node(s) didn't match Pod's node affinity/selector")
        );
    }

    #[test]
    fn what_the_profile_requires_of_nodes_comes_before_what_the_pod_does() {
        let node = Node {
            labels: [("zone".to_owned(), "a".to_owned())].into(),
            ..mk_node("n", "cpu=4")
        };
        let added = |zone: &str| {
            let term =
                json!({"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]});
            serde_json::from_value::<NodeAffinity>(json!({
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]},
                "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 7, "preference": term}],
            }))
            .expect("affinity")
        };
        let pod = mk_pod("p", "cpu=1");
        assert_eq!(filter(&pod, &node, Some(&added("a"))), Ok(()));
        assert_eq!(
            reason(filter(&pod, &node, Some(&added("b")))).as_deref(),
            Some("node(s) didn't match scheduler-enforced node affinity")
        );
        assert_eq!(
            ["a", "b"].map(|zone| raw_score(&pod, &node, Some(&added(zone)))),
            [7, 0]
        );
    }
}
