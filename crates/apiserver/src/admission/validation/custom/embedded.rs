//! Embedded objects must have a kind and valid metadata.

use serde_json::Value;

use crate::admission::validation::{meta, names};
use crate::failure::Cause;
use crate::values::fields::join;

/// Returns what is wrong with the objects embedded in a value.
pub(super) fn check(schema: &Value, value: &Value, path: &str, causes: &mut Vec<Cause>) {
    if schema["x-kubernetes-embedded-resource"] == true && value.is_object() {
        one(value, path, causes);
    }
    match value {
        Value::Object(fields) => {
            for (name, inner) in fields {
                let known = schema["properties"].get(name);
                let schema = known.or_else(|| schema.get("additionalProperties"));
                if let Some(schema) = schema.filter(|schema| schema.is_object()) {
                    check(schema, inner, &join(path, name), causes);
                }
            }
        }
        Value::Array(list) => {
            for (index, item) in list.iter().enumerate() {
                check(&schema["items"], item, &format!("{path}[{index}]"), causes);
            }
        }
        _ => {}
    }
}

fn one(object: &Value, path: &str, causes: &mut Vec<Cause>) {
    let (version, kind) = (&object["apiVersion"], &object["kind"]);
    for (field, given) in [("apiVersion", version), ("kind", kind)] {
        if given.is_null() {
            causes.push(Cause::required(join(path, field), ""));
        } else if given == "" {
            causes.push(Cause::invalid(
                join(path, field),
                given,
                "must not be empty",
            ));
        }
    }
    if let Some(text) = version
        .as_str()
        .filter(|text| text.matches('/').count() > 1)
    {
        let why = format!("unexpected GroupVersion string: {text}");
        causes.push(Cause::invalid(join(path, "apiVersion"), version, &why));
    }
    if let Some(text) = kind.as_str().filter(|text| !text.is_empty()) {
        let wrong = names::service(&text.to_lowercase());
        if !wrong.is_empty() {
            let why = format!(
                "may have mixed case, but should otherwise match: {}",
                wrong.join(",")
            );
            causes.push(Cause::invalid(join(path, "kind"), kind, &why));
        }
    }
    let metadata = &object["metadata"];
    if metadata.is_object() {
        meta::embedded(metadata, &join(path, "metadata"), causes);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn objects_in_objects_need_a_kind_and_good_metadata() {
        let schema = json!({"type": "object", "properties": {"list": {"type": "array", "items": {
            "type": "object", "x-kubernetes-embedded-resource": true}}}});
        let value = json!({"list": [
            {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "A", "labels": {"a": "b"}}},
            {"apiVersion": "", "metadata": {"labels": {"a": "-"}}},
            {"apiVersion": "a/b/c", "kind": "p_d"}]});
        let mut causes = Vec::new();
        check(&schema, &value, "", &mut causes);
        let fields: Vec<&str> = causes.iter().map(|cause| cause.field.as_str()).collect();
        assert_eq!(
            fields,
            [
                "list[1].apiVersion",
                "list[1].kind",
                "list[1].metadata.labels",
                "list[2].apiVersion",
                "list[2].kind"
            ]
        );
    }
}
