//! Structural schemas as the API server wants them: no references, no `nullable`, Kubernetes' own types spelled out.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaProps;
use schemars::generate::SchemaSettings;
use schemars::transform::AddNullable;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Map, Value, json};

/// What a quantity may look like, as a string; integers are accepted beside it.
const QUANTITY_PATTERN: &str = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";

/// Schema of a Rust type as plain JSON.
pub(crate) fn of<T: JsonSchema>() -> Value {
    let generator = SchemaSettings::openapi3()
        .with(|settings| {
            settings.inline_subschemas = true;
            settings.meta_schema = None;
        })
        .with_transform(AddNullable::default())
        .with_transform(kube::core::schema::StructuralSchemaRewriter)
        .with_transform(kube::core::schema::OptionalEnum)
        .with_transform(kube::core::schema::OptionalIntOrString)
        .into_generator();
    let mut schema = Value::from(generator.into_root_schema_for::<T>());
    tidy(&mut schema);
    if let Some(map) = schema.as_object_mut() {
        map.remove("title");
    }
    schema
}

/// Removes what only says that `null` stands for an absent key: the API server refuses null there, as it does for the original's schemas.
fn tidy(schema: &mut Value) {
    match schema {
        Value::Object(map) => {
            if map.get("nullable") == Some(&Value::Bool(true)) {
                map.remove("nullable");
                if let Some(Value::Array(values)) = map.get_mut("enum") {
                    values.retain(|value| !value.is_null());
                }
            }
            // kube's rewriter empties the branches, and the API server then no longer knows the pattern of Kubernetes' own types
            if map.contains_key("x-kubernetes-int-or-string") && map.contains_key("anyOf") {
                map.insert(
                    "anyOf".into(),
                    json!([{"type": "integer"}, {"type": "string"}]),
                );
                return;
            }
            // schemars knows the width of Rust's integers, Kubernetes only its own two
            if let Some(Value::String(format)) = map.get("format")
                && !matches!(format.as_str(), "int32" | "int64" | "date-time")
            {
                map.remove("format");
            }
            map.values_mut().for_each(tidy);
        }
        Value::Array(items) => items.iter_mut().for_each(tidy),
        _ => {}
    }
}

/// Schema of a whole object: type and object metadata beside the given properties.
///
/// # Panics
/// Never for the types of this crate: their schemas are plain objects, which a test walks.
pub(crate) fn root(
    description: &str,
    properties: Map<String, Value>,
    required: &[&str],
    rules: &[(&str, &str)],
) -> JSONSchemaProps {
    let mut all = Map::new();
    all.insert("apiVersion".into(), json!({"type": "string"}));
    all.insert("kind".into(), json!({"type": "string"}));
    all.insert("metadata".into(), json!({"type": "object"}));
    all.extend(properties);
    let mut schema = json!({"type": "object", "description": description, "properties": all});
    if let Some(map) = schema.as_object_mut() {
        if !required.is_empty() {
            map.insert("required".into(), json!(required));
        }
        if !rules.is_empty() {
            let rules: Vec<Value> = rules
                .iter()
                .map(|(rule, message)| json!({"rule": rule, "message": message}))
                .collect();
            map.insert("x-kubernetes-validations".into(), Value::Array(rules));
        }
    }
    serde_json::from_value(schema)
        .expect("a schema that was built from literals and derives is well formed")
}

/// `metav1.Condition` list with the limits that Kubernetes sets on it.
pub(crate) fn conditions(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "items": {
            "type": "object",
            "required": ["lastTransitionTime", "message", "reason", "status", "type"],
            "properties": {
                "lastTransitionTime": {"type": "string", "format": "date-time"},
                "message": {"type": "string", "maxLength": 32768},
                "observedGeneration": {"type": "integer", "format": "int64", "minimum": 0},
                "reason": {
                    "type": "string", "minLength": 1, "maxLength": 1024,
                    "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
                },
                "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
                "type": {
                    "type": "string", "maxLength": 316,
                    "pattern": r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$",
                },
            },
        },
    })
}

/// `metav1.LabelSelector`.
pub(crate) fn label_selector(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "x-kubernetes-map-type": "atomic",
        "properties": {
            "matchExpressions": {
                "type": "array",
                "x-kubernetes-list-type": "atomic",
                "items": {
                    "type": "object",
                    "required": ["key", "operator"],
                    "properties": {
                        "key": {"type": "string"},
                        "operator": {"type": "string"},
                        "values": {"type": "array", "x-kubernetes-list-type": "atomic", "items": {"type": "string"}},
                    },
                },
            },
            "matchLabels": {"type": "object", "additionalProperties": {"type": "string"}},
        },
    })
}

/// `core/v1` tolerations; operator and effect stay free strings (operator.md 1.1).
pub(crate) fn tolerations(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "items": {
            "type": "object",
            "properties": {
                "effect": {"type": "string"},
                "key": {"type": "string"},
                "operator": {"type": "string"},
                "tolerationSeconds": {"type": "integer", "format": "int64"},
                "value": {"type": "string"},
            },
        },
    })
}

/// A quantity: integer or string of the known pattern.
pub(crate) fn quantity(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "pattern": QUANTITY_PATTERN,
        "x-kubernetes-int-or-string": true,
    })
}

/// Conditions of machine config pools, which are not `metav1.Condition`s.
pub(crate) fn pool_conditions(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "items": {
            "type": "object",
            "properties": {
                "lastTransitionTime": {"type": "string", "format": "date-time"},
                "message": {"type": "string"},
                "reason": {"type": "string"},
                "status": {"type": "string"},
                "type": {"type": "string"},
            },
        },
    })
}
