//! Tables of scales, which are the same for all kinds that can be scaled.

use serde_json::{Value, json};

use crate::registry::Resource;
use crate::registry::columns::{created_at, name};
use crate::values::words::age;

/// Kind of scales.
pub(super) const KIND: &str = "Scale";

/// Returns the columns. Those of custom kinds and of built-in ones are described in other words.
pub(super) fn definitions(resource: &Resource) -> Value {
    let is_custom = resource.custom.is_some();
    let (mut name, mut age) = (name(), created_at());
    age["name"] = json!("Age");
    if !is_custom {
        name["format"] = json!("");
        age["type"] = json!("string");
    }
    let number = |name: &str, description: &str| json!({"name": name, "type": "integer", "format": "", "description": description, "priority": 0});
    let (desired, available) = if is_custom {
        ("Number of desired replicas", "Number of actual replicas")
    } else {
        (
            "replicas is the desired number of instances for the scaled object.",
            "replicas is the actual number of observed instances of the scaled object.",
        )
    };
    json!([
        name,
        number("Desired", desired),
        number("Available", available),
        age
    ])
}

/// Returns the cells of a scale.
pub(super) fn cells(scale: &Value) -> Vec<Value> {
    let count = |part: &str| json!(scale[part]["replicas"].as_i64().unwrap_or_default());
    vec![
        scale["metadata"]["name"].clone(),
        count("spec"),
        count("status"),
        json!(age(&scale["metadata"]["creationTimestamp"])),
    ]
}
