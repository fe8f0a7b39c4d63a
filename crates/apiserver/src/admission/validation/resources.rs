//! Checks of requests and limits.

use serde_json::{Value, json};

use super::names;
use crate::failure::Cause;
use crate::values::quantity;

const STANDARD: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];

/// Returns whether a resource may be overcommitted.
fn is_overcommittable(name: &str) -> bool {
    STANDARD.contains(&name)
        || name.starts_with("kubernetes.io/")
        || name.contains(".kubernetes.io/")
}

fn is_huge(name: &str) -> bool {
    name.starts_with("hugepages-")
}

fn is_whole(name: &str) -> bool {
    !STANDARD.contains(&name) && !is_huge(name) && name.contains('/')
}

fn name(name: &str, path: &str, causes: &mut Vec<Cause>) {
    let mut refuse = |why: &str| causes.push(Cause::invalid(path, &json!(name), why));
    let wrong = names::key(name);
    if !wrong.is_empty() {
        for why in wrong {
            refuse(&why);
        }
        return;
    }
    let known = STANDARD.contains(&name) || is_huge(name);
    if !name.contains('/') && !known {
        refuse("must be a standard resource type or fully qualified");
        refuse("must be a standard resource for containers");
    } else if name.starts_with("requests.") {
        refuse("doesn't follow extended resource name standard");
    }
}

/// Checks the requests and limits of a container.
pub(super) fn check(resources: &Value, path: &str, causes: &mut Vec<Cause>) {
    let empty = serde_json::Map::new();
    let limits = resources["limits"].as_object().unwrap_or(&empty);
    let requests = resources["requests"].as_object().unwrap_or(&empty);
    let amounts = |what: &str, list: &serde_json::Map<String, Value>, causes: &mut Vec<Cause>| {
        for (resource, amount) in list {
            let path = format!("{path}.{what}[{resource}]");
            name(resource, &path, causes);
            let given = quantity::amount(amount);
            if given.is_negative() {
                causes.push(Cause::invalid(
                    path,
                    amount,
                    "must be greater than or equal to 0",
                ));
            } else if is_whole(resource) && !given.is_whole() {
                causes.push(Cause::invalid(path, amount, "must be an integer"));
            }
        }
    };
    amounts("limits", limits, causes);
    for (resource, amount) in requests {
        let at = format!("{path}.requests[{resource}]");
        name(resource, &at, causes);
        let given = quantity::amount(amount);
        if given.is_negative() {
            causes.push(Cause::invalid(
                at,
                amount,
                "must be greater than or equal to 0",
            ));
        } else if is_whole(resource) && !given.is_whole() {
            causes.push(Cause::invalid(at, amount, "must be an integer"));
        }
        match limits.get(resource) {
            Some(limit) => {
                let bound = quantity::amount(limit);
                let limit = limit.as_str().unwrap_or_default();
                if given != bound && !is_overcommittable(resource) {
                    causes.push(Cause::invalid(
                        format!("{path}.requests"),
                        amount,
                        &format!("must be equal to {resource} limit of {limit}"),
                    ));
                } else if given > bound {
                    causes.push(Cause::invalid(
                        format!("{path}.requests"),
                        amount,
                        &format!("must be less than or equal to {resource} limit of {limit}"),
                    ));
                }
            }
            None if !is_overcommittable(resource) => causes.push(Cause::required(
                format!("{path}.limits"),
                "Limit must be set for non overcommitable resources",
            )),
            None => {}
        }
    }
    let huge = limits
        .keys()
        .chain(requests.keys())
        .any(|name| is_huge(name));
    let plain = limits
        .keys()
        .chain(requests.keys())
        .any(|name| name == "cpu" || name == "memory");
    if huge && !plain {
        causes.push(Cause::forbidden(path, "HugePages require cpu or memory"));
    }
}
