//! Facts from the API server of a new cluster: discovery, schemas, columns of tables, and its initial objects.

use std::collections::BTreeMap;

use anyhow::{Context as _, bail};
use judges::api::Caller;
use serde_json::{Map, Value, json};

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const TABLE: &str = "application/json;as=Table;g=meta.k8s.io;v=v1";
const JSON: &str = "application/json";
/// Lists of the initial objects of a new cluster, except those that describe the server itself.
const BOOTSTRAP: [&str; 7] = [
    "/api/v1/namespaces",
    "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "/apis/rbac.authorization.k8s.io/v1/roles",
    "/apis/rbac.authorization.k8s.io/v1/rolebindings",
    "/apis/scheduling.k8s.io/v1/priorityclasses",
    "/api/v1/configmaps",
];

async fn get(caller: &Caller, path: &str, accept: &str) -> anyhow::Result<Value> {
    let body = caller.get(path, accept).await?;
    serde_json::from_slice(&body).with_context(|| format!("{path} is no JSON"))
}

fn entries(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Returns what the server's version says of Kubernetes; the rest is about its build.
pub(super) async fn version(caller: &Caller) -> anyhow::Result<Value> {
    let mut all = get(caller, "/version", JSON).await?;
    let [major, minor, git] = ["major", "minor", "gitVersion"].map(|name| all[name].take());
    Ok(json!({"major": major, "minor": minor, "gitVersion": git}))
}

/// Returns groups, versions and resources.
pub(super) async fn discovery(caller: &Caller) -> anyhow::Result<Value> {
    let mut parts = json!({});
    for part in ["api", "apis"] {
        parts[part] = get(caller, &format!("/{part}"), AGGREGATED).await?["items"].take();
    }
    Ok(parts)
}

/// The type whose fields keep their descriptions: every object has them, and descriptions of all types would be longer than all other facts.
const EXPLAINED: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// Returns the schemas of all documents by name, without descriptions but those of the fields that every object has.
pub(super) async fn schemas(caller: &Caller) -> anyhow::Result<BTreeMap<String, Value>> {
    let index = get(caller, "/openapi/v3", JSON).await?;
    let mut all = BTreeMap::new();
    for (part, place) in index["paths"].as_object().into_iter().flatten() {
        let mut document = get(caller, text(&place["serverRelativeURL"]), JSON).await?;
        let Value::Object(schemas) = document["components"]["schemas"].take() else {
            continue;
        };
        for (name, schema) in schemas {
            let schema = if name == EXPLAINED {
                explained(schema)
            } else {
                without_prose(schema)
            };
            match all.get(&name) {
                Some(known) if *known != schema => bail!("{part} has a different schema {name}"),
                _ => all.insert(name, schema),
            };
        }
    }
    Ok(all)
}

/// Returns a schema whose fields have their descriptions.
fn explained(mut schema: Value) -> Value {
    let mut plain = without_prose(schema.clone());
    for (name, field) in schema["properties"].as_object_mut().into_iter().flatten() {
        plain["properties"][name]["description"] = field["description"].take();
    }
    plain
}

/// Returns a schema without descriptions. References become plain names, beside what the place of use adds.
fn without_prose(schema: Value) -> Value {
    let Value::Object(mut words) = schema else {
        return match schema {
            Value::Array(list) => list.into_iter().map(without_prose).collect(),
            other => other,
        };
    };
    if words.get("description").is_some_and(Value::is_string) {
        words.remove("description");
    }
    words.remove("x-kubernetes-unions");
    if let Some([only]) = words
        .get("allOf")
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        && let Some(reference) = only.get("$ref").cloned()
    {
        words.remove("allOf");
        words.insert("$ref".into(), reference);
    }
    let mut plain = Map::new();
    for (word, value) in words {
        let value = match (word.as_str(), value) {
            ("$ref", Value::String(path)) => {
                json!(path.trim_start_matches("#/components/schemas/"))
            }
            ("properties", Value::Object(fields)) => fields
                .into_iter()
                .map(|(name, field)| (name, without_prose(field)))
                .collect(),
            ("default", value) => value,
            (_, value) => without_prose(value),
        };
        plain.insert(word, value);
    }
    Value::Object(plain)
}

/// Returns the columns of tables by the resource that they show: name, type, format, priority and description of each.
pub(super) async fn columns(
    caller: &Caller,
    discovery: &Value,
) -> anyhow::Result<BTreeMap<String, Value>> {
    let mut all = BTreeMap::new();
    for part in ["api", "apis"] {
        for group in entries(&discovery[part]) {
            let name = text(&group["metadata"]["name"]);
            for version in entries(&group["versions"]) {
                let place = match name {
                    "" => format!("/api/{}", text(&version["version"])),
                    name => format!("/apis/{name}/{}", text(&version["version"])),
                };
                for resource in entries(&version["resources"]) {
                    let plural = text(&resource["resource"]);
                    if !entries(&resource["verbs"]).any(|verb| verb == "list") {
                        continue;
                    }
                    // both groups of events show the same
                    let key = match name {
                        "" | "events.k8s.io" => plural.to_owned(),
                        name => format!("{plural}.{name}"),
                    };
                    let path = format!("{place}/{plural}?limit=1");
                    let table = get(caller, &path, TABLE).await?;
                    let columns: Vec<Value> = entries(&table["columnDefinitions"])
                        .map(|column| {
                            ["name", "type", "format", "priority", "description"]
                                .iter()
                                .map(|field| column[*field].clone())
                                .collect()
                        })
                        .collect();
                    all.entry(key).or_insert(Value::Array(columns));
                }
            }
        }
    }
    Ok(all)
}

/// Returns the objects of a new cluster, without the fields that differ between servers.
pub(super) async fn bootstrap(caller: &Caller) -> anyhow::Result<Vec<Value>> {
    let mut objects = Vec::new();
    for path in BOOTSTRAP {
        let mut list = get(caller, path, JSON).await?;
        let kind = text(&list["kind"]).trim_end_matches("List").to_owned();
        let version = list["apiVersion"].clone();
        let Value::Array(items) = list["items"].take() else {
            bail!("{path} is no list");
        };
        for mut object in items {
            let metadata = &object["metadata"];
            let place = [&metadata["name"], &metadata["namespace"]].map(text);
            if place == ["extension-apiserver-authentication", "kube-system"] {
                // certificates of this server
                continue;
            }
            object["apiVersion"] = version.clone();
            object["kind"] = json!(kind);
            if let Some(metadata) = object["metadata"].as_object_mut() {
                for field in [
                    "uid",
                    "resourceVersion",
                    "creationTimestamp",
                    "managedFields",
                ] {
                    metadata.remove(field);
                }
            }
            if object["data"]["since"].is_string() {
                // the day on which the cluster was created
                object["data"]["since"] = json!("");
            }
            objects.push(object);
        }
    }
    Ok(objects)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_lose_their_place_and_schemas_their_prose() {
        let schema = json!({"description": "text", "properties": {
            "description": {"description": "text", "type": "string", "default": ""},
            "inner": {"allOf": [{"$ref": "#/components/schemas/io.k8s.X"}], "default": {}}}});
        assert_eq!(
            without_prose(schema),
            json!({"properties": {"description": {"type": "string", "default": ""},
                "inner": {"$ref": "io.k8s.X", "default": {}}}})
        );
    }

    #[test]
    fn fields_of_every_object_keep_their_prose() {
        let schema = json!({"description": "type", "properties": {
            "inner": {"description": "field", "allOf": [{"$ref": "#/components/schemas/io.k8s.X"}]}}});
        assert_eq!(
            explained(schema),
            json!({"properties": {"inner": {"description": "field", "$ref": "io.k8s.X"}}})
        );
    }
}
