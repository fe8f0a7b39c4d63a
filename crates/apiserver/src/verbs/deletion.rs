//! The marks of a deletion in objects: the time, the grace period, and finalizers that hold an object.

use serde_json::{Value, json};

use crate::values::times::now;

/// Returns whether finalizers hold an object that is being deleted.
pub(crate) fn has_finalizers(object: &Value) -> bool {
    let filled = |list: &Value| list.as_array().is_some_and(|list| !list.is_empty());
    filled(&object["metadata"]["finalizers"])
        || object["kind"] == "Namespace" && filled(&object["spec"]["finalizers"])
}

/// Counts a change of an object whose generation is counted.
pub(super) fn count(metadata: &mut Value) {
    if let Some(generation) = metadata["generation"].as_i64().filter(|number| *number > 0) {
        metadata["generation"] = json!(generation + 1);
    }
}

/// Marks an object without a grace period as being deleted.
pub(crate) fn mark_for_deletion(object: &mut Value, is_namespace: bool) {
    let metadata = &mut object["metadata"];
    let first = metadata["deletionTimestamp"].is_null();
    if first && metadata["deletionGracePeriodSeconds"].is_null() {
        count(metadata);
    }
    if first {
        metadata["deletionTimestamp"] = json!(now());
    }
    if !is_namespace {
        metadata["deletionGracePeriodSeconds"] = json!(0);
    }
}
