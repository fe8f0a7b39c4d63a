//! Structural schemas as the API server requires them: no references, the types of Kubernetes written out, and `nullable` only where the
//! original has it.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaProps;
use schemars::generate::SchemaSettings;
use schemars::transform::AddNullable;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Map, Value, json};

/// Pattern of a quantity that is a string. Integers are accepted, too.
const QUANTITY_PATTERN: &str = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";

/// Returns the schema of a Rust type as plain JSON.
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

/// Value of `nullable` in the schemas below where null is meant to be accepted: [`tidy`] makes it `true`.
const MEANT: &str = "meant";

/// Removes `nullable` and null enum values where they come from an `Option`. The original's schemas do not have them there, so the API server
/// drops a null instead of storing it.
fn tidy(schema: &mut Value) {
    match schema {
        Value::Object(map) => {
            if map.get("nullable") == Some(&json!(MEANT)) {
                map.insert("nullable".into(), json!(true));
            } else if map.get("nullable") == Some(&Value::Bool(true)) {
                map.remove("nullable");
                if let Some(Value::Array(values)) = map.get_mut("enum") {
                    values.retain(|value| !value.is_null());
                }
            }
            // kube's rewriter empties the branches; the API server then no longer recognizes the pattern of Kubernetes' own types
            if map.contains_key("x-kubernetes-int-or-string") && map.contains_key("anyOf") {
                map.insert(
                    "anyOf".into(),
                    json!([{"type": "integer"}, {"type": "string"}]),
                );
                return;
            }
            // schemars emits the width of every Rust integer; Kubernetes knows only int32 and int64
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

/// Returns the schema of a whole object: type and object metadata, and the given properties.
///
/// # Panics
/// Never for the types of this crate: their schemas are plain objects, and a test builds all of them.
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

/// Returns the schema of a `metav1.Condition` list with the limits of Kubernetes.
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

/// Returns the schema of a `metav1.LabelSelector`.
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

/// Returns the schema of `core/v1` tolerations; operator and effect are free strings (operator.md 1.1).
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

/// Returns the schema of a quantity: an integer, or a string with the pattern of quantities.
pub(crate) fn quantity(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "pattern": QUANTITY_PATTERN,
        "x-kubernetes-int-or-string": true,
    })
}

/// Returns the schema of the conditions of machine config pools, which are not `metav1.Condition`s: their time may be null (operator.md 1.1).
pub(crate) fn pool_conditions(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "items": {
            "type": "object",
            "properties": {
                "lastTransitionTime": {"type": "string", "format": "date-time", "nullable": MEANT},
                "message": {"type": "string"},
                "reason": {"type": "string"},
                "status": {"type": "string"},
                "type": {"type": "string"},
            },
        },
    })
}
