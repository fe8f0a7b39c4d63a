//! The types of values in rules.

use std::fmt;

use serde_json::{Map, Value, json};

/// A type.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Type {
    /// A type that is not known here; it fits everything, and no error is reported about it.
    Unknown,
    /// Any type (`dyn` in CEL).
    Dyn,
    Bool,
    Int,
    Uint,
    Double,
    String,
    Bytes,
    Timestamp,
    Duration,
    Null,
    List(Box<Type>),
    Map(Box<Type>, Box<Type>),
    /// The fields of a schema.
    Object(Vec<(String, Type)>),
}

impl Type {
    /// Returns the type of the values of a schema; `None` for a schema that rules cannot see. For an object with `is_object`, the fields
    /// that all objects have are added.
    pub(super) fn of(schema: &Value, is_object: bool) -> Option<Self> {
        if schema["x-kubernetes-int-or-string"] == true {
            return Some(Self::Dyn);
        }
        let inner =
            |schema: &Value| Self::of(schema, schema["x-kubernetes-embedded-resource"] == true);
        Some(match schema["type"].as_str().unwrap_or_default() {
            "array" => Self::List(Box::new(inner(&schema["items"])?)),
            "object" if schema["additionalProperties"].is_object() => {
                let values = inner(&schema["additionalProperties"])?;
                Self::Map(Box::new(Self::String), Box::new(values))
            }
            "object" => {
                let properties = properties(schema, is_object);
                // reserved words may be written with and without escapes
                let plain = properties.iter().filter(|(name, _)| is_reserved(name));
                let plain: Vec<(String, Self)> = plain
                    .filter_map(|(name, schema)| Some((name.clone(), inner(schema)?)))
                    .collect();
                let fields = properties.iter();
                let fields =
                    fields.filter_map(|(name, schema)| Some((escaped(name), inner(schema)?)));
                Self::Object(fields.chain(plain).collect())
            }
            "string" => match schema["format"].as_str().unwrap_or_default() {
                "byte" => Self::Bytes,
                "duration" => Self::Duration,
                "date" | "date-time" => Self::Timestamp,
                _ => Self::String,
            },
            "boolean" => Self::Bool,
            "number" => Self::Double,
            "integer" => Self::Int,
            _ => return None,
        })
    }

    /// Returns whether a value of this type may be of the other.
    pub(super) fn may_be(&self, other: &Self) -> bool {
        match (self, other) {
            // values that may be absent can be compared with null
            (Self::Dyn | Self::Unknown, _)
            | (_, Self::Dyn | Self::Unknown)
            | (Self::Null, Self::Object(_) | Self::Timestamp | Self::Duration)
            | (Self::Object(_) | Self::Timestamp | Self::Duration, Self::Null)
            | (Self::Object(_), Self::Object(_)) => true,
            (Self::List(one), Self::List(two)) => one.may_be(two),
            (Self::Map(keys, values), Self::Map(other_keys, other_values)) => {
                keys.may_be(other_keys) && values.may_be(other_values)
            }
            (one, two) => one == two,
        }
    }

    /// Returns whether it has a name that error messages can show.
    pub(super) fn has_name(&self) -> bool {
        match self {
            Self::Object(_) | Self::Unknown => false,
            Self::List(items) => items.has_name(),
            Self::Map(keys, values) => keys.has_name() && values.has_name(),
            _ => true,
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dyn | Self::Unknown => f.write_str("dyn"),
            Self::Bool => f.write_str("bool"),
            Self::Int => f.write_str("int"),
            Self::Uint => f.write_str("uint"),
            Self::Double => f.write_str("double"),
            Self::String => f.write_str("string"),
            Self::Bytes => f.write_str("bytes"),
            Self::Timestamp => f.write_str("timestamp"),
            Self::Duration => f.write_str("duration"),
            Self::Null => f.write_str("null"),
            Self::List(items) => write!(f, "list({items})"),
            Self::Map(keys, values) => write!(f, "map({keys}, {values})"),
            Self::Object(_) => f.write_str("object"),
        }
    }
}

/// Words that may not be identifiers in rules.
const RESERVED: [&str; 21] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// Returns whether a word may not be an identifier in expressions.
pub(in crate::admission::validation) fn is_reserved(word: &str) -> bool {
    RESERVED.contains(&word)
}

/// Returns the name of a field as rules write it.
pub(super) fn escaped(name: &str) -> String {
    if is_reserved(name) {
        return format!("__{name}__");
    }
    let mut text = String::new();
    let mut rest = name.chars().peekable();
    while let Some(letter) = rest.next() {
        match letter {
            '_' if rest.peek() == Some(&'_') => {
                rest.next();
                text.push_str("__underscores__");
            }
            '.' => text.push_str("__dot__"),
            '-' => text.push_str("__dash__"),
            '/' => text.push_str("__slash__"),
            other => text.push(other),
        }
    }
    text
}

/// Returns the properties of a schema; with `is_object`, the fields that all objects have are added.
pub(super) fn properties(schema: &Value, is_object: bool) -> Map<String, Value> {
    let own = schema["properties"].as_object().cloned();
    let mut properties = own.unwrap_or_default();
    if is_object {
        let text = json!({"type": "string"});
        properties.insert("apiVersion".into(), text.clone());
        properties.insert("kind".into(), text.clone());
        let fields = json!({"name": text, "generateName": text});
        let metadata = json!({"type": "object", "properties": fields});
        properties.insert("metadata".into(), metadata);
    }
    properties
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped_where_rules_could_not_say_them() {
        let names = ["a.b", "a-b", "a/b", "a__b", "a_b", "namespace"].map(escaped);
        assert_eq!(
            names,
            [
                "a__dot__b",
                "a__dash__b",
                "a__slash__b",
                "a__underscores__b",
                "a_b",
                "__namespace__"
            ]
        );
    }

    #[test]
    fn objects_have_names_and_rules_see_nothing_without_a_type() {
        let schema = json!({"type": "object", "properties": {
            "any": {"x-kubernetes-preserve-unknown-fields": true}, "port": {"x-kubernetes-int-or-string": true}}});
        let Some(Type::Object(fields)) = Type::of(&schema, true) else {
            panic!("an object")
        };
        let names: Vec<&str> = fields.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["apiVersion", "kind", "metadata", "port"]);
    }
}
