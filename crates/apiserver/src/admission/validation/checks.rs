//! Checks of single values that many kinds share.

use serde_json::{Value, json};

use super::names;
use crate::failure::Cause;

/// Returns the items of a list with their paths.
pub(super) fn indexed<'a>(
    list: &'a Value,
    path: &str,
) -> impl Iterator<Item = (String, &'a Value)> {
    let path = path.to_owned();
    let list = list.as_array().into_iter().flatten().enumerate();
    list.map(move |(index, item)| (format!("{path}[{index}]"), item))
}

/// Returns a text; empty for anything else.
pub(super) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Refuses a value that is not one of these.
pub(super) fn one_of(value: &Value, allowed: &[&str], path: &str, causes: &mut Vec<Cause>) {
    if !allowed.contains(&text(value)) {
        let allowed: Vec<String> = allowed.iter().map(|&name| name.to_owned()).collect();
        causes.push(Cause::unsupported(path, &json!(text(value)), &allowed));
    }
}

/// Refuses a negative number; a missing one is allowed.
pub(super) fn not_negative(value: &Value, path: &str, causes: &mut Vec<Cause>) {
    if value.as_i64().is_some_and(|number| number < 0) {
        causes.push(Cause::invalid(
            path,
            value,
            "must be greater than or equal to 0",
        ));
    }
}

/// Checks a selector of labels; a missing one is allowed.
pub(super) fn label_selector(selector: &Value, path: &str, causes: &mut Vec<Cause>) {
    let at = format!("{path}.matchLabels");
    for (key, value) in selector["matchLabels"].as_object().into_iter().flatten() {
        let wrong = names::key(key).into_iter();
        causes.extend(wrong.map(|why| Cause::invalid(at.clone(), &json!(key), &why)));
        let wrong = names::value(text(value)).into_iter();
        causes.extend(wrong.map(|why| Cause::invalid(at.clone(), value, &why)));
    }
    for (path, expression) in indexed(
        &selector["matchExpressions"],
        &format!("{path}.matchExpressions"),
    ) {
        let values = &expression["values"];
        let none = values.as_array().is_none_or(Vec::is_empty);
        match text(&expression["operator"]) {
            "In" | "NotIn" if none => {
                let why = "must be specified when `operator` is 'In' or 'NotIn'";
                causes.push(Cause::required(format!("{path}.values"), why));
            }
            "Exists" | "DoesNotExist" if !none => {
                let why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                causes.push(Cause::forbidden(format!("{path}.values"), why));
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            _ => {
                let why = "not a valid selector operator";
                let at = format!("{path}.operator");
                causes.push(Cause::invalid(at, &expression["operator"], why));
            }
        }
        let key = text(&expression["key"]);
        let wrong = names::key(key).into_iter();
        let at = format!("{path}.key");
        causes.extend(wrong.map(|why| Cause::invalid(at.clone(), &json!(key), &why)));
        for (at, value) in indexed(values, &format!("{path}.values")) {
            let wrong = names::value(text(value)).into_iter();
            causes.extend(wrong.map(|why| Cause::invalid(at.clone(), value, &why)));
        }
    }
}
