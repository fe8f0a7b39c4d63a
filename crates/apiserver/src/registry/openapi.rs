//! OpenAPI documents: an index, one document of version 3 for each group version, and definitions of version 2.
//!
//! Schemas of built-in kinds have no descriptions, but the fields that every object has. Operations have what clients need: kind, patch types, parameters.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha512};

use super::built_in::kubernetes_version;
use super::resource::Resource;
use super::table::Table;
use crate::schema;
use crate::values::fields::members;

mod operations;
mod version_2;

const REFERENCE: &str = "$ref";
const STATUS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Status";
const DELETE_OPTIONS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions";
const PATCH: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Patch";
const LIST_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta";

/// Returns the index of documents: `api/v1`, `apis/apps/v1`, ..., each with a digest of its contents.
pub(crate) fn index(table: &Table) -> Value {
    let mut digests: BTreeMap<String, Sha512> = BTreeMap::new();
    for resource in &table.ordered {
        let digest = digests.entry(part(resource)).or_default();
        digest.update(&resource.plural);
        digest.update(&resource.kind);
        digest.update(resource.schema_text());
    }
    let paths: Map<String, Value> = digests
        .into_iter()
        .map(|(part, digest)| {
            let hash = uppercase_hex(&digest.finalize());
            let url = format!("/openapi/v3/{part}?hash={hash}");
            (part, json!({"serverRelativeURL": url}))
        })
        .collect();
    json!({"paths": paths})
}

fn uppercase_hex(bytes: &[u8]) -> String {
    const DIGITS: [char; 16] = [
        '0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'A', 'B', 'C', 'D', 'E', 'F',
    ];
    bytes
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 15])
        .map(|digit| DIGITS[usize::from(digit)])
        .collect()
}

fn part(resource: &Resource) -> String {
    if resource.group.is_empty() {
        format!("api/{}", resource.version)
    } else {
        format!("apis/{}/{}", resource.group, resource.version)
    }
}

/// Returns the document of a group version, named as in the index; `None` when there is none.
pub(crate) fn document(table: &Table, wanted: &str) -> Option<Value> {
    let mut paths = Map::new();
    let mut needed = BTreeSet::from([STATUS, DELETE_OPTIONS, PATCH].map(str::to_owned));
    let mut schemas = Map::new();
    for resource in table.ordered.iter().filter(|one| part(one) == wanted) {
        let name = schema_name(resource);
        if resource.custom.is_some() {
            custom_schemas(resource, &name, &mut schemas, &mut needed);
        } else {
            needed.insert(name.clone());
            needed.insert(format!("{name}List"));
        }
        operations::add_paths(resource, &name, &mut paths);
    }
    if paths.is_empty() {
        return None;
    }
    // referenced schemas have references themselves
    while let Some(name) = needed.pop_first() {
        if schemas.contains_key(&name) {
            continue;
        }
        if let Some(known) = schema::built_in().get(&name) {
            references(known, &mut needed);
            schemas.insert(name, converted(known));
        }
    }
    Some(json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": kubernetes_version()["gitVersion"]},
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": {
            "BearerToken": {"type": "apiKey", "name": "authorization", "in": "header"}}},
    }))
}

/// Returns the definitions of all kinds, in version 2.
pub(crate) fn version_2(table: &Table) -> Value {
    let mut definitions: Map<String, Value> = schema::built_in()
        .iter()
        .map(|(name, known)| (name.clone(), renamed(known, "#/definitions/")))
        .collect();
    for resource in table.ordered.iter().filter(|one| one.custom.is_some()) {
        let name = schema_name(resource);
        let reduced = version_2::root(resource.schema().raw());
        let schema = with_kind(renamed(&reduced, "#/definitions/"), resource);
        definitions.insert(name, schema);
    }
    json!({
        "swagger": "2.0", "info": {"title": "Kubernetes", "version": kubernetes_version()["gitVersion"]},
        "paths": {}, "definitions": definitions,
    })
}

/// Returns the name of the schema of a resource's objects: that of the built-in type, or one that begins with the labels of the group in
/// reverse order.
fn schema_name(resource: &Resource) -> String {
    let known = resource.schema().full_name();
    if !known.is_empty() {
        return known.to_owned();
    }
    let mut labels: Vec<&str> = resource.group.split('.').collect();
    labels.reverse();
    format!(
        "{}.{}.{}",
        labels.join("."),
        resource.version,
        resource.kind
    )
}

