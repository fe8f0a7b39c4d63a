//! Defaults must be valid values of their own schema.

use serde_json::Value;

use super::parts::schemas;
use crate::admission::validation::custom;
use crate::failure::{Cause, NO_PATH};
use crate::objects::custom::{fill_in_defaults, prune};
use crate::schema::Node;
use crate::schema::rules::Rules;

/// Returns what is wrong with the defaults of a schema.
pub(super) fn check(schema: &Value, path: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    walk(schema, path, &mut causes);
    causes
}

fn walk(schema: &Value, path: &str, causes: &mut Vec<Cause>) {
    let default = &schema["default"];
    if !default.is_null() {
        one(schema, default, &format!("{path}.default"), causes);
    }
    for (name, inner) in schemas(&schema["properties"]) {
        walk(inner, &format!("{path}.properties[{name}]"), causes);
    }
    for word in ["items", "additionalProperties"] {
        if schema[word].is_object() {
            walk(&schema[word], &format!("{path}.{word}"), causes);
        }
    }
}

fn one(schema: &Value, default: &Value, path: &str, causes: &mut Vec<Cause>) {
    let mut pruned = default.clone();
    let is_object = schema["x-kubernetes-embedded-resource"] == true;
    prune(Some(schema), &mut pruned, is_object, "", &mut Vec::new());
    if pruned != *default {
        causes.push(Cause::invalid(
            path,
            default,
            "must not have unknown fields",
        ));
        return;
    }
    let mut completed = default.clone();
    fill_in_defaults(schema, &mut completed);
    let mut found = custom::of_default(Node::new(schema), &completed);
    if found.is_empty() {
        found = Rules::compile(schema).validate(None, &completed);
    }
    for mut cause in found {
        cause.field = match cause.field.as_str() {
            "" | NO_PATH => path.to_owned(),
            inner => format!("{path}.{inner}"),
        };
        causes.push(cause);
    }
}
