//! Priority: sets a pod's priority and preemption policy from its class.

use serde_json::{Value, json};

use crate::admission::attempt::Attempt;
use crate::failure::Failure;
use crate::storage::State;

/// Storage name of the classes.
const CLASSES: &str = "priorityclasses.scheduling.k8s.io";

/// Sets the priority of a new pod, and keeps that of a known one.
pub(super) fn admit(state: &State, attempt: &Attempt<'_>, pod: &mut Value) -> Result<(), Failure> {
    if let Some(before) = attempt.before {
        for field in ["priority", "preemptionPolicy"] {
            if pod["spec"][field].is_null() && !before["spec"][field].is_null() {
                pod["spec"][field] = before["spec"][field].clone();
            }
        }
        return Ok(());
    }
    let named = pod["spec"]["priorityClassName"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    let class = if named.is_empty() {
        // of several default classes, the one with the lowest value counts
        state
            .list(CLASSES, "")
            .map(|(_, class)| class.value())
            .filter(|class| class["globalDefault"] == true)
            .min_by_key(|class| class["value"].as_i64())
    } else {
        let class = state.get(CLASSES, "", &named).map(|class| class.value());
        Some(class.ok_or_else(|| {
            attempt.forbidden(&format!("no PriorityClass with name {named} was found"))
        })?)
    };
    let value = class
        .and_then(|class| class["value"].as_i64())
        .unwrap_or_default();
    let policy = class
        .and_then(|class| class["preemptionPolicy"].as_str())
        .unwrap_or("PreemptLowerPriority");
    let spec = &mut pod["spec"];
    if let Some(given) = spec["priority"].as_i64()
        && given != value
    {
        return Err(attempt.forbidden(&format!(
            "the integer value of priority ({given}) must not be provided in pod spec; priority admission controller computed {value} from the given PriorityClass name"
        )));
    }
    if let Some(given) = spec["preemptionPolicy"].as_str()
        && given != policy
    {
        return Err(attempt.forbidden(&format!(
            "the string value of PreemptionPolicy ({given}) must not be provided in pod spec; priority admission controller computed {policy} from the given PriorityClass name"
        )));
    }
    if let Some(class) = class {
        spec["priorityClassName"] = class["metadata"]["name"].clone();
    }
    spec["priority"] = json!(value);
    spec["preemptionPolicy"] = json!(policy);
    Ok(())
}
