//! Checks of single values that many kinds share.

use serde_json::{Value, json};

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
