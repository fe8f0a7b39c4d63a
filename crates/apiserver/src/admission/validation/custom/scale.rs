//! The values that the `scale` subresource shows must be numbers and a selector.

use serde_json::{Value, json};

use crate::failure::Cause;
use crate::values::go::go_text;

/// Returns what is wrong at the paths of desired number, actual number and selector. A write of the status does not check the desired
/// number.
pub(super) fn check(
    [wanted, actual, selector]: &[String; 3],
    subresource: &str,
    object: &Value,
    causes: &mut Vec<Cause>,
) {
    if subresource != "status" {
        number(object, wanted, causes);
        if !selector.is_empty() {
            let found = find(object, selector).and_then(|found| match found {
                Some(Value::String(_)) | None => Ok(()),
                Some(other) => Err(mistyped(selector, other, "string")),
            });
            if let Err(why) = found {
                causes.push(Cause::invalid(selector, &json!(""), &why));
            }
        }
    }
    number(object, actual, causes);
}

fn number(object: &Value, path: &str, causes: &mut Vec<Cause>) {
    let found = find(object, path).and_then(|found| match found {
        None => Ok(0),
        Some(value) => value.as_i64().ok_or_else(|| mistyped(path, value, "int64")),
    });
    match found {
        Err(why) => causes.push(Cause::invalid(path, &json!(0), &why)),
        Ok(found) if found < 0 => {
            let why = "should be a non-negative integer";
            causes.push(Cause::invalid(path, &json!(found), why));
        }
        Ok(found) if found > i64::from(i32::MAX) => {
            let why = format!("should be less than or equal to {}", i32::MAX);
            causes.push(Cause::invalid(path, &json!(found), &why));
        }
        Ok(_) => {}
    }
}

/// Returns the value at a path; the error says that something on the way is not an object.
fn find<'v>(object: &'v Value, path: &str) -> Result<Option<&'v Value>, String> {
    let mut value = object;
    let mut walked = String::new();
    for step in path.trim_start_matches('.').split('.') {
        walked = format!("{walked}.{step}");
        if value.is_null() {
            return Ok(None);
        }
        let Some(fields) = value.as_object() else {
            return Err(mistyped(&walked, value, "map[string]interface{}"));
        };
        let Some(inner) = fields.get(step) else {
            return Ok(None);
        };
        value = inner;
    }
    Ok(Some(value))
}

fn mistyped(path: &str, value: &Value, wanted: &str) -> String {
    let found = match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    };
    let shown = match value.as_f64().filter(|_| value.is_f64()) {
        // Go prints whole numbers without a fraction
        Some(number) => number.to_string(),
        None => go_text(value),
    };
    format!("{path} accessor error: {shown} is of the type {found}, expected {wanted}")
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::right(json!({"spec": {"replicas": 3}}), &[])]
    #[case::missing(json!({}), &[])]
    #[case::negative(json!({"spec": {"replicas": -1}}), &[".spec.replicas: Invalid value: -1: should be a non-negative integer"])]
    #[case::fraction(json!({"spec": {"replicas": 2.0}}),
        &[".spec.replicas: Invalid value: 0: .spec.replicas accessor error: 2 is of the type float64, expected int64"])]
    #[case::no_object(json!({"spec": "red"}),
        &[".spec.replicas: Invalid value: 0: .spec.replicas accessor error: red is of the type string, expected map[string]interface{}"])]
    #[case::selector(json!({"status": {"selector": 1}}),
        &[".status.selector: Invalid value: \"\": .status.selector accessor error: 1 is of the type int64, expected string"])]
    #[case::actual(json!({"status": {"replicas": 3_000_000_000_i64}}),
        &[".status.replicas: Invalid value: 3000000000: should be less than or equal to 2147483647"])]
    fn what_scale_shows_is_a_number(#[case] object: Value, #[case] expected: &[&str]) {
        let paths = [".spec.replicas", ".status.replicas", ".status.selector"].map(str::to_owned);
        let mut causes = Vec::new();
        check(&paths, "", &object, &mut causes);
        let texts: Vec<String> = causes.iter().map(Cause::text).collect();
        assert_eq!(texts, expected);
    }
}
