//! Checks of single values that many kinds share.

use serde_json::{Value, json};

use super::names;
use crate::failure::Cause;
use crate::values::fields::{elements, members};
use crate::values::pods::CONTAINERS;
use crate::values::quantity;

/// Returns the items of a list with their paths.
pub(super) fn indexed<'a>(
    list: &'a Value,
    path: &str,
) -> impl Iterator<Item = (String, &'a Value)> + use<'a> {
    let path = path.to_owned();
    let list = elements(list).enumerate();
    list.map(move |(index, item)| (format!("{path}[{index}]"), item))
}

/// Returns all containers of a pod's specification, which is at `path`, with their paths.
pub(super) fn containers<'a>(spec: &'a Value, path: &str) -> Vec<(String, &'a Value)> {
    let lists = CONTAINERS.into_iter();
    lists
        .flat_map(|list| indexed(&spec[list], &format!("{path}.{list}")))
        .collect()
}

/// Returns a text; empty for anything else.
pub(super) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Adds a cause for each thing that is wrong with a text.
pub(super) fn wrong(found: Vec<String>, given: &str, path: &str, causes: &mut Vec<Cause>) {
    let found = found.into_iter();
    causes.extend(found.map(|why| Cause::invalid(path, &json!(given), &why)));
}

/// Returns whether a list, map or text has something in it.
pub(super) fn filled(value: &Value) -> bool {
    match value {
        Value::Array(list) => !list.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
        Value::String(text) => !text.is_empty(),
        _ => false,
    }
}

/// Refuses an empty text, and one with which something is wrong.
pub(super) fn name(
    value: &Value,
    check: fn(&str) -> Vec<String>,
    path: &str,
    causes: &mut Vec<Cause>,
) {
    if filled(value) {
        optional_name(value, check, path, causes);
    } else {
        causes.push(Cause::required(path, ""));
    }
}

/// Refuses a text with which something is wrong; a missing or empty one is allowed.
pub(super) fn optional_name(
    value: &Value,
    check: fn(&str) -> Vec<String>,
    path: &str,
    causes: &mut Vec<Cause>,
) {
    let given = text(value);
    if !given.is_empty() {
        wrong(check(given), given, path, causes);
    }
}

/// Refuses a number outside a range; a missing one counts as zero.
pub(super) fn within(value: &Value, low: i64, high: i64, path: &str, causes: &mut Vec<Cause>) {
    let number = value.as_i64().unwrap_or_default();
    if !(low..=high).contains(&number) {
        let why = format!("must be between {low} and {high}, inclusive");
        causes.push(Cause::invalid(path, &json!(number), &why));
    }
}

/// Refuses the number of a port.
pub(super) fn port_number(value: &Value, path: &str, causes: &mut Vec<Cause>) {
    within(value, 1, 65_535, path, causes);
}

/// Checks the number or the name of a port.
pub(super) fn port(value: &Value, path: &str, causes: &mut Vec<Cause>) {
    match value {
        Value::String(name) => wrong(names::port(name), name, path, causes),
        _ => port_number(value, path, causes),
    }
}

/// Refuses a negative amount; a missing one is allowed.
pub(super) fn not_negative_amount(value: &Value, path: &str, causes: &mut Vec<Cause>) {
    if quantity::amount(value).is_negative() {
        let why = "must be greater than or equal to 0";
        causes.push(Cause::invalid(path, value, why));
    }
}

/// Checks a number or a percentage that must not be negative.
pub(super) fn number_or_percent(value: &Value, path: &str, causes: &mut Vec<Cause>) {
    match value {
        Value::String(text) => wrong(names::percent(text), text, path, causes),
        _ => not_negative(value, path, causes),
    }
}

/// Refuses more than 100 %.
pub(super) fn at_most_all(value: &Value, path: &str, causes: &mut Vec<Cause>) {
    let text = text(value);
    let number = text
        .strip_suffix('%')
        .filter(|_| names::percent(text).is_empty());
    if number.is_some_and(|number| number.parse::<u64>().is_ok_and(|number| number > 100)) {
        causes.push(Cause::invalid(path, value, "must not be greater than 100%"));
    }
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

/// Checks that an expression of a selector has values where its operator needs some, and none where it takes none.
pub(super) fn operands(expression: &Value, path: &str, causes: &mut Vec<Cause>) {
    let at = format!("{path}.values");
    match text(&expression["operator"]) {
        "In" | "NotIn" if !filled(&expression["values"]) => {
            let why = "must be specified when `operator` is 'In' or 'NotIn'";
            causes.push(Cause::required(at, why));
        }
        "Exists" | "DoesNotExist" if filled(&expression["values"]) => {
            let why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
            causes.push(Cause::forbidden(at, why));
        }
        _ => {}
    }
}

/// Refuses the operator of an expression of a selector.
pub(super) fn not_an_operator(operator: &str, path: &str, causes: &mut Vec<Cause>) {
    let why = "not a valid selector operator";
    let at = format!("{path}.operator");
    causes.push(Cause::invalid(at, &json!(operator), why));
}

/// Checks a selector of labels; a missing one is allowed.
pub(super) fn label_selector(selector: &Value, path: &str, causes: &mut Vec<Cause>) {
    let at = format!("{path}.matchLabels");
    for (key, value) in members(&selector["matchLabels"]) {
        let wrong = names::key(key).into_iter();
        causes.extend(wrong.map(|why| Cause::invalid(at.clone(), &json!(key), &why)));
        let wrong = names::value(text(value)).into_iter();
        causes.extend(wrong.map(|why| Cause::invalid(at.clone(), value, &why)));
    }
    for (path, expression) in indexed(
        &selector["matchExpressions"],
        &format!("{path}.matchExpressions"),
    ) {
        match text(&expression["operator"]) {
            "In" | "NotIn" | "Exists" | "DoesNotExist" => operands(expression, &path, causes),
            operator => not_an_operator(operator, &path, causes),
        }
        let key = text(&expression["key"]);
        let wrong = names::key(key).into_iter();
        let at = format!("{path}.key");
        causes.extend(wrong.map(|why| Cause::invalid(at.clone(), &json!(key), &why)));
        for (at, value) in indexed(&expression["values"], &format!("{path}.values")) {
            let wrong = names::value(text(value)).into_iter();
            causes.extend(wrong.map(|why| Cause::invalid(at.clone(), value, &why)));
        }
    }
}
