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
