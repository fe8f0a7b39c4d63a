//! The built-in resources, as a real server's discovery lists them.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use serde_json::{Value, json};

use super::definition::{strings, text};
use super::resource::{Resource, Subresource, storage_name};
use super::table::Table;
use crate::schema;
use crate::values::fields::elements;

static FACTS: LazyLock<Value> = LazyLock::new(|| {
    serde_json::from_str(include_str!("../../corpus/facts/discovery.json")).unwrap_or_default()
});

/// Returns the discovery of the built-in groups.
pub(crate) fn facts() -> &'static Value {
    &FACTS
}

static VERSION: LazyLock<Value> = LazyLock::new(|| {
    serde_json::from_str(include_str!("../../corpus/facts/version.json")).unwrap_or_default()
});

/// Returns `major`, `minor` and `gitVersion` of the Kubernetes that the facts are of.
pub(crate) fn kubernetes_version() -> &'static Value {
    &VERSION
}

/// The kinds with which subresources are written, where they differ from the resource's kind. Their objects are never stored.
static SUBRESOURCE_KINDS: LazyLock<HashMap<(String, String), Arc<Resource>>> =
    LazyLock::new(|| {
        let kinds = schema_by_kind();
        [
            ("autoscaling", "Scale"),
            ("policy", "Eviction"),
            ("authentication.k8s.io", "TokenRequest"),
            ("", "Binding"),
        ]
        .into_iter()
        .map(|(group, kind)| {
            let entry = json!({"responseKind": {"kind": kind}, "scope": "Namespaced"});
            let form = from_discovery(group, "v1", &entry, &kinds);
            ((group.to_owned(), kind.to_owned()), Arc::new(form))
        })
        .collect()
    });

static BUILT_IN: LazyLock<Table> = LazyLock::new(of_facts);

/// Returns the built-in resources.
pub(crate) fn built_in() -> &'static Table {
    &BUILT_IN
}

/// Returns whether a built-in resource has objects of this kind.
pub(crate) fn has_kind(api_version: &str, kind: &str) -> bool {
    BUILT_IN.of_kind(api_version, kind).is_some()
}

impl Resource {
    /// Returns the kind with which a subresource is written, where it is not the kind of this resource.
    pub(crate) fn subresource_kind(&self, subresource: &str) -> Option<&'static Resource> {
        let subresource = self.subresource(subresource)?;
        let key = (subresource.group.clone(), subresource.kind.clone());
        SUBRESOURCE_KINDS.get(&key).map(AsRef::as_ref)
    }
}

fn of_facts() -> Table {
    let kinds = schema_by_kind();
    let mut table = Table::default();
    for part in ["api", "apis"] {
        for group in elements(&FACTS[part]) {
            let name = text(&group["metadata"]["name"]);
            for version in elements(&group["versions"]) {
                let version_name = text(&version["version"]);
                for entry in elements(&version["resources"]) {
                    table.add(from_discovery(&name, &version_name, entry, &kinds));
                }
            }
        }
    }
    table
}

fn schema_by_kind() -> HashMap<(String, String, String), String> {
    let mut kinds = HashMap::new();
    for (name, schema) in schema::built_in() {
        for kind in elements(&schema["x-kubernetes-group-version-kind"]) {
            let key = (
                text(&kind["group"]),
                text(&kind["version"]),
                text(&kind["kind"]),
            );
            kinds.insert(key, name.clone());
        }
    }
    kinds
}

fn from_discovery(
    group: &str,
    version: &str,
    entry: &Value,
    kinds: &HashMap<(String, String, String), String>,
) -> Resource {
    let plural = text(&entry["resource"]);
    let kind = text(&entry["responseKind"]["kind"]);
    let subresources = elements(&entry["subresources"]);
    let schema = kinds
        .get(&(group.to_owned(), version.to_owned(), kind.clone()))
        .map_or(json!(true), |name| json!({"$ref": name}));
    Resource {
        group: group.to_owned(),
        version: version.to_owned(),
        singular: text(&entry["singularResource"]),
        list_kind: format!("{kind}List"),
        namespaced: entry["scope"] == "Namespaced",
        short_names: strings(&entry["shortNames"]),
        categories: strings(&entry["categories"]),
        verbs: strings(&entry["verbs"]),
        subresources: subresources
            .map(|sub| Subresource {
                name: text(&sub["subresource"]),
                kind: text(&sub["responseKind"]["kind"]),
                group: text(&sub["responseKind"]["group"]),
                version: text(&sub["responseKind"]["version"]),
                verbs: strings(&sub["verbs"]),
            })
            .collect(),
        storage: storage_name(group, &plural),
        custom: None,
        schema,
        plural,
        kind,
    }
}
