//! Schemas of custom resources in the second version of OpenAPI, which can say less than the third, and of which kubectl reads less still.

use serde_json::{Map, Value, json};

/// Keywords that the second version does not have.
const NEWER: [&str; 5] = ["allOf", "anyOf", "oneOf", "not", "nullable"];
const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";

/// Returns the schema of a custom resource without what the second version cannot say. Where all fields are allowed it says nothing of any, because
/// clients would refuse those that it does not name.
pub(super) fn root(schema: &Value) -> Value {
    if schema[PRESERVE] == true {
        json!({"type": "object"})
    } else {
        reduced(schema)
    }
}

fn reduced(schema: &Value) -> Value {
    let Value::Object(keywords) = schema else {
        return schema.clone();
    };
    let is_nullable = |one: &Value| one["nullable"] == true;
    let mut out = Map::new();
    for (keyword, value) in keywords {
        if NEWER.contains(&keyword.as_str()) {
            continue;
        }
        let value = match (keyword.as_str(), value) {
            ("properties", Value::Object(fields)) => {
                let fields = fields.iter();
                fields
                    .map(|(name, field)| (name.clone(), reduced(field)))
                    .collect()
            }
            ("items" | "additionalProperties", value) => reduced(value),
            ("required", Value::Array(names)) => {
                let may_be_null = |name: &Value| {
                    let name = name.as_str().unwrap_or_default();
                    is_nullable(&schema["properties"][name])
                };
                let needed: Vec<Value> = names
                    .iter()
                    .filter(|name| !may_be_null(name))
                    .cloned()
                    .collect();
                if needed.is_empty() || is_nullable(&schema["additionalProperties"]) {
                    continue;
                }
                json!(needed)
            }
            (_, value) => value.clone(),
        };
        out.insert(keyword.clone(), value);
    }
    let is_open = schema[PRESERVE] == true;
    if is_open || is_nullable(schema) {
        out.remove("items");
        out.remove("properties");
    }
    let is_bare_list = out.get("type") == Some(&json!("array")) && !out.contains_key("items");
    let is_open_object = is_open && schema["type"] == "object";
    if is_nullable(schema) || is_bare_list || is_open_object {
        out.remove("type");
    }
    Value::Object(out)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::open_root(json!({"type": "object", PRESERVE: true, "properties": {"a": {}}}), json!({"type": "object"}))]
    #[case::open_field(
        json!({"type": "object", "properties": {"a": {"type": "object", PRESERVE: true, "properties": {"b": {}}}}}),
        json!({"type": "object", "properties": {"a": {PRESERVE: true}}})
    )]
    #[case::nullable(
        json!({"type": "object", "required": ["a", "b"], "properties": {
            "a": {"type": "array", "nullable": true, "items": {"type": "string"}}, "b": {"type": "string"}}}),
        json!({"type": "object", "required": ["b"], "properties": {"a": {}, "b": {"type": "string"}}})
    )]
    #[case::junctors(
        json!({"type": "object", "anyOf": [{"required": ["a"]}], "properties": {"anyOf": {"type": "string"}}}),
        json!({"type": "object", "properties": {"anyOf": {"type": "string"}}})
    )]
    #[case::list_of_open_objects(
        json!({"type": "array", "items": {"type": "object", PRESERVE: true}}),
        json!({"type": "array", "items": {PRESERVE: true}})
    )]
    fn what_the_second_version_cannot_say_is_left_out(
        #[case] schema: Value,
        #[case] expected: Value,
    ) {
        assert_eq!(root(&schema), expected);
    }
}
