//! Discovery: groups, versions and resources for clients, in the aggregated and in the older form.

use std::net::SocketAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::built_in::{facts, kubernetes_version};
use super::resource::{Resource, group_version};
use super::table::Table;

/// Returns the version that the server reports.
pub(crate) fn version() -> Value {
    let kubernetes = kubernetes_version();
    json!({
        "major": kubernetes["major"], "minor": kubernetes["minor"], "gitVersion": kubernetes["gitVersion"],
        "gitCommit": "", "gitTreeState": "", "buildDate": "1970-01-01T00:00:00Z", "goVersion": "", "compiler": "",
        "platform": "linux/amd64",
    })
}

/// Returns the aggregated document of `/api` or `/apis`.
pub(crate) fn aggregated(table: &Table, part: &str) -> Value {
    let mut items = facts()[part].as_array().cloned().unwrap_or_default();
    if part == "apis" {
        for resource in table.ordered.iter().filter(|r| r.custom.is_some()) {
            let entry = aggregated_entry(resource);
            let group = find_or_add(
                &mut items,
                |item| item["metadata"]["name"] == resource.group.as_str(),
                || json!({"metadata": {"name": resource.group}, "versions": []}),
            );
            let Some(versions) = group["versions"].as_array_mut() else {
                continue;
            };
            let version = find_or_add(
                versions,
                |item| item["version"] == resource.version.as_str(),
                || json!({"version": resource.version, "freshness": "Current", "resources": []}),
            );
            if let Some(list) = version["resources"].as_array_mut() {
                list.push(entry);
            }
        }
    }
    json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items})
}

fn find_or_add(
    list: &mut Vec<Value>,
    is: impl Fn(&Value) -> bool,
    new: impl Fn() -> Value,
) -> &mut Value {
    let index = list.iter().position(is).unwrap_or_else(|| {
        list.push(new());
        list.len() - 1
    });
    &mut list[index]
}

fn aggregated_entry(resource: &Resource) -> Value {
    let kind = |group: &str, version: &str, kind: &str| json!({"group": group, "version": version, "kind": kind});
    let mut entry = json!({
        "resource": resource.plural,
        "responseKind": kind(&resource.group, &resource.version, &resource.kind),
        "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": resource.singular,
        "verbs": resource.verbs,
    });
    if !resource.short_names.is_empty() {
        entry["shortNames"] = json!(resource.short_names);
    }
    if !resource.categories.is_empty() {
        entry["categories"] = json!(resource.categories);
    }
    if !resource.subresources.is_empty() {
        entry["subresources"] = resource
            .subresources
            .iter()
            .map(|sub| {
                json!({"subresource": sub.name, "responseKind": kind(&sub.group, &sub.version, &sub.kind), "verbs": sub.verbs})
            })
            .collect();
    }
    entry
}

/// Returns the older documents: `/api`, `/apis`, `/apis/G`, `/api/v1`, `/apis/G/V`; `None` where there is none.
pub(crate) fn legacy(table: &Table, segments: &[&str], address: SocketAddr) -> Option<Value> {
    match segments {
        ["api"] => {
            let everybody = json!([{"clientCIDR": "0.0.0.0/0", "serverAddress": address}]);
            Some(json!({
                "kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": everybody,
            }))
        }
        ["apis"] => {
            let mut names: Vec<&str> = Vec::new();
            for resource in &table.ordered {
                if !resource.group.is_empty() && !names.contains(&resource.group.as_str()) {
                    names.push(&resource.group);
                }
            }
            let groups: Vec<Value> = names.into_iter().map(|name| group(table, name)).collect();
            Some(json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}))
        }
        ["apis", name] => {
            let mut document = group(table, name);
            if document["versions"].as_array().is_none_or(Vec::is_empty) {
                return None;
            }
            document["kind"] = json!("APIGroup");
            document["apiVersion"] = json!("v1");
            Some(document)
        }
        ["api", version] => resources(table, "", version),
        ["apis", group, version] => resources(table, group, version),
        _ => None,
    }
}

fn group(table: &Table, name: &str) -> Value {
    let mut versions: Vec<Value> = Vec::new();
    for resource in table.ordered.iter().filter(|r| r.group == name) {
        let entry = json!({"groupVersion": resource.api_version(), "version": resource.version});
        if !versions.contains(&entry) {
            versions.push(entry);
        }
    }
    let preferred = versions.first().cloned().unwrap_or(Value::Null);
    json!({"name": name, "versions": versions, "preferredVersion": preferred})
}

/// Returns the hash by which clients notice that the storage version has changed.
fn storage_hash(resource: &Resource) -> String {
    let version = match &resource.custom {
        Some(custom) => &custom.storage_version,
        None => &resource.version,
    };
    let digest = Sha256::digest(format!("{}/{version}/{}", resource.group, resource.kind));
    STANDARD.encode(&digest[..8])
}

fn resources(table: &Table, group: &str, version: &str) -> Option<Value> {
    let mut list = Vec::new();
    for resource in &table.ordered {
        if resource.group != group || resource.version != version {
            continue;
        }
        let mut entry = json!({
            "name": resource.plural, "singularName": resource.singular, "namespaced": resource.namespaced,
            "kind": resource.kind, "verbs": resource.verbs,
        });
        if !resource.short_names.is_empty() {
            entry["shortNames"] = json!(resource.short_names);
        }
        if !resource.categories.is_empty() {
            entry["categories"] = json!(resource.categories);
        }
        if resource.custom.is_some() {
            entry["storageVersionHash"] = json!(storage_hash(resource));
        }
        list.push(entry);
        for sub in &resource.subresources {
            let mut entry = json!({
                "name": format!("{}/{}", resource.plural, sub.name), "singularName": "",
                "namespaced": resource.namespaced, "kind": sub.kind, "verbs": sub.verbs,
            });
            if (sub.group.as_str(), sub.version.as_str()) != (group, version)
                && !sub.version.is_empty()
            {
                entry["group"] = json!(sub.group);
                entry["version"] = json!(sub.version);
            }
            list.push(entry);
        }
    }
    (!list.is_empty()).then(|| {
        json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version(group, version), "resources": list})
    })
}
