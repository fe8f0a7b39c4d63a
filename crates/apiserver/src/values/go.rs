//! Values as Go prints them in its messages.

use serde_json::{Map, Value};

/// Returns a map as Go prints it: `map[a:1 b:2]`.
pub(crate) fn go_map(map: &Map<String, Value>) -> String {
    let mut fields: Vec<(&String, &Value)> = map.iter().collect();
    fields.sort_by_key(|(name, _)| *name);
    let fields: Vec<String> = fields
        .into_iter()
        .map(|(name, value)| format!("{name}:{}", go_text(value)))
        .collect();
    format!("map[{}]", fields.join(" "))
}

/// Returns a value as Go prints it.
pub(crate) fn go_text(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(list) => {
            let list: Vec<String> = list.iter().map(go_text).collect();
            format!("[{}]", list.join(" "))
        }
        Value::Object(map) => go_map(map),
        other => other.to_string(),
    }
}

/// Go's name for the type of an object's first fields.
const TYPE_META: &str = r#"struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;
/// Returns the type of a value, as Go's decoder names it.
pub(crate) fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Returns the decoder's message about a value that is no object.
pub(crate) fn not_an_object(value: &Value) -> String {
    format!(
        "couldn't get version/kind; json parse error: json: cannot unmarshal {} into Go value of type {TYPE_META}",
        go_type(value)
    )
}

/// Returns the decoder's message about an unknown kind.
pub(crate) fn not_registered(api_version: &str, kind: &str) -> String {
    format!(
        "no kind {kind:?} is registered for version {api_version:?} in scheme \"pkg/runtime/scheme.go:111\""
    )
}
