//! The paths of a resource, and the operations on them.

use serde_json::{Map, Value, json};

use super::{DELETE_OPTIONS, PATCH, REFERENCE, STATUS, part};
use crate::registry::resource::Resource;

/// Adds the paths of a resource; `name` is that of its schema.
pub(super) fn add_paths(resource: &Resource, name: &str, paths: &mut Map<String, Value>) {
    let root = format!("/{}", part(resource));
    let all = format!("{root}/{}", resource.plural);
    let place = if resource.namespaced {
        format!("{root}/namespaces/{{namespace}}/{}", resource.plural)
    } else {
        all.clone()
    };
    let kind = kind_of(&resource.group, &resource.version, &resource.kind);
    let list = format!("{name}List");
    let in_path = |with_name: bool| {
        let mut list = Vec::new();
        if with_name {
            list.push(parameter("name", "path", "string"));
        }
        if resource.namespaced {
            list.push(parameter("namespace", "path", "string"));
        }
        list.push(parameter("pretty", "query", "string"));
        json!(list)
    };
    let operate = |verbs: &[(&str, &str)], known: &[String], of: &str, kind: &Value| {
        let mut item = Map::new();
        for (verb, method) in verbs {
            if known.iter().any(|has| has == verb) {
                let of = if *verb == "list" { list.as_str() } else { of };
                let custom = resource.custom.is_some();
                item.insert((*method).into(), operation(verb, of, kind, custom));
            }
        }
        item
    };
    let collection = [
        ("list", "get"),
        ("create", "post"),
        ("deletecollection", "delete"),
    ];
    let single = [
        ("get", "get"),
        ("update", "put"),
        ("patch", "patch"),
        ("delete", "delete"),
        ("create", "post"),
    ];
    let mut item = operate(&collection, &resource.verbs, name, &kind);
    if !item.is_empty() {
        item.insert("parameters".into(), in_path(false));
        paths.insert(place.clone(), Value::Object(item));
    }
    if resource.namespaced {
        let item = operate(&collection[..1], &resource.verbs, name, &kind);
        if !item.is_empty() {
            paths.insert(all, Value::Object(item));
        }
    }
    let mut item = operate(&single[..4], &resource.verbs, name, &kind);
    if !item.is_empty() {
        item.insert("parameters".into(), in_path(true));
        paths.insert(format!("{place}/{{name}}"), Value::Object(item));
    }
    for sub in &resource.subresources {
        let (group, version) = if sub.version.is_empty() {
            (&resource.group, &resource.version)
        } else {
            (&sub.group, &sub.version)
        };
        let kind = kind_of(group, version, &sub.kind);
        let mut item = operate(&single, &sub.verbs, name, &kind);
        if !item.is_empty() {
            item.insert("parameters".into(), in_path(true));
            paths.insert(
                format!("{place}/{{name}}/{}", sub.name),
                Value::Object(item),
            );
        }
    }
}

fn kind_of(group: &str, version: &str, kind: &str) -> Value {
    json!({"group": group, "version": version, "kind": kind})
}

fn parameter(name: &str, place: &str, kind: &str) -> Value {
    let mut parameter =
        json!({"name": name, "in": place, "schema": {"type": kind, "uniqueItems": true}});
    if place == "path" {
        parameter["required"] = json!(true);
    }
    parameter
}

fn operation(verb: &str, of: &str, kind: &Value, custom: bool) -> Value {
    let deletes = verb.starts_with("delete");
    let answer = reference(if deletes { STATUS } else { of });
    let mut operation = json!({
        "responses": {"200": {"description": "OK", "content": {
            "application/json": answer, "application/yaml": answer}}},
        "x-kubernetes-action": match verb {
            "create" => "post",
            "update" => "put",
            other => other,
        },
        "x-kubernetes-group-version-kind": kind,
    });
    let parameters = parameters(verb);
    if !parameters.is_empty() {
        operation["parameters"] = json!(parameters);
    }
    if let Some(content) = request_body(verb, of, custom) {
        operation["requestBody"] = json!({"content": content});
        if !deletes {
            operation["requestBody"]["required"] = json!(true);
        }
    }
    operation
}

fn reference(name: &str) -> Value {
    json!({"schema": {REFERENCE: format!("#/components/schemas/{name}")}})
}

/// Returns the parameters of a verb in the query.
fn parameters(verb: &str) -> Vec<Value> {
    let query = |names: &[(&str, &str)]| -> Vec<Value> {
        names
            .iter()
            .map(|(name, kind)| parameter(name, "query", kind))
            .collect()
    };
    let mut parameters = match verb {
        "create" | "update" | "patch" => query(&[
            ("dryRun", "string"),
            ("fieldManager", "string"),
            ("fieldValidation", "string"),
        ]),
        "delete" | "deletecollection" => query(&[
            ("dryRun", "string"),
            ("gracePeriodSeconds", "integer"),
            ("orphanDependents", "boolean"),
            ("propagationPolicy", "string"),
        ]),
        _ => Vec::new(),
    };
    if verb == "patch" {
        parameters.push(parameter("force", "query", "boolean"));
    }
    if verb == "list" || verb == "deletecollection" {
        parameters.extend(query(&[
            ("allowWatchBookmarks", "boolean"),
            ("continue", "string"),
            ("fieldSelector", "string"),
            ("labelSelector", "string"),
            ("limit", "integer"),
            ("resourceVersion", "string"),
            ("resourceVersionMatch", "string"),
            ("sendInitialEvents", "boolean"),
            ("timeoutSeconds", "integer"),
            ("watch", "boolean"),
        ]));
    }
    parameters
}

/// Returns the contents of a verb's body, by their type; `None` for a verb without one.
fn request_body(verb: &str, of: &str, custom: bool) -> Option<Value> {
    match verb {
        "create" | "update" => Some(json!({"*/*": reference(of)})),
        "patch" => {
            let mut types = vec![
                "application/apply-patch+yaml",
                "application/json-patch+json",
                "application/merge-patch+json",
            ];
            if !custom {
                types.push("application/strategic-merge-patch+json");
            }
            let bodies: Map<String, Value> = types
                .into_iter()
                .map(|name| (name.to_owned(), reference(PATCH)))
                .collect();
            Some(Value::Object(bodies))
        }
        "delete" | "deletecollection" => Some(json!({"*/*": reference(DELETE_OPTIONS)})),
        _ => None,
    }
}
