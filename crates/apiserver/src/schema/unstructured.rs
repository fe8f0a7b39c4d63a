//! Whether values fit the types of built-in kinds, in the words of the converter for the results of strategic merges. That converter is not
//! the decoder of bodies, and its messages differ.

use serde_json::Value;

use super::node::Node;

/// Returns why a value does not fit its type; `None` when it fits or when the decoder has to decide.
pub(crate) fn problem(schema: Node<'_>, value: &Value) -> Option<String> {
    if value.is_null() || schema.is_opaque() || is_read_by_itself(schema) {
        return None;
    }
    match schema.kind() {
        "object" => match (value, schema.properties().is_some()) {
            (Value::Object(fields), _) => fields
                .iter()
                .find_map(|(name, field)| problem(schema.field(name)?, field)),
            (_, true) => Some(format!("cannot restore struct from: {}", kind_of(value))),
            (_, false) => Some(format!("cannot restore map from {}", kind_of(value))),
        },
        "array" => match (value, schema.items()) {
            (Value::Array(list), Some(items)) => list.iter().find_map(|item| problem(items, item)),
            (Value::Array(_), None) => None,
            _ => Some(format!("cannot restore slice from {}", kind_of(value))),
        },
        _ => scalar(schema, value),
    }
}

/// Returns whether a type decodes its own JSON.
fn is_read_by_itself(schema: Node<'_>) -> bool {
    schema.is_quantity()
        || schema.is_int_or_string()
        || ["date-time", "byte"].contains(&schema.format())
}

fn scalar(schema: Node<'_>, value: &Value) -> Option<String> {
    let wanted = match (schema.kind(), schema.format()) {
        ("integer", "int32") => "int32",
        ("integer", _) => "int64",
        ("number", _) => "float64",
        ("boolean", _) => "bool",
        ("string", _) => "string",
        _ => return None,
    };
    let is_whole = |value: &Value| value.as_f64().is_some_and(|number| number.fract() == 0.0);
    let fits = match wanted {
        "int32" | "int64" => is_whole(value),
        "float64" => value.is_number(),
        "bool" => value.is_boolean(),
        _ => value.is_string(),
    };
    if fits {
        return None;
    }
    // Go can convert these, but not to the intended value
    let convertible = matches!(
        (kind_of(value), wanted),
        ("int64", "string") | ("float64", "int32" | "int64")
    );
    Some(if convertible {
        format!("cannot convert {} to {wanted}", kind_of(value))
    } else {
        format!("unrecognized type: {wanted}")
    })
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "invalid",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "slice",
        Value::Object(_) => "map",
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case(json!({"spec": {"replicas": "many"}}), "unrecognized type: int32")]
    #[case(json!({"spec": {"replicas": 1.5}}), "cannot convert float64 to int32")]
    #[case(json!({"spec": {"template": 5}}), "cannot restore struct from: int64")]
    #[case(json!({"spec": {"template": {"spec": {"containers": {}}}}}), "cannot restore slice from map")]
    #[case(json!({"metadata": {"labels": "a"}}), "cannot restore map from string")]
    #[case(json!({"metadata": {"labels": {"a": 1}}}), "cannot convert int64 to string")]
    fn values_of_other_types_are_named(#[case] object: Value, #[case] expected: &str) {
        let schema = Node::of_type("io.k8s.api.apps.v1.Deployment");
        assert_eq!(problem(schema, &object).as_deref(), Some(expected));
    }
}
