//! Runtime classes: the overhead, node selectors and tolerations that they add to pods.

use serde_json::{Value, json};

use crate::admission::attempt::Attempt;
use crate::failure::Failure;
use crate::storage::State;
use crate::values::fields::members;

pub(super) fn admit(state: &State, attempt: &Attempt<'_>, pod: &mut Value) -> Result<(), Failure> {
    let spec = &mut pod["spec"];
    let Some(name) = spec["runtimeClassName"].as_str().map(str::to_owned) else {
        if !spec["overhead"].is_null() {
            return Err(attempt.forbidden(
                "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead",
            ));
        }
        return Ok(());
    };
    let Some(class) = state.get("runtimeclasses.node.k8s.io", "", &name) else {
        return Err(attempt.forbidden(&format!("pod rejected: RuntimeClass {name:?} not found")));
    };
    let overhead = class["overhead"]["podFixed"].clone();
    match (spec["overhead"].is_null(), overhead.is_null()) {
        (true, false) => spec["overhead"] = overhead,
        (false, true) => {
            return Err(attempt.forbidden(
                "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead",
            ));
        }
        (false, false) if spec["overhead"] != overhead => {
            return Err(attempt.forbidden(
                "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead",
            ));
        }
        _ => {}
    }
    let scheduling = &class["scheduling"];
    for (label, value) in members(&scheduling["nodeSelector"]) {
        let known = &spec["nodeSelector"][label];
        if !known.is_null() && known != value {
            return Err(attempt.forbidden(
                "pod rejected: conflict: runtimeClass.scheduling.nodeSelector and pod.spec.nodeSelector",
            ));
        }
        spec["nodeSelector"][label] = value.clone();
    }
    if let Some(more) = scheduling["tolerations"].as_array() {
        let mut list = spec["tolerations"].as_array().cloned().unwrap_or_default();
        for toleration in more {
            if !list.contains(toleration) {
                list.push(toleration.clone());
            }
        }
        spec["tolerations"] = json!(list);
    }
    Ok(())
}
