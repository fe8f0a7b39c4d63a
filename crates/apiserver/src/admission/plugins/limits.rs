//! Limit ranges: default amounts for containers that set none, and bounds.

use api::quantity::Amount;
use serde_json::{Value, json};

use crate::admission::attempt::Attempt;
use crate::failure::Failure;
use crate::storage::State;
use crate::values::fields::{elements, members};
use crate::values::pods;
use crate::values::quantity;

const ANNOTATION: &str = "kubernetes.io/limit-ranger";

fn ranges<'a>(state: &'a State, namespace: &'a str) -> impl Iterator<Item = &'a Value> {
    state
        .list("limitranges", namespace)
        .flat_map(|(_, range)| elements(&range["spec"]["limits"]))
}

/// Fills in the default amounts of containers, and records them in an annotation.
pub(super) fn apply(state: &State, attempt: &Attempt<'_>, pod: &mut Value) {
    let mut requests = json!({});
    let mut limits = json!({});
    for item in ranges(state, attempt.namespace).filter(|item| item["type"] == "Container") {
        for (from, to) in [("defaultRequest", &mut requests), ("default", &mut limits)] {
            for (name, amount) in members(&item[from]) {
                to[name] = amount.clone();
            }
        }
    }
    let mut notes = Vec::new();
    for (list, word) in [
        ("containers", "container"),
        ("initContainers", "init container"),
    ] {
        let Some(list) = pod["spec"].get_mut(list).and_then(Value::as_array_mut) else {
            continue;
        };
        for container in list {
            let name = container["name"].as_str().unwrap_or_default().to_owned();
            for (kind, singular, amounts) in [
                ("requests", "request", &requests),
                ("limits", "limit", &limits),
            ] {
                let mut set = Vec::new();
                for (resource, amount) in members(amounts) {
                    let known = &mut container["resources"][kind][resource];
                    if known.is_null() {
                        *known = amount.clone();
                        set.push(resource.as_str());
                    }
                }
                if !set.is_empty() {
                    notes.push(format!("{} {singular} for {word} {name}", set.join(", ")));
                }
            }
            // indexing by name above leaves nulls where nothing was filled in
            if let Some(resources) = container["resources"].as_object_mut() {
                resources.retain(|_, amounts| !amounts.is_null());
            }
        }
    }
    if !notes.is_empty() {
        pod["metadata"]["annotations"][ANNOTATION] =
            json!(format!("LimitRanger plugin set: {}", notes.join("; ")));
    }
}

/// Refuses amounts outside the bounds.
pub(super) fn check(state: &State, attempt: &Attempt<'_>, pod: &Value) -> Result<(), Failure> {
    let mut problems = Vec::new();
    for item in ranges(state, attempt.namespace) {
        let kind = item["type"].as_str().unwrap_or_default();
        match kind {
            "Container" => {
                for container in pods::containers(&pod["spec"]) {
                    let of = |what: &str, name: &str| {
                        container["resources"][what].get(name).map(quantity::amount)
                    };
                    bounds(item, kind, &of, &mut problems);
                }
            }
            "Pod" => {
                let requests = pods::total(&pod["spec"], "requests");
                let limits = pods::total(&pod["spec"], "limits");
                let of = |what: &str, name: &str| {
                    let all = if what == "limits" { &limits } else { &requests };
                    all.get(name).copied()
                };
                bounds(item, kind, &of, &mut problems);
            }
            _ => {}
        }
    }
    match problems.as_slice() {
        [] => Ok(()),
        [one] => Err(attempt.forbidden(one)),
        many => Err(attempt.forbidden(&format!("[{}]", many.join(", ")))),
    }
}

fn bounds(
    item: &Value,
    kind: &str,
    of: &dyn Fn(&str, &str) -> Option<Amount>,
    problems: &mut Vec<String>,
) {
    for (name, bound) in members(&item["min"]) {
        let bound = quantity::amount(bound);
        match (of("requests", name), of("limits", name)) {
            (None, _) => problems.push(format!(
                "minimum {name} usage per {kind} is {bound}.  No request is specified"
            )),
            (Some(request), _) if request < bound => problems.push(format!(
                "minimum {name} usage per {kind} is {bound}, but request is {request}"
            )),
            (_, Some(limit)) if limit < bound => problems.push(format!(
                "minimum {name} usage per {kind} is {bound}, but limit is {limit}"
            )),
            _ => {}
        }
    }
    for (name, bound) in members(&item["max"]) {
        let bound = quantity::amount(bound);
        match (of("requests", name), of("limits", name)) {
            (_, None) => problems.push(format!(
                "maximum {name} usage per {kind} is {bound}.  No limit is specified"
            )),
            (_, Some(limit)) if limit > bound => problems.push(format!(
                "maximum {name} usage per {kind} is {bound}, but limit is {limit}"
            )),
            (Some(request), _) if request > bound => problems.push(format!(
                "maximum {name} usage per {kind} is {bound}, but request is {request}"
            )),
            _ => {}
        }
    }
}
