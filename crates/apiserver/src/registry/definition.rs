//! Parts of a definition of custom resources: lists of texts, and conditions.

use serde_json::{Value, json};

use crate::values::fields::elements;

/// Returns the texts in a list.
pub(crate) fn texts(list: &Value) -> impl Iterator<Item = &str> {
    elements(list).filter_map(Value::as_str)
}

/// Returns a condition of a definition.
pub(crate) fn condition<'a>(definition: &'a Value, kind: &str) -> Option<&'a Value> {
    let mut all = elements(&definition["status"]["conditions"]);
    all.find(|condition| condition["type"] == kind)
}

/// Returns whether a condition exists and is true.
pub(crate) fn is_true(definition: &Value, kind: &str) -> bool {
    condition(definition, kind).is_some_and(|condition| condition["status"] == "True")
}

/// Sets a condition. Its transition time changes only with its status.
pub(crate) fn set_condition(
    definition: &mut Value,
    kind: &str,
    status: &str,
    reason: &str,
    message: &str,
    now: &str,
) {
    let known = condition(definition, kind);
    let since = known
        .filter(|known| known["status"] == status)
        .map_or_else(|| json!(now), |known| known["lastTransitionTime"].clone());
    let new = json!({"type": kind, "status": status, "lastTransitionTime": since, "reason": reason, "message": message});
    let conditions = &mut definition["status"]["conditions"];
    if !conditions.is_array() {
        *conditions = json!([]);
    }
    let Some(list) = conditions.as_array_mut() else {
        return;
    };
    match list.iter_mut().find(|known| known["type"] == kind) {
        Some(known) => *known = new,
        None => list.push(new),
    }
}

/// Returns the texts in a list, as owned texts.
pub(crate) fn strings(value: &Value) -> Vec<String> {
    let list = elements(value);
    list.filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Returns a text; empty for anything else.
pub(crate) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
