//! Values of custom resources, checked against their schema as in a real server.

use serde_json::Value;

use crate::failure::{Cause, NO_PATH};
use crate::registry::Resource;
use crate::schema::Node;
use crate::values::fields::join;

mod bounds;
mod embedded;
mod formats;
mod scale;
mod types;

use types::{Formats, wrong_type};

/// Returns what is wrong with a custom resource; `before` is `None` for a new one. Errors in values that a write does not change are
/// tolerated. `others` are what is wrong with it otherwise.
pub(crate) fn validate(
    resource: &Resource,
    subresource: &str,
    before: Option<&Value>,
    object: &Value,
    others: &[Cause],
) -> Vec<Cause> {
    let Some(custom) = &resource.custom else {
        return Vec::new();
    };
    let mut causes = Vec::new();
    check(resource.schema(), object, "", Formats::Checked, &mut causes);
    if let Some(paths) = &custom.scale {
        scale::check(paths, subresource, object, &mut causes);
    }
    embedded::check(resource.schema().raw(), object, "", &mut causes);
    lists(resource.schema(), object, "", &mut causes);
    if let Some(before) = before {
        causes.retain(|cause| {
            let unchanged = at(object, &cause.field);
            unchanged.is_none() || unchanged != at(before, &cause.field)
        });
    }
    if custom.rules.is_empty() {
        return causes;
    }
    let is_blocking = |cause: &Cause| {
        matches!(
            cause.reason,
            "FieldValueNotSupported"
                | "FieldValueRequired"
                | "FieldValueTooLong"
                | "FieldValueTooMany"
                | "FieldValueTypeInvalid"
        )
    };
    if others.iter().chain(&causes).any(is_blocking) {
        causes.push(Cause::invalid(
            NO_PATH,
            &Value::Null,
            "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation",
        ));
    } else {
        causes.extend(custom.rules.validate(before, object));
    }
    causes
}

/// Returns what is wrong with the default of a schema, apart from its rules.
pub(crate) fn of_default(schema: Node<'_>, value: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    check(schema, value, "", Formats::All, &mut causes);
    embedded::check(schema.raw(), value, "", &mut causes);
    lists(schema, value, "", &mut causes);
    causes
}

/// Returns the value at a path in the notation of causes.
pub(crate) fn at<'v>(object: &'v Value, path: &str) -> Option<&'v Value> {
    path.split('.').try_fold(object, |value, step| {
        let (name, indices) = step.split_once('[').unwrap_or((step, ""));
        indices
            .split('[')
            .filter_map(|index| index.strip_suffix(']'))
            .try_fold(value.get(name)?, |value, index| {
                value.get(index.parse::<usize>().ok()?)
            })
    })
}

/// Checks a value and everything in it.
fn check(schema: Node<'_>, value: &Value, path: &str, formats: Formats, causes: &mut Vec<Cause>) {
    if value.is_null() && schema.keyword("nullable") == Some(&Value::Bool(true)) {
        return;
    }
    if let Some((wanted, found)) = wrong_type(schema, value, formats) {
        let detail = format!("{path} in body must be of type {wanted}: {found:?}");
        causes.push(Cause::of_type(path, &found.into(), &detail));
        bounds::enumerated(schema, value, path, causes);
        if schema.kind() == "" {
            alternatives(schema, value, path, formats, causes);
        }
        return;
    }
    match value {
        Value::Object(fields) => {
            for name in schema.required() {
                if !fields.contains_key(name) {
                    causes.push(Cause::required(join(path, name), ""));
                }
            }
            bounds::counts(
                schema,
                "Properties",
                "properties",
                fields.len(),
                path,
                causes,
            );
            for (name, field) in fields {
                // the fields that every object has are checked elsewhere
                if let Some(inner) = schema.field(name).filter(|inner| !inner.is_unknown()) {
                    check(inner, field, &join(path, name), formats, causes);
                }
            }
        }
        Value::Array(items) => {
            bounds::counts(schema, "Items", "items", items.len(), path, causes);
            if let Some(inner) = schema.items() {
                for (index, item) in items.iter().enumerate() {
                    check(inner, item, &format!("{path}[{index}]"), formats, causes);
                }
            }
        }
        Value::String(text) => bounds::string(schema, text, path, causes),
        Value::Number(_) => bounds::number(schema, value, path, causes),
        Value::Bool(_) | Value::Null => {}
    }
    bounds::enumerated(schema, value, path, causes);
    alternatives(schema, value, path, formats, causes);
}

