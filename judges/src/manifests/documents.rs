//! The valid objects, and where each is sent.

use std::collections::BTreeMap;

use serde_json::Value;

use super::schemas;

/// The files of the corpus.
const FILES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/api/manifests");
/// What the built-in kinds are, as a real server tells it.
const DISCOVERY: &str = include_str!("../../../crates/apiserver/corpus/facts/discovery.json");

/// A valid object.
#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    /// Its name in the corpus.
    pub id: String,
    /// The object.
    pub object: Value,
    /// Its resource and group, such as `deployments.apps`; without a group the resource alone.
    pub kind: String,
    /// Whether an object of this kind can be read and replaced.
    pub updatable: bool,
    /// Namespace of its own, also where the kind has none.
    pub namespace: String,
    /// Path of the objects of this kind in that namespace.
    pub collection: String,
    /// Name of its schema.
    pub schema: String,
}

/// Why the documents cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file could not be read.
    #[error("cannot read the documents below {FILES}")]
    Read(#[from] std::io::Error),
    /// A file does not have the right format.
    #[error("cannot read the documents of manifests")]
    Yaml(#[from] serde_yaml::Error),
    /// What is recorded of the kinds does not have the right format.
    #[error("cannot read the discovery")]
    Discovery(#[from] serde_json::Error),
    /// No built-in kind fits.
    #[error("document {id}: no built-in kind {kind} of {version}")]
    Kind {
        /// The document.
        id: String,
        /// Its kind.
        kind: String,
        /// Its group and version.
        version: String,
    },
}

/// Reads the documents.
///
/// # Errors
/// When a file cannot be read or does not have the right format, or a kind does not exist.
pub fn documents() -> Result<Vec<Document>, Error> {
    let discovery: Value = serde_json::from_str(DISCOVERY)?;
    let mut all = Vec::new();
    let files: Result<Vec<_>, _> = std::fs::read_dir(FILES)?.collect();
    let mut files: Vec<_> = files?.iter().map(std::fs::DirEntry::path).collect();
    files.sort();
    for file in files {
        let text = std::fs::read_to_string(file)?;
        let objects: BTreeMap<String, Value> = serde_yaml::from_str(&text)?;
        for (id, object) in objects {
            all.push(document(id, object, &discovery)?);
        }
    }
    Ok(all)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn document(id: String, object: Value, discovery: &Value) -> Result<Document, Error> {
    let (version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
    let missing = || Error::Kind {
        id: id.clone(),
        kind: kind.clone(),
        version: version.clone(),
    };
    let (prefix, entry) = resources(discovery)
        .find(|(at, entry)| *at == version && entry["responseKind"]["kind"] == kind.as_str())
        .ok_or_else(missing)?;
    let (group, _) = prefix.split_once('/').unwrap_or(("", &prefix));
    let schema = schemas::of_kind(group, &version, &kind).ok_or_else(missing)?;
    let root = if group.is_empty() { "api" } else { "apis" };
    let namespace = format!("manifests-{id}");
    let resource = text(&entry["resource"]);
    let collection = if entry["scope"] == "Namespaced" {
        format!("/{root}/{version}/namespaces/{namespace}/{resource}")
    } else {
        format!("/{root}/{version}/{resource}")
    };
    let verbs = entry["verbs"].as_array();
    let updatable = verbs.is_some_and(|verbs| verbs.iter().any(|verb| verb == "update"));
    let full = if group.is_empty() {
        resource
    } else {
        format!("{resource}.{group}")
    };
    Ok(Document {
        object: in_namespace(object, &namespace),
        id,
        kind: full,
        updatable,
        namespace,
        collection,
        schema,
    })
}

/// Returns every resource with its group and version.
fn resources(discovery: &Value) -> impl Iterator<Item = (String, &Value)> {
    let groups = ["api", "apis"]
        .into_iter()
        .flat_map(|part| discovery[part].as_array().into_iter().flatten());
    groups.flat_map(|group| {
        let name = text(&group["metadata"]["name"]);
        let versions = group["versions"].as_array().into_iter().flatten();
        versions.flat_map(move |version| {
            let number = text(&version["version"]);
            let full = if name.is_empty() {
                number
            } else {
                format!("{name}/{number}")
            };
            let resources = version["resources"].as_array().into_iter().flatten();
            resources.map(move |entry| (full.clone(), entry))
        })
    })
}

/// Puts the namespace in the place of `{ns}`.
fn in_namespace(object: Value, namespace: &str) -> Value {
    match object {
        Value::String(text) => Value::String(text.replace("{ns}", namespace)),
        Value::Array(list) => list
            .into_iter()
            .map(|item| in_namespace(item, namespace))
            .collect(),
        Value::Object(fields) => fields
            .into_iter()
            .map(|(name, field)| (name, in_namespace(field, namespace)))
            .collect(),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_built_in_kind_that_can_be_created_has_a_document() {
        let discovery: Value = serde_json::from_str(DISCOVERY).unwrap();
        let creatable = |entry: &Value| {
            let verbs = entry["verbs"].as_array().unwrap();
            verbs.iter().any(|verb| verb == "create")
        };
        let wanted: BTreeSet<(String, String)> = resources(&discovery)
            .filter(|(_, entry)| creatable(entry))
            .map(|(version, entry)| (version, text(&entry["responseKind"]["kind"])))
            .collect();
        let known: BTreeSet<(String, String)> = documents()
            .unwrap()
            .iter()
            .map(|one| (text(&one.object["apiVersion"]), text(&one.object["kind"])))
            .collect();
        assert_eq!(known, wanted);
    }

    #[test]
    fn a_document_is_sent_to_its_own_namespace_or_to_none() {
        let all = documents().unwrap();
        let at = |id: &str| {
            let found = all.iter().find(|one| one.id == id);
            found.map(|one| (one.kind.as_str(), one.collection.as_str()))
        };
        assert_eq!(
            at("deployment"),
            Some((
                "deployments.apps",
                "/apis/apps/v1/namespaces/manifests-deployment/deployments"
            ))
        );
        assert_eq!(at("node"), Some(("nodes", "/api/v1/nodes")));
    }
}
