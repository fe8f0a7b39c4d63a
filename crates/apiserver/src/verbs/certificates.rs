//! Requests for certificates: who asks is noted by the server, and only `approval` and `status` change what becomes of them.

use serde_json::{Value, json};

use crate::access::identity::Identity;
use crate::failure::Cause;

use crate::registry::Resource;
use crate::values::fields::copy;
use crate::values::times::now;

fn is_request(resource: &Resource) -> bool {
    resource.storage == "certificatesigningrequests.certificates.k8s.io"
}

/// Notes who asks; a new request is not approved.
pub(super) fn prepare_create(resource: &Resource, identity: &Identity, object: &mut Value) {
    if !is_request(resource) {
        return;
    }
    let user = &identity.user;
    let Some(spec) = object["spec"].as_object_mut() else {
        return;
    };
    for (field, value) in [
        ("username", json!(user.name)),
        ("uid", json!(user.uid)),
        ("groups", json!(user.groups)),
        ("extra", json!(identity.extra)),
    ] {
        spec.remove(field);
        let is_empty = [json!(""), json!([]), json!({})].contains(&value);
        if !is_empty {
            spec.insert(field.to_owned(), value);
        }
    }
    object["status"] = json!({});
}

fn conditions(object: &Value) -> &[Value] {
    let list = object["status"]["conditions"].as_array();
    list.map_or(&[], Vec::as_slice)
}

fn conditions_mut(object: &mut Value) -> Option<&mut Vec<Value>> {
    // an index would make what is missing
    object
        .pointer_mut("/status/conditions")
        .and_then(Value::as_array_mut)
}

/// Returns the conditions of a type.
fn of_type<'a>(object: &'a Value, kind: &'a str) -> impl Iterator<Item = &'a Value> {
    conditions(object)
        .iter()
        .filter(move |held| held["type"] == kind)
}

/// Returns what a write says of the decision, before anything of it is dropped.
pub(super) fn given(resource: &Resource, object: &Value) -> Value {
    if is_request(resource) {
        json!({"status": object["status"]})
    } else {
        Value::Null
    }
}

/// Restores what a write through a subresource may not change. `given` is what [`given`] returned.
pub(super) fn prepare_update(
    resource: &Resource,
    subresource: &str,
    before: &Value,
    given: &Value,
    object: &mut Value,
) {
    if !is_request(resource) {
        return;
    }
    copy(before, object, "spec");
    match subresource {
        "approval" => {
            copy(before, object, "status");
            object["status"]["conditions"] = json!(conditions(given));
        }
        "status" => {
            for kind in ["Approved", "Denied"] {
                let held: Vec<Value> = of_type(before, kind).cloned().collect();
                if of_type(object, kind).count() == held.len() {
                    let list = conditions_mut(object);
                    let new = list.into_iter().flatten();
                    let new = new.filter(|new| new["type"] == kind);
                    for (new, held) in new.zip(held) {
                        *new = held;
                    }
                }
            }
        }
        _ => return,
    }
    let list = conditions_mut(object);
    for condition in list.into_iter().flatten() {
        set_times(before, condition);
    }
}

/// Sets the times of a condition that has none.
fn set_times(before: &Value, condition: &mut Value) {
    if condition["lastUpdateTime"].is_null() {
        condition["lastUpdateTime"] = json!(now());
    }
    if condition["lastTransitionTime"].is_null() {
        let same = conditions(before).iter().find(|held| {
            held["type"] == condition["type"]
                && held["status"] == condition["status"]
                && !held["lastTransitionTime"].is_null()
        });
        let known = same.map(|held| held["lastTransitionTime"].clone());
        condition["lastTransitionTime"] = known.unwrap_or_else(|| json!(now()));
    }
}

/// Checks a change: decisions are final, and only `approval` makes them.
pub(super) fn check(
    resource: &Resource,
    subresource: &str,
    before: &Value,
    object: &Value,
) -> Vec<Cause> {
    let mut causes = Vec::new();
    if !is_request(resource) {
        return causes;
    }
    let at = "status.conditions";
    let count = |object: &Value, kind: &str| of_type(object, kind).count();
    let both = |object: &Value| count(object, "Approved") > 0 && count(object, "Denied") > 0;
    if both(object) && !both(before) {
        let later = conditions(object).iter().rev();
        let mut later = later.filter(|held| held["type"] == "Approved" || held["type"] == "Denied");
        let kind = later
            .next()
            .map_or(Value::Null, |held| held["type"].clone());
        let why = "Approved and Denied conditions are mutually exclusive";
        causes.push(Cause::invalid(at, &kind, why));
    }
    for (place, condition) in conditions(object).iter().enumerate() {
        let kind = &condition["type"];
        let earlier = &conditions(object)[..place];
        if earlier.iter().any(|held| held["type"] == *kind) {
            causes.push(Cause::duplicate(format!("{at}[{place}].type"), kind));
        }
    }
    for kind in ["Approved", "Denied", "Failed"] {
        let (old, new) = (count(before, kind), count(object, kind));
        let what = if new < old {
            "remove"
        } else if new > old && subresource != "approval" && kind != "Failed" {
            "add"
        } else {
            continue;
        };
        let why = format!("updates may not {what} a condition of type {kind:?}");
        causes.push(Cause::forbidden(at, &why));
    }
    let (old, new) = (
        &before["status"]["certificate"],
        &object["status"]["certificate"],
    );
    if old != new {
        let at = "status.certificate";
        if subresource != "status" {
            let why = "updates may not set certificate content";
            causes.push(Cause::forbidden(at, why));
        } else if !old.is_null() {
            let why = "updates may not modify existing certificate content";
            causes.push(Cause::forbidden(at, why));
        }
    }
    causes
}