/// Checks all lists in a value whose items must be unique.
fn lists(schema: Node<'_>, value: &Value, path: &str, causes: &mut Vec<Cause>) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                if let Some(inner) = schema.field(name).filter(|inner| !inner.is_opaque()) {
                    lists(inner, field, &join(path, name), causes);
                }
            }
        }
        Value::Array(items) => {
            duplicates(schema, items, path, causes);
            if let Some(inner) = schema.items() {
                for (index, item) in items.iter().enumerate() {
                    lists(inner, item, &format!("{path}[{index}]"), causes);
                }
            }
        }
        _ => {}
    }
}

/// Reports duplicate items of sets and of keyed lists.
fn duplicates(schema: Node<'_>, items: &[Value], path: &str, causes: &mut Vec<Cause>) {
    // the metadata have checks of their own
    if path.starts_with("metadata.") {
        return;
    }
    let keys: Vec<&str> = schema
        .keyword("x-kubernetes-list-map-keys")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let name = |item: &Value| -> Value {
        let fields = keys.iter();
        fields
            .filter_map(|key| Some(((*key).to_owned(), item.get(*key)?.clone())))
            .collect()
    };
    let names: Vec<Value> = match schema
        .keyword("x-kubernetes-list-type")
        .and_then(Value::as_str)
    {
        Some("set") => items.to_vec(),
        Some("map") => items.iter().map(name).collect(),
        _ => return,
    };
    for (index, item) in names.iter().enumerate() {
        if names[..index].contains(item) {
            causes.push(Cause::duplicate(format!("{path}[{index}]"), item));
        }
    }
}

