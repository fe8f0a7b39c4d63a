//! What is wrong with one field of an object.

use serde_json::Value;

use crate::values::go::go_quoted;

/// Path of a cause without a path.
pub(crate) const NO_PATH: &str = "<nil>";

/// One invalid field of an object.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Cause {
    /// `FieldValueInvalid`, `FieldValueRequired`, ...
    pub(crate) reason: &'static str,
    /// Message without the path.
    pub(crate) message: String,
    /// Path of the field.
    pub(crate) field: String,
}

impl Cause {
    /// Makes the cause for a required field that is missing.
    pub(crate) fn required(field: impl Into<String>, detail: &str) -> Self {
        let message = if detail.is_empty() {
            "Required value".to_owned()
        } else {
            format!("Required value: {detail}")
        };
        Self {
            reason: "FieldValueRequired",
            message,
            field: field.into(),
        }
    }

    /// Makes the cause for a field whose value is not allowed.
    pub(crate) fn invalid(field: impl Into<String>, value: &Value, detail: &str) -> Self {
        Self {
            reason: "FieldValueInvalid",
            message: format!("Invalid value: {}: {detail}", quoted(value)),
            field: field.into(),
        }
    }

    /// Makes the cause for a field whose value is not shown.
    pub(crate) fn invalid_without_value(field: impl Into<String>, detail: &str) -> Self {
        Self {
            reason: "FieldValueInvalid",
            message: format!("Invalid value: {detail}"),
            field: field.into(),
        }
    }

    /// Replaces the value in the message, where the server does not write it as JSON.
    pub(crate) fn with_value(mut self, written: &str) -> Self {
        if let Some((_, detail)) = self
            .message
            .strip_prefix("Invalid value: ")
            .and_then(|rest| rest.split_once(": "))
        {
            self.message = format!("Invalid value: {written}: {detail}");
        }
        self
    }

    /// Makes the cause for a field that may not be given or not be changed.
    pub(crate) fn forbidden(field: impl Into<String>, detail: &str) -> Self {
        Self {
            reason: "FieldValueForbidden",
            message: format!("Forbidden: {detail}"),
            field: field.into(),
        }
    }

    /// Makes the cause for a value with more than `most` bytes.
    pub(crate) fn too_long(field: impl Into<String>, most: usize) -> Self {
        Self {
            reason: "FieldValueTooLong",
            message: format!("Too long: may not be more than {most} bytes"),
            field: field.into(),
        }
    }

    /// Makes the cause for more items or fields than allowed.
    pub(crate) fn too_many(field: impl Into<String>, count: usize, most: usize) -> Self {
        let ending = if most == 1 { "" } else { "s" };
        Self {
            reason: "FieldValueTooMany",
            message: format!("Too many: {count}: must have at most {most} item{ending}"),
            field: field.into(),
        }
    }

    /// Makes the cause for a value that occurs twice.
    pub(crate) fn duplicate(field: impl Into<String>, value: &Value) -> Self {
        Self {
            reason: "FieldValueDuplicate",
            message: format!("Duplicate value: {}", quoted(value)),
            field: field.into(),
        }
    }

    /// Makes the cause for a reference to something that does not exist.
    pub(crate) fn not_found(field: impl Into<String>, value: &Value) -> Self {
        Self {
            reason: "FieldValueNotFound",
            message: format!("Not found: {}", quoted(value)),
            field: field.into(),
        }
    }

    /// Makes the cause for a field whose value does not have the type in the schema.
    pub(crate) fn of_type(field: impl Into<String>, value: &Value, detail: &str) -> Self {
        Self {
            reason: "FieldValueTypeInvalid",
            ..Self::invalid(field, value, detail)
        }
    }

    /// Makes the cause for a value that is not one of the allowed ones.
    pub(crate) fn unsupported(field: impl Into<String>, value: &Value, allowed: &[String]) -> Self {
        let list: Vec<String> = allowed.iter().map(|value| go_quoted(value)).collect();
        Self {
            reason: "FieldValueNotSupported",
            message: format!(
                "Unsupported value: {}: supported values: {}",
                quoted(value),
                list.join(", ")
            ),
            field: field.into(),
        }
    }

    /// Returns path and text, as they appear in the message of the refusal.
    pub(crate) fn text(&self) -> String {
        format!("{}: {}", self.field, self.message)
    }
}

fn quoted(value: &Value) -> String {
    match value {
        Value::String(text) => go_quoted(text),
        other => other.to_string(),
    }
}
