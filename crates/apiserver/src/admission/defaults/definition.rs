//! Defaults of definitions of custom resources.

use serde_json::{Value, json};

/// Fills in the defaults of a definition.
pub(super) fn apply(definition: &mut Value) {
    let spec = &mut definition["spec"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let kind = text(&spec["names"]["kind"]);
    if !kind.is_empty() {
        let names = &mut spec["names"];
        if text(&names["singular"]).is_empty() {
            names["singular"] = json!(kind.to_lowercase());
        }
        if text(&names["listKind"]).is_empty() {
            names["listKind"] = json!(format!("{kind}List"));
        }
    }
    if spec["conversion"].is_null() {
        spec["conversion"] = json!({"strategy": "None"});
    }
    if let Some(service) = spec
        .pointer_mut("/conversion/webhook/clientConfig/service")
        .and_then(Value::as_object_mut)
    {
        service.entry("port").or_insert(json!(443));
    }
}