/// Checks `allOf`, `anyOf`, `oneOf` and `not`.
fn alternatives(
    schema: Node<'_>,
    value: &Value,
    path: &str,
    formats: Formats,
    causes: &mut Vec<Cause>,
) {
    let tried = |word: &str| -> Option<Vec<Vec<Cause>>> {
        let branches = schema.keyword(word)?.as_array()?;
        Some(
            branches
                .iter()
                .map(|branch| {
                    let mut found = Vec::new();
                    check(Node::new(branch), value, path, formats, &mut found);
                    found
                })
                .collect(),
        )
    };
    let mut report = |detail: &str, why: Vec<Cause>| {
        let message = format!("Invalid value: \"\": \"{path}\" must {detail}");
        causes.push(Cause {
            reason: "FieldValueInvalid",
            message,
            field: NO_PATH.to_owned(),
        });
        causes.extend(why);
    };
    // the alternative with the fewest errors is taken as the intended one
    let nearest =
        |tried: Vec<Vec<Cause>>| tried.into_iter().min_by_key(Vec::len).unwrap_or_default();
    let valid = |tried: &[Vec<Cause>]| tried.iter().filter(|found| found.is_empty()).count();
    if let Some(tried) = tried("anyOf").filter(|tried| valid(tried) == 0) {
        report("validate at least one schema (anyOf)", nearest(tried));
    }
    if let Some(tried) = tried("oneOf") {
        match valid(&tried) {
            1 => {}
            0 => report(
                "validate one and only one schema (oneOf). Found none valid",
                nearest(tried),
            ),
            several => report(
                &format!(
                    "validate one and only one schema (oneOf). Found {several} valid alternatives"
                ),
                Vec::new(),
            ),
        }
    }
    if let Some(tried) = tried("allOf").filter(|tried| valid(tried) < tried.len()) {
        report(
            "validate all the schemas (allOf)",
            tried.into_iter().flatten().collect(),
        );
    }
    if let Some(refused) = schema.keyword("not") {
        let mut found = Vec::new();
        check(Node::new(refused), value, path, formats, &mut found);
        if found.is_empty() {
            report("not validate the schema (not)", Vec::new());
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case(json!({"type": "integer", "minimum": 1}), json!(0), "v: Invalid value: 0: v in body should be greater than or equal to 1")]
    #[case(json!({"type": "integer", "minimum": 0, "exclusiveMinimum": true}), json!(0), "v: Invalid value: 0: v in body should be greater than 0")]
    #[case(json!({"type": "integer", "multipleOf": 2}), json!(3), "v: Invalid value: 3: v in body should be a multiple of 2")]
    #[case(json!({"type": "string", "minLength": 2}), json!("a"), "v: Invalid value: \"a\": v in body should be at least 2 chars long")]
    #[case(json!({"type": "string", "maxLength": 4}), json!("abcde"), "v: Too long: may not be more than 4 bytes")]
    #[case(json!({"type": "string", "pattern": "^[a-z]+$"}), json!("AB"), "v: Invalid value: \"AB\": v in body should match '^[a-z]+$'")]
    #[case(json!({"type": "string", "format": "date-time"}), json!("nope"), "v: Invalid value: \"nope\": v in body must be of type date-time: \"nope\"")]
    #[case(json!({"type": "string", "enum": ["u", "v"]}), json!("w"), "v: Unsupported value: \"w\": supported values: \"u\", \"v\"")]
    #[case(json!({"type": "array", "minItems": 1, "items": {"type": "string"}}), json!([]), "v: Invalid value: 0: v in body should have at least 1 items")]
    #[case(json!({"type": "array", "maxItems": 2, "items": {"type": "string"}}), json!(["1", "2", "3"]), "v: Too many: 3: must have at most 2 items")]
    #[case(json!({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}}), json!(["1", "1"]), "v[1]: Duplicate value: \"1\"")]
    #[case(json!({"type": "object", "not": {"required": ["p"]}}), json!({"p": 1}), "<nil>: Invalid value: \"\": \"v\" must not validate the schema (not)")]
    #[case(json!({"type": "object", "oneOf": [{"required": ["p"]}, {"required": ["q"]}]}), json!({"p": 1, "q": 1}),
        "<nil>: Invalid value: \"\": \"v\" must validate one and only one schema (oneOf). Found 2 valid alternatives")]
    #[case(json!({"type": "object"}), json!(3), "v: Invalid value: \"integer\": v in body must be of type object: \"integer\"")]
    fn a_bad_value_is_refused_as_the_real_server_does(
        #[case] schema: Value,
        #[case] value: Value,
        #[case] expected: &str,
    ) {
        let mut causes = Vec::new();
        check(
            Node::new(&schema),
            &value,
            "v",
            Formats::Checked,
            &mut causes,
        );
        lists(Node::new(&schema), &value, "v", &mut causes);
        let texts: Vec<String> = causes
            .iter()
            .map(|cause| format!("{}: {}", cause.field, cause.message))
            .collect();
        assert_eq!(texts, [expected]);
    }

    #[rstest]
    #[case(json!({"type": "integer", "format": "int32"}), json!({}), Some(("int32", "")))]
    #[case(json!({"type": "integer", "format": "int32"}), json!(1.5), Some(("int32", "float64")))]
    #[case(json!({"type": "integer", "format": "int32"}), json!("a"), Some(("integer", "string")))]
    #[case(json!({"type": "integer", "format": "int32"}), json!(1.0), None)]
    #[case(json!({"type": "string", "format": "date"}), json!(true), Some(("date", "")))]
    #[case(json!({"type": "string", "format": "date"}), json!([]), None)]
    #[case(json!({"type": "object", "format": "date"}), json!("a"), None)]
    #[case(json!({"type": "string"}), json!(null), Some(("string", "null")))]
    #[case(json!({}), json!([]), None)]
    fn a_default_has_a_type_or_a_format(
        #[case] schema: Value,
        #[case] value: Value,
        #[case] expected: Option<(&str, &str)>,
    ) {
        let found = wrong_type(Node::new(&schema), &value, Formats::All);
        let found = found
            .as_ref()
            .map(|(wanted, found)| (wanted.as_str(), *found));
        assert_eq!(found, expected);
    }

    #[test]
    fn formats_of_numbers_are_no_types_of_custom_resources() {
        let schema = json!({"type": "integer", "format": "int32"});
        let found = wrong_type(Node::new(&schema), &json!({}), Formats::Checked);
        assert_eq!(found, Some(("integer".to_owned(), "object")));
    }

    #[test]
    fn paths_lead_to_values() {
        let object = json!({"a": {"b": [[1, 2]]}});
        assert_eq!(at(&object, "a.b[0][1]"), Some(&json!(2)));
        assert_eq!(at(&object, "a.c"), None);
    }
}
