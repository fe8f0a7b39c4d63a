//! What a kubelet checks after its resource managers (kubelet-node.md 4): the node's amounts, and whether the pod belongs here.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{NodeSelectorRequirement, Pod};

use super::workload::{Amounts, Workload};

/// Checks in the kubelet's order; the reason and the text of the first failure.
pub fn check<'a>(
    pod: &Workload,
    allocatable: &Amounts,
    others: impl Iterator<Item = &'a Workload>,
    labels: &BTreeMap<String, String>,
) -> Result<(), (String, String)> {
    let mut used = Amounts::new();
    let mut count = 0;
    for other in others {
        count += 1;
        for (name, amount) in other.node_request() {
            *used.entry(name).or_default() += amount;
        }
    }
    let request = pod.node_request();
    let all = allocatable.get("pods").copied().unwrap_or_default();
    if count + 1 > all {
        return Err(out_of("pods", 1, count, all));
    }
    let first = ["cpu", "memory", "ephemeral-storage"];
    let names = first.into_iter().chain(
        request
            .keys()
            .map(String::as_str)
            .filter(|name| !first.contains(name)),
    );
    for name in names {
        let wanted = request.get(name).copied().unwrap_or_default();
        // A resource that the node does not have is no concern of the kubelet's.
        let Some(all) = allocatable.get(name).copied() else {
            continue;
        };
        let held = used.get(name).copied().unwrap_or_default();
        if wanted > 0 && wanted > all - held {
            return Err(out_of(name, wanted, held, all));
        }
    }
    if !is_selected(&pod.pod, labels) {
        let text =
            "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector";
        return Err(("NodeAffinity".to_owned(), text.to_owned()));
    }
    Ok(())
}

fn out_of(name: &str, requested: i64, used: i64, capacity: i64) -> (String, String) {
    let text = format!(
        "Node didn't have enough resource: {name}, requested: {requested}, used: {used}, capacity: {capacity}"
    );
    (format!("OutOf{name}"), text)
}

/// Whether the node's labels are what the pod's node selector and required affinity ask for.
fn is_selected(pod: &Pod, labels: &BTreeMap<String, String>) -> bool {
    let Some(spec) = &pod.spec else {
        return true;
    };
    let selected = spec
        .node_selector
        .iter()
        .flatten()
        .all(|(name, value)| labels.get(name) == Some(value));
    let required = spec
        .affinity
        .as_ref()
        .and_then(|affinity| affinity.node_affinity.as_ref())
        .and_then(|affinity| {
            affinity
                .required_during_scheduling_ignored_during_execution
                .as_ref()
        });
    let matched = required.is_none_or(|selector| {
        selector.node_selector_terms.iter().any(|term| {
            let expressions = term.match_expressions.as_deref().unwrap_or_default();
            // Terms by field name the node itself, where the pod already is.
            let by_field = term
                .match_fields
                .as_ref()
                .is_some_and(|fields| !fields.is_empty());
            (by_field || !expressions.is_empty())
                && expressions.iter().all(|rule| is_met(rule, labels))
        })
    });
    selected && matched
}

fn is_met(rule: &NodeSelectorRequirement, labels: &BTreeMap<String, String>) -> bool {
    let value = labels.get(&rule.key);
    let values = rule.values.as_deref().unwrap_or_default();
    let number = |text: Option<&String>| text.and_then(|text| text.parse::<i64>().ok());
    match rule.operator.as_str() {
        "In" => value.is_some_and(|value| values.contains(value)),
        "NotIn" => value.is_none_or(|value| !values.contains(value)),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => number(value)
            .zip(number(values.first()))
            .is_some_and(|(value, limit)| value > limit),
        "Lt" => number(value)
            .zip(number(values.first()))
            .is_some_and(|(value, limit)| value < limit),
        _ => false,
    }
}
