//! How much the values of a schema can hold, in an object that is small enough to be sent.
//!
//! The limits are those of `k8s.io/apiserver/pkg/cel/common/schemas.go` and `pkg/cel/limits.go`.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::kind::{DURATION, Declared, Form, Kind, LARGEST_REQUEST, TIMESTAMP};
use crate::admission::validation::definitions::rules::types::{escaped, properties};
use crate::values::fields::elements;

/// Longest text of a time or a duration, with its quotes.
const TIME_LENGTH: u64 = 32;
/// Length of a date, with its quotes.
const DATE_LENGTH: u64 = 12;

impl Declared {
    /// Returns what a schema declares; `None` for a schema that rules cannot see. For an object with `is_object`, the fields that all
    /// objects have are added.
    pub(in crate::admission::validation::definitions::rules) fn of(
        schema: &Value,
        is_object: bool,
    ) -> Option<Arc<Self>> {
        let declared = if schema["x-kubernetes-int-or-string"] == true {
            let max_size = max_bytes(schema).unwrap_or(LARGEST_REQUEST - 2);
            Self::scalar("dyn", max_size, 1)
        } else {
            match schema["type"].as_str().unwrap_or_default() {
                "array" => list(schema)?,
                "object" if schema["additionalProperties"].is_object() => map(schema)?,
                "object" => object(schema, is_object),
                "string" => text(schema),
                "boolean" => Self::scalar("bool", 0, 4),
                "number" => Self::scalar("double", 0, 1),
                "integer" => Self::scalar("int", 0, 1),
                _ => return None,
            }
        };
        Some(Arc::new(declared))
    }

    fn scalar(kind: &str, max_size: u64, min_length: u64) -> Self {
        Self {
            form: Form::Scalar(Kind::named(kind)),
            max_size,
            min_length,
        }
    }
}

fn inner(schema: &Value) -> Option<Arc<Declared>> {
    Declared::of(schema, schema["x-kubernetes-embedded-resource"] == true)
}

/// Returns a limit of the schema; a negative limit counts as zero.
fn limit(schema: &Value, word: &str) -> Option<u64> {
    let limit = schema[word].as_i64()?;
    Some(u64::try_from(limit).unwrap_or_default())
}

/// Returns the largest number of bytes of a text whose number of characters is limited.
fn max_bytes(schema: &Value) -> Option<u64> {
    Some(limit(schema, "maxLength")?.saturating_mul(4))
}

fn list(schema: &Value) -> Option<Declared> {
    let items = inner(&schema["items"])?;
    let max_size = limit(schema, "maxItems");
    Some(Declared {
        max_size: max_size.unwrap_or((LARGEST_REQUEST - 2) / (items.min_length + 1)),
        form: Form::List(items),
        min_length: 2,
    })
}

fn map(schema: &Value) -> Option<Declared> {
    let values = inner(&schema["additionalProperties"])?;
    let max_size = limit(schema, "maxProperties");
    Some(Declared {
        // a key of two characters in quotes, a colon and a comma
        max_size: max_size.unwrap_or((LARGEST_REQUEST - 2) / (values.min_length + 6)),
        form: Form::Map(values),
        min_length: 2,
    })
}

fn object(schema: &Value, is_object: bool) -> Declared {
    let properties = properties(schema, is_object);
    let required = elements(&schema["required"]);
    let required: Vec<&str> = required.filter_map(Value::as_str).collect();
    let mut fields = BTreeMap::new();
    let mut min_length = 2;
    for (name, property) in &properties {
        let Some(declared) = inner(property) else {
            continue;
        };
        // a field with a default need not be sent
        if required.contains(&name.as_str()) && property["default"].is_null() {
            min_length += name.len() as u64 + declared.min_length + 4;
        }
        fields.insert(escaped(name), declared);
    }
    Declared {
        form: Form::Object(fields),
        max_size: 0,
        min_length,
    }
}

fn text(schema: &Value) -> Declared {
    match schema["format"].as_str().unwrap_or_default() {
        "byte" => {
            let max_size = limit(schema, "maxLength");
            Declared::scalar("bytes", max_size.unwrap_or(LARGEST_REQUEST - 2), 2)
        }
        "duration" => Declared::scalar(DURATION, TIME_LENGTH, 3),
        "date" => Declared::scalar(TIMESTAMP, DATE_LENGTH, DATE_LENGTH),
        "date-time" => Declared::scalar(TIMESTAMP, TIME_LENGTH, 21),
        _ => {
            let words = schema["enum"].as_array().filter(|words| !words.is_empty());
            let longest_word = words.map(|words| {
                let words = words.iter().filter_map(Value::as_str);
                words
                    .map(|word| word.len() as u64)
                    .max()
                    .unwrap_or_default()
            });
            let max_size = max_bytes(schema).or(longest_word);
            Declared::scalar("string", max_size.unwrap_or(LARGEST_REQUEST - 2), 2)
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn max_size(schema: &Value, path: &[&str]) -> Option<u64> {
        let path: Vec<String> = path.iter().map(|&step| step.to_owned()).collect();
        Declared::of(schema, false)?.max_size_at(&path)
    }

    #[test]
    fn what_has_no_limit_is_limited_by_the_request() {
        let schema = json!({"type": "array", "items": {"type": "object", "required": ["ab"], "properties": {
            "ab": {"type": "string"}, "c": {"type": "string", "maxLength": 3}}}});
        // `{"ab":""}` and a comma
        assert_eq!(max_size(&schema, &[]), Some((LARGEST_REQUEST - 2) / 11));
        let longest = LARGEST_REQUEST - 2;
        assert_eq!(max_size(&schema, &["@items", "ab"]), Some(longest));
        assert_eq!(max_size(&schema, &["@items", "c"]), Some(12));
        assert_eq!(max_size(&schema, &["@items", "d"]), None);
    }

    #[test]
    fn limits_of_the_schema_are_taken() {
        let map = json!({"type": "object", "maxProperties": 7, "additionalProperties": {"type": "string", "enum": ["a", "abc"]}});
        assert_eq!(max_size(&map, &[]), Some(7));
        assert_eq!(max_size(&map, &["@values"]), Some(3));
        assert_eq!(max_size(&map, &["@keys"]), Some(0));
        let negative = json!({"type": "array", "maxItems": -1, "items": {"type": "integer"}});
        assert_eq!(max_size(&negative, &[]), Some(0));
    }
}
