//! Checks of requests and limits.

use api::quantity::Amount;
use serde_json::{Value, json};

use super::checks::not_negative_amount;
use super::names;
use crate::failure::Cause;
use crate::values::quantity;

const STANDARD: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];
/// Resources that are counted in whole numbers.
const WHOLE: [&str; 9] = [
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "services.nodeports",
    "services.loadbalancers",
];
/// Amounts of compute resources that a quota can limit.
const COMPUTE: [&str; 9] = [
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
];

/// Returns whether a name without a prefix is one that a quota can limit.
pub(super) fn is_standard_for_quota(name: &str) -> bool {
    WHOLE.contains(&name)
        || COMPUTE.contains(&name)
        || name == "requests.storage"
        || name.starts_with("hugepages-")
        || name.starts_with("requests.hugepages-")
}

/// Returns whether a name without a prefix is known.
fn is_standard(name: &str) -> bool {
    is_standard_for_quota(name) || name == "storage"
}

/// Checks the name of any resource.
pub(super) fn any_name(name: &str, path: &str, causes: &mut Vec<Cause>) {
    let mut refuse = |why: &str| causes.push(Cause::invalid(path, &json!(name), why));
    let found = names::key(name);
    if !found.is_empty() {
        for why in &found {
            refuse(why);
        }
    } else if !name.contains('/') && !is_standard(name) {
        refuse("must be a standard resource type or fully qualified");
    }
}

/// Returns whether a name is one of Kubernetes' own.
fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

/// Returns whether a resource may be overcommitted.
pub(super) fn is_overcommittable(name: &str) -> bool {
    is_native(name) && !is_huge(name)
}

fn is_huge(name: &str) -> bool {
    name.starts_with("hugepages-")
}

/// Returns whether a name is that of an extended resource.
fn is_extended(name: &str) -> bool {
    !is_native(name)
        && !name.starts_with("requests.")
        && names::key(&format!("requests.{name}")).is_empty()
}

/// Checks the name of a resource of a container.
pub(super) fn name(name: &str, path: &str, causes: &mut Vec<Cause>) {
    let mut refuse = |why: &str| causes.push(Cause::invalid(path, &json!(name), why));
    let wrong = names::key(name);
    let standard = STANDARD.contains(&name) || is_huge(name);
    let known = standard || is_standard(name);
    if wrong.is_empty() && !name.contains('/') && !known {
        refuse("must be a standard resource type or fully qualified");
    }
    for why in &wrong {
        refuse(why);
    }
    if name.matches('/').count() == 0 {
        if !standard {
            refuse("must be a standard resource for containers");
        }
    } else if !is_native(name) && !is_extended(name) {
        refuse("doesn't follow extended resource name standard");
    }
}

/// Checks the name of a resource of a whole pod.
pub(super) fn name_for_pod(name: &str, path: &str, causes: &mut Vec<Cause>) {
    let before = causes.len();
    any_name(name, path, causes);
    if causes.len() == before && name != "cpu" && name != "memory" && !is_huge(name) {
        let allowed = ["cpu", "hugepages-", "memory"].map(str::to_owned);
        causes.push(Cause::unsupported(path, &json!(name), &allowed));
    }
}

/// Refuses a negative amount, and a fraction of what is counted in whole numbers.
pub(super) fn in_units(resource: &str, given: &Value, path: &str, causes: &mut Vec<Cause>) {
    not_negative_amount(given, path, causes);
    let is_whole = WHOLE.contains(&resource) || is_extended(resource);
    if is_whole && !quantity::amount(given).is_whole() {
        causes.push(Cause::invalid(path, given, "must be an integer"));
    }
}

/// Checks an amount of a resource of a container or pod.
fn amount(resource: &str, given: &Value, path: &str, causes: &mut Vec<Cause>) {
    in_units(resource, given, path, causes);
    if let Some(size) = resource.strip_prefix("hugepages-")
        && !is_multiple(quantity::amount(given), size)
    {
        let why = format!(
            "{} is not positive integer multiple of {resource}",
            given.as_str().unwrap_or_default()
        );
        causes.push(Cause::invalid(path, given, &why));
    }
}

/// Returns whether an amount is that of whole pages of a size.
fn is_multiple(amount: Amount, size: &str) -> bool {
    let size: Option<Amount> = size.parse().ok();
    size.is_some_and(|size| {
        !size.is_zero()
            && !size.is_negative()
            && size.is_whole()
            && amount.units() % size.units() == 0
    })
}

/// Checks requests and limits.
pub(super) fn check(
    resources: &Value,
    name: fn(&str, &str, &mut Vec<Cause>),
    path: &str,
    causes: &mut Vec<Cause>,
) {
    let empty = serde_json::Map::new();
    let limits = resources["limits"].as_object().unwrap_or(&empty);
    let requests = resources["requests"].as_object().unwrap_or(&empty);
    for (resource, given) in limits {
        let at = format!("{path}.limits[{resource}]");
        name(resource, &at, causes);
        amount(resource, given, &at, causes);
    }
    for (resource, given) in requests {
        let at = format!("{path}.requests[{resource}]");
        name(resource, &at, causes);
        amount(resource, given, &at, causes);
        let (amount, given) = (given, quantity::amount(given));
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
