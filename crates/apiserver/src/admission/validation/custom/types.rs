//! Which types and formats values of custom resources have.

use serde_json::Value;

use super::formats;
use crate::schema::Node;

/// Which formats decide with the type what a value may be. (A text has to have those alone that a real server checks.)
#[derive(Clone, Copy, Debug)]
pub(super) enum Formats {
    /// Those that a real server checks, in custom resources.
    Checked,
    /// Each, such as `int32`, in defaults of definitions.
    All,
}

impl Formats {
    /// Returns the format of a schema, empty if there is none that counts.
    fn of(self, schema: Node<'_>) -> &str {
        match self {
            Self::Checked if !formats::is_known(schema.format()) => "",
            Self::Checked | Self::All => schema.format(),
        }
    }
}

/// Returns the type, or format, that a value should have, and the one that it has, if it has another one.
pub(super) fn wrong_type(
    schema: Node<'_>,
    value: &Value,
    formats: Formats,
) -> Option<(String, &'static str)> {
    let types: &[&str] = match schema.kind() {
        _ if schema.is_int_or_string() => &["integer", "string"],
        "" => &[],
        kind => &[kind],
    };
    let (kind, format) = kind_and_format(value);
    let is_whole = || value.as_f64().is_some_and(|number| number.fract() == 0.0);
    let fits = types.contains(&kind)
        || kind == "integer" && types.contains(&"number")
        || kind == "number" && types.contains(&"integer") && is_whole();
    let wanted = formats.of(schema);
    if fits || types.is_empty() && (wanted.is_empty() || value.is_null()) {
        return None;
    }
    if !wanted.is_empty() && !value.is_null() {
        let has_format = value.is_string() || value.is_array();
        if !has_format && format != wanted {
            return Some((wanted.to_owned(), format));
        }
        // a real server leaves texts and lists to the check of the format, which does not look at lists
        if has_format
            && !types
                .iter()
                .any(|kind| ["integer", "number"].contains(kind))
        {
            return None;
        }
    }
    Some((types.join(","), kind))
}

/// Returns the type of a value, and the format that a real server keeps it in, if it is a number.
fn kind_and_format(value: &Value) -> (&'static str, &'static str) {
    match value {
        Value::Null => ("null", ""),
        Value::Bool(_) => ("boolean", ""),
        Value::Number(number) if number.is_f64() => ("number", "float64"),
        Value::Number(_) => ("integer", "int64"),
        Value::String(_) => ("string", ""),
        Value::Array(_) => ("array", ""),
        Value::Object(_) => ("object", ""),
    }
}
