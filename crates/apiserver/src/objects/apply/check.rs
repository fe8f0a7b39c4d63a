//! Checks that a value fits its type.

use serde_json::Value;

use super::fields::{Element, path_text};
use super::types::{Form, Scalar, Type};

/// Checks a value and returns the errors, each with its path.
pub(crate) fn validate(ty: Type<'_>, value: &Value, duplicates: bool) -> Vec<String> {
    let mut found = Vec::new();
    check(ty, value, duplicates, &mut Vec::new(), &mut found);
    found
}

fn check(
    ty: Type<'_>,
    value: &Value,
    duplicates: bool,
    path: &mut Vec<Element>,
    found: &mut Vec<String>,
) {
    let report = |path: &[Element], message: &str| {
        if path.is_empty() {
            message.to_owned()
        } else {
            format!("{}: {message}", path_text(path))
        }
    };
    if value.is_null() {
        return;
    }
    match ty.form(Some(value)) {
        Form::Map { .. } => {
            let Some(fields) = value.as_object() else {
                found.push(report(path, &format!("expected map, got {}", shown(value))));
                return;
            };
            for (name, field) in fields {
                path.push(Element::Field(name.clone()));
                let Some(inner) = ty.field(name) else {
                    found.push(report(path, "field not declared in schema"));
                    path.pop();
                    // the remaining fields are not checked
                    break;
                };
                check(inner, field, duplicates, path, found);
                path.pop();
            }
        }
        Form::List { atomic, keys } => {
            let Some(items) = value.as_array() else {
                found.push(report(
                    path,
                    &format!("expected list, got {}", shown(value)),
                ));
                return;
            };
            let mut seen = Vec::new();
            for (index, item) in items.iter().enumerate() {
                let element = if atomic {
                    Element::Index(index as i64)
                } else {
                    match ty.element(&keys, item) {
                        Ok(element) => element,
                        Err(why) => {
                            found.push(report(path, &format!("element {index}: {why}")));
                            return;
                        }
                    }
                };
                if !atomic && seen.contains(&element) && !duplicates {
                    found.push(report(
                        path,
                        &format!("duplicate entries for key {element}"),
                    ));
                }
                seen.push(element.clone());
                path.push(element);
                check(ty.item(), item, duplicates, path, found);
                path.pop();
            }
        }
        Form::Scalar(scalar) => {
            if let Err(why) = check_scalar(scalar, value) {
                found.push(report(path, &why));
            }
        }
    }
}

/// Returns a value as error messages show it.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => format!("&{{{text}}}"),
        other => format!("&{{{other}}}"),
    }
}

/// Returns why a value is not such a scalar.
pub(super) fn check_scalar(scalar: Scalar, value: &Value) -> Result<(), String> {
    let go_type = match value {
        Value::Object(_) => "map[string]interface {}",
        Value::Array(_) => "[]interface {}",
        Value::String(_) => "string",
        Value::Bool(_) => "bool",
        Value::Number(_) | Value::Null => "number",
    };
    let (good, why) = match scalar {
        Scalar::Numeric => (
            value.is_number(),
            format!("expected numeric (int or float), got {go_type}"),
        ),
        Scalar::Text => (
            value.is_string(),
            format!("expected string, got &value.valueUnstructured{{Value:{value}}}"),
        ),
        Scalar::Boolean => (
            value.is_boolean(),
            format!("expected boolean, got {}", shown(value)),
        ),
        Scalar::Any => (
            !value.is_object() && !value.is_array(),
            format!("expected any scalar, got {}", shown(value)),
        ),
    };
    if good || value.is_null() {
        Ok(())
    } else {
        Err(why)
    }
}
