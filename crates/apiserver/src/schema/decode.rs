//! Decoding of objects of built-in kinds: removes and reports unknown fields, checks types, and puts amounts into their canonical form. For
//! custom objects see `objects::custom`.

use serde_json::Value;

use super::node::Node;
use crate::values::fields::join;
use crate::values::{quantity, times};

/// Findings about an object.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// Paths of fields that the schema does not have; they are removed.
    pub(crate) unknown: Vec<String>,
    /// The first value of a wrong type, in the words of Go's decoder.
    pub(crate) undecodable: Option<String>,
}

/// Checks and normalises an object in place.
pub(crate) fn decode(schema: Node<'_>, object: &mut Value) -> Findings {
    let mut reader = Reader {
        found: Findings::default(),
    };
    reader.value(schema, object, "", schema.type_name());
    reader.found
}

struct Reader {
    found: Findings,
}

impl Reader {
    fn value(&mut self, schema: Node<'_>, value: &mut Value, path: &str, owner: &str) {
        if schema.is_opaque() {
            return;
        }
        if schema.is_quantity() {
            let text = match &*value {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            match quantity::canonical(&text) {
                Some(canonical) => *value = Value::String(canonical),
                None => self.undecodable(|| {
                    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'".into()
                }),
            }
            return;
        }
        if !has_type(schema, value) {
            self.mistyped(schema, value, path, owner);
            return;
        }
        if let Some(number) = value.as_i64().filter(|_| is_too_large(schema, value)) {
            let place = go_field(path, owner);
            self.undecodable(|| {
                format!("json: cannot unmarshal number {number} into {place} of type int32")
            });
            return;
        }
        if schema.format() == "byte"
            && let Some(at) = value.as_str().and_then(illegal_base64)
        {
            self.undecodable(|| format!("illegal base64 data at input byte {at}"));
        }
        if schema.format() == "date-time"
            && let Some(text) = value.as_str()
        {
            match times::canonical(text, schema.type_name() == "MicroTime") {
                Ok(text) => *value = Value::String(text),
                Err(why) => self.undecodable(|| why),
            }
        }
        match value {
            Value::Object(_) => self.object(schema, value, path, owner),
            Value::Array(list) => {
                if let Some(items) = schema.items() {
                    for (index, item) in list.iter_mut().enumerate() {
                        self.value(items, item, &format!("{path}[{index}]"), owner);
                    }
                }
            }
            _ => {}
        }
    }

    fn object(&mut self, schema: Node<'_>, value: &mut Value, path: &str, owner: &str) {
        let Some(fields) = value.as_object_mut() else {
            return;
        };
        fields.retain(|_, field| !field.is_null());
        let mut unknown = Vec::new();
        let is_map = schema.properties().is_none() && schema.additional().is_some();
        for (name, field) in fields.iter_mut() {
            let inner = join(path, name);
            match schema.field(name) {
                // Go's decoder does not show the keys of maps
                Some(known) if is_map => self.value(known, field, path, owner),
                Some(known) => self.value(known, field, &inner, schema.type_name()),
                None => {
                    unknown.push(name.clone());
                    self.found.unknown.push(inner);
                }
            }
        }
        for name in unknown {
            fields.remove(&name);
        }
    }

    fn mistyped(&mut self, schema: Node<'_>, value: &Value, path: &str, owner: &str) {
        let given = match type_of(value) {
            "boolean" => "bool",
            "integer" => "number",
            other => other,
        };
        self.undecodable(|| {
            if schema.format() == "date-time" {
                return format!("json: cannot unmarshal {given} into Go value of type string");
            }
            format!(
                "json: cannot unmarshal {given} into {} of type {}",
                go_field(path, owner),
                go_type(schema)
            )
        });
    }

    fn undecodable(&mut self, text: impl FnOnce() -> String) {
        self.found.undecodable.get_or_insert_with(text);
    }
}

/// Returns a field as Go's decoder names it: with the structure that has it, and without the places in lists.
fn go_field(path: &str, owner: &str) -> String {
    let mut shown = String::new();
    let mut outside = true;
    for letter in path.chars() {
        match letter {
            '[' => outside = false,
            ']' => outside = true,
            letter if outside => shown.push(letter),
            _ => {}
        }
    }
    format!("Go struct field {owner}.{shown}")
}

/// Returns the type of a value in Go, as far as the schema tells: texts have types of their own there, which no schema knows.
fn go_type(schema: Node<'_>) -> String {
    match (schema.kind(), schema.format()) {
        ("boolean", _) => "bool".to_owned(),
        ("integer", "") => "int64".to_owned(),
        ("integer", format) => format.to_owned(),
        ("string", "byte") => "[]uint8".to_owned(),
        ("array", _) => schema.items().map_or_else(
            || "array".to_owned(),
            |items| format!("[]{}", go_type(items)),
        ),
        ("object", _) if !schema.type_name().is_empty() => {
            let mut parts = schema.full_name().rsplit('.');
            let (name, package) = (parts.next(), parts.next());
            format!(
                "{}.{}",
                package.unwrap_or_default(),
                name.unwrap_or_default()
            )
        }
        ("object", _) => match schema.additional() {
            Some(values) if values.is_quantity() => "v1.ResourceList".to_owned(),
            Some(values) => format!("map[string]{}", go_type(values)),
            None => "object".to_owned(),
        },
        (kind, _) => kind.to_owned(),
    }
}

/// Returns whether a number does not fit where 32 bits are.
fn is_too_large(schema: Node<'_>, value: &Value) -> bool {
    let is_small = schema.format() == "int32" || schema.is_int_or_string();
    is_small
        && value
            .as_i64()
            .is_some_and(|number| i32::try_from(number).is_err())
}

/// Returns the first place where a text is not base64.
fn illegal_base64(text: &str) -> Option<usize> {
    use base64::Engine as _;
    let error = base64::prelude::BASE64_STANDARD.decode(text).err()?;
    Some(match error {
        base64::DecodeError::InvalidByte(at, _) | base64::DecodeError::InvalidLastSymbol(at, _) => {
            at
        }
        _ => text.len(),
    })
}

fn has_type(schema: Node<'_>, value: &Value) -> bool {
    if value.is_null() {
        return true;
    }
    if schema.is_int_or_string() {
        return value.is_string() || value.is_i64() || value.is_u64();
    }
    match schema.kind() {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => {
            value.is_i64()
                || value.is_u64()
                || value.as_f64().is_some_and(|number| number.fract() == 0.0)
        }
        "number" => value.is_number(),
        _ => true,
    }
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn unknown_fields_of_a_pod_are_named_and_removed() {
        let mut pod = json!({"metadata": {"foo": 1}, "spec": {"containers": [{"name": "c", "bar": 1,
            "resources": {"limits": {"cpu": "0.5"}}}]}});
        let found = decode(Node::of_type("io.k8s.api.core.v1.Pod"), &mut pod);
        assert_eq!(found.unknown, ["metadata.foo", "spec.containers[0].bar"]);
        assert_eq!(
            pod["spec"]["containers"][0],
            json!({"name": "c", "resources": {"limits": {"cpu": "500m"}}})
        );
    }

    #[test]
    fn a_wrong_type_is_reported_as_the_decoder_says_it() {
        let mut object = json!({"spec": {"replicas": "x"}});
        let found = decode(Node::of_type("io.k8s.api.apps.v1.Deployment"), &mut object);
        assert_eq!(
            found.undecodable.as_deref(),
            Some(
                "json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32"
            )
        );
    }
}