fn with_kind(mut schema: Value, resource: &Resource) -> Value {
    if let Some(schema) = schema.as_object_mut() {
        let kind =
            json!([{"group": resource.group, "version": resource.version, "kind": resource.kind}]);
        schema.insert("x-kubernetes-group-version-kind".into(), kind);
    }
    schema
}

fn custom_schemas(
    resource: &Resource,
    name: &str,
    schemas: &mut Map<String, Value>,
    needed: &mut BTreeSet<String>,
) {
    let raw = resource.schema().raw();
    references(raw, needed);
    needed.insert(LIST_META.to_owned());
    schemas.insert(name.to_owned(), with_kind(converted(raw), resource));
    let list = json!({
        "type": "object", "required": ["items"], "properties": {
            "apiVersion": {"type": "string"}, "kind": {"type": "string"},
            "metadata": {"allOf": [{REFERENCE: format!("#/components/schemas/{LIST_META}")}]},
            "items": {"type": "array", "items": {"allOf": [{REFERENCE: format!("#/components/schemas/{name}")}]}},
        },
        "x-kubernetes-group-version-kind": [
            {"group": resource.group, "version": resource.version, "kind": resource.list_kind}],
    });
    schemas.insert(format!("{name}List"), list);
}

/// Collects the names of the types that a schema refers to.
fn references(schema: &Value, found: &mut BTreeSet<String>) {
    match schema {
        Value::Object(fields) => {
            for (key, value) in fields {
                match value.as_str() {
                    Some(name) if key == REFERENCE => {
                        found.insert(name.to_owned());
                    }
                    _ => references(value, found),
                }
            }
        }
        Value::Array(list) => list.iter().for_each(|value| references(value, found)),
        _ => {}
    }
}

/// Returns a schema with its references in the form of version 3: alone, or in an `allOf` when the schema has other keywords.
fn converted(schema: &Value) -> Value {
    match schema {
        Value::Object(fields) => {
            let mut out = Map::new();
            for (key, value) in fields {
                match value.as_str() {
                    Some(name) if key == REFERENCE => {
                        let target = format!("#/components/schemas/{name}");
                        if fields.len() == 1 {
                            out.insert(REFERENCE.into(), json!(target));
                        } else {
                            out.insert("allOf".into(), json!([{REFERENCE: target}]));
                        }
                    }
                    // names of fields are not keywords
                    _ if key == "properties" => {
                        let fields = members(value);
                        let fields = fields.map(|(name, field)| (name.clone(), converted(field)));
                        out.insert(key.clone(), fields.collect());
                    }
                    // literals are not schemas
                    _ if key == "default" || key == "enum" || key == "example" => {
                        out.insert(key.clone(), value.clone());
                    }
                    _ => {
                        out.insert(key.clone(), converted(value));
                    }
                }
            }
            Value::Object(out)
        }
        Value::Array(list) => list.iter().map(converted).collect(),
        other => other.clone(),
    }
}

fn renamed(schema: &Value, prefix: &str) -> Value {
    match schema {
        Value::Object(fields) => fields
            .iter()
            .map(|(key, value)| match value.as_str() {
                Some(name) if key == REFERENCE => (key.clone(), json!(format!("{prefix}{name}"))),
                _ => (key.clone(), renamed(value, prefix)),
            })
            .collect(),
        Value::Array(list) => list.iter().map(|value| renamed(value, prefix)).collect(),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Registry;
    use crate::storage::Store;

    #[test]
    fn every_reference_of_a_document_leads_somewhere() {
        let store = Store::new(1);
        let table = Registry::default().table(&store.lock());
        let index = index(&table);
        for part in index["paths"].as_object().unwrap().keys() {
            let document = document(&table, part).unwrap();
            let mut found = BTreeSet::new();
            references(&document, &mut found);
            let schemas = document["components"]["schemas"].as_object().unwrap();
            for reference in found {
                let name = reference.strip_prefix("#/components/schemas/").unwrap();
                assert!(schemas.contains_key(name), "{part}: {name}");
            }
        }
    }

    #[test]
    fn a_patch_of_a_built_in_kind_may_be_strategic_and_validated() {
        let store = Store::new(1);
        let table = Registry::default().table(&store.lock());
        let document = document(&table, "apis/apps/v1").unwrap();
        let patch =
            &document["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"]["patch"];
        assert!(
            patch["requestBody"]["content"]["application/strategic-merge-patch+json"].is_object()
        );
        let parameters = patch["parameters"].as_array().unwrap();
        assert!(
            parameters
                .iter()
                .any(|one| one["name"] == "fieldValidation")
        );
    }
}
