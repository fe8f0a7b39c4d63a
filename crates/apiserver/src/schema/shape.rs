//! The shape in which the server's own types encode built-in objects: empty optional fields are left out, and fields that are never left
//! out appear even when nobody gave them.
//!
//! The published schemas say which fields are always written (they have a default there). The rest comes from `corpus/facts/presence.json`,
//! which is read from the published Go types: scalars that are pointers in Go, so that an empty one differs from a missing one; lists and
//! maps that are written as `null` when there is none; and scalars that have a default in the schema but are left out when empty.

use std::sync::LazyLock;

use serde_json::{Map, Value};

use super::node::Node;

static PRESENCE: LazyLock<Map<String, Value>> = LazyLock::new(|| {
    serde_json::from_str(include_str!("../../corpus/facts/presence.json")).unwrap_or_default()
});

fn listed(type_name: &str, what: &str, field: &str) -> bool {
    PRESENCE
        .get(type_name)
        .and_then(|of| of[what].as_array())
        .is_some_and(|names| names.iter().any(|name| name == field))
}

/// Brings an object of a built-in kind into its shape.
pub(crate) fn tidy(schema: Node<'_>, value: &mut Value) {
    shape(schema, value, false);
}

/// Like [`tidy`], for a stored object: empty lists that are always written become `null`.
pub(crate) fn tidy_stored(schema: Node<'_>, value: &mut Value) {
    shape(schema, value, true);
}

fn shape(schema: Node<'_>, value: &mut Value, stored: bool) {
    if schema.is_opaque() || schema.is_quantity() {
        return;
    }
    match value {
        Value::Object(fields) => shape_fields(schema, fields, stored),
        Value::Array(list) => {
            if let Some(items) = schema.items() {
                for item in list {
                    shape(items, item, stored);
                }
            }
        }
        _ => {}
    }
}

fn shape_fields(schema: Node<'_>, fields: &mut Map<String, Value>, stored: bool) {
    for (name, field) in fields.iter_mut() {
        if let Some(inner) = schema.field(name) {
            shape(inner, field, stored);
        }
    }
    let Some(properties) = schema.properties() else {
        return;
    };
    let owner = schema.full_name();
    fields.retain(|name, field| {
        let Some(inner) = schema.field(name) else {
            return true;
        };
        let written = inner.default().is_some() && !listed(owner, "omits", name)
            || listed(owner, "pointers", name)
            || listed(owner, "always", name);
        written || !is_empty(inner, field)
    });
    for (name, raw) in properties {
        if fields.contains_key(name) || listed(owner, "omits", name) {
            continue;
        }
        if let Some(default) = Node::new(raw).default() {
            let mut default = default.clone();
            shape(Node::new(raw), &mut default, stored);
            fields.insert(name.clone(), default);
        }
    }
    for (name, field) in fields.iter_mut().filter(|_| stored) {
        if field.as_array().is_some_and(Vec::is_empty) && listed(owner, "always", name) {
            *field = Value::Null;
        }
    }
    let lists = PRESENCE.get(owner).and_then(|of| of["always"].as_array());
    for name in lists.into_iter().flatten().filter_map(Value::as_str) {
        fields.entry(name).or_insert(Value::Null);
    }
}

/// Returns whether Go's encoder leaves the value out of an optional field. An empty structure stays, because it is either always written or
/// was given.
fn is_empty(schema: Node<'_>, value: &Value) -> bool {
    match value {
        Value::Null => true,
        // JSON that is kept as it is, such as the default in a schema
        _ if schema.is_opaque() => false,
        Value::Bool(value) => !value,
        // a number or a text of the int-or-string type is a structure in Go
        Value::Number(_) | Value::String(_) if schema.is_int_or_string() => false,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty() && !schema.is_quantity(),
        Value::Array(list) => list.is_empty(),
        Value::Object(fields) => {
            fields.is_empty() && schema.properties().is_none() && schema.additional().is_some()
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn empty_values_go_and_structures_that_are_always_written_come() {
        let mut pod = json!({"metadata": {"name": "p", "labels": {}}, "spec": {
            "hostNetwork": false, "enableServiceLinks": false, "nodeName": "",
            "containers": [{"name": "c", "command": [], "securityContext": {},
                "env": [{"name": "A", "value": ""}]}],
            "volumes": [{"name": "v", "emptyDir": {}}]}});
        tidy(Node::of_type("io.k8s.api.core.v1.Pod"), &mut pod);
        assert_eq!(
            pod,
            json!({"metadata": {"name": "p"}, "status": {}, "spec": {
                "enableServiceLinks": false,
                "containers": [{"name": "c", "resources": {}, "securityContext": {}, "env": [{"name": "A"}]}],
                "volumes": [{"name": "v", "emptyDir": {}}]}})
        );
    }

    #[test]
    fn a_list_that_is_never_left_out_is_null() {
        let mut role = json!({"metadata": {"name": "r"}});
        tidy(Node::of_type("io.k8s.api.rbac.v1.ClusterRole"), &mut role);
        assert_eq!(role, json!({"metadata": {"name": "r"}, "rules": null}));
    }
}
