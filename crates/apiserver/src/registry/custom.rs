//! The resources that definitions of custom resources add.

use std::cmp::Reverse;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::columns::PrinterColumn;
use super::definition::{is_true, strings, text};
use super::resource::{Custom, Resource, Subresource, storage_name};
use crate::schema::rules::Rules;
use crate::values::fields::elements;

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// Returns the resources of a definition, one for each served version.
pub(super) fn resources_of(definition: &Value) -> Vec<Resource> {
    if !is_true(definition, "Established") {
        return Vec::new();
    }
    let mut versions: Vec<&Value> = elements(&definition["spec"]["versions"]).collect();
    let common = Common::of(definition, &versions);
    versions.sort_by_cached_key(|version| Priority::of(&text(&version["name"])));
    versions
        .into_iter()
        .filter(|version| version["served"] == true)
        .map(|version| common.resource(version))
        .collect()
}

/// What all versions of a definition have in common.
struct Common<'a> {
    definition: &'a Value,
    group: String,
    storage_version: String,
    storage_schema: Arc<Value>,
    /// All versions and their schemas.
    schemas: Arc<Vec<(String, Value)>>,
}

impl<'a> Common<'a> {
    fn of(definition: &'a Value, versions: &[&Value]) -> Self {
        let schema_of = |version: &Value| with_meta(&version["schema"]["openAPIV3Schema"]);
        let storage = versions.iter().find(|version| version["storage"] == true);
        let schemas = versions
            .iter()
            .map(|version| (text(&version["name"]), schema_of(version)));
        Self {
            definition,
            group: text(&definition["spec"]["group"]),
            storage_version: storage
                .map(|version| text(&version["name"]))
                .unwrap_or_default(),
            storage_schema: Arc::new(storage.map_or(Value::Null, |version| schema_of(version))),
            schemas: Arc::new(schemas.collect()),
        }
    }

    /// Returns the resource of a version.
    fn resource(&self, version: &Value) -> Resource {
        let names = &self.definition["status"]["acceptedNames"];
        let raw = &version["schema"]["openAPIV3Schema"];
        let plural = text(&names["plural"]);
        Resource {
            group: self.group.clone(),
            version: text(&version["name"]),
            singular: text(&names["singular"]),
            kind: text(&names["kind"]),
            list_kind: text(&names["listKind"]),
            namespaced: self.definition["spec"]["scope"] == "Namespaced",
            short_names: strings(&names["shortNames"]),
            categories: strings(&names["categories"]),
            verbs: [
                "delete",
                "deletecollection",
                "get",
                "list",
                "patch",
                "create",
                "update",
                "watch",
            ]
            .map(str::to_owned)
            .to_vec(),
            subresources: custom_subresources(version, &self.group, &text(&names["kind"])),
            storage: storage_name(&self.group, &plural),
            schema: with_meta(raw),
            custom: Some(self.custom(version, raw)),
            plural,
        }
    }

    /// Returns what only custom resources have.
    fn custom(&self, version: &Value, raw: &Value) -> Custom {
        Custom {
            status: version["subresources"]["status"].is_object(),
            scale: scale_paths(&version["subresources"]["scale"]),
            selectable: elements(&version["selectableFields"])
                .filter_map(|field| field["jsonPath"].as_str())
                .map(|path| path.trim_start_matches('.').to_owned())
                .collect(),
            rules: Rules::compile(raw),
            storage_version: self.storage_version.clone(),
            storage_schema: Arc::clone(&self.storage_schema),
            versions: Arc::clone(&self.schemas),
            terminating: is_true(self.definition, "Terminating"),
            columns: PrinterColumn::of_version(version),
            deprecation: (version["deprecated"] == true).then(|| {
                version["deprecationWarning"]
                    .as_str()
                    .map_or_else(|| self.deprecation(version), str::to_owned)
            }),
        }
    }

    /// Returns the warning about a deprecated version that has no warning of its own.
    fn deprecation(&self, version: &Value) -> String {
        let group = &self.group;
        let kind = text(&self.definition["status"]["acceptedNames"]["kind"]);
        let name = text(&version["name"]);
        let newer = elements(&self.definition["spec"]["versions"])
            .find(|other| other["served"] == true && other["deprecated"] != true);
        match newer.and_then(|newer| newer["name"].as_str()) {
            Some(newer) => {
                format!("{group}/{name} {kind} is deprecated; use {group}/{newer} {kind}")
            }
            None => format!("{group}/{name} {kind} is deprecated"),
        }
    }
}

/// Rank of a version: stable ones first, then betas and alphas, newer before older, then all other names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Priority {
    Versioned(u8, Reverse<u64>, Reverse<u64>),
    Other(String),
}

impl Priority {
    fn of(name: &str) -> Self {
        let parsed = || {
            let rest = name.strip_prefix('v')?;
            let number = |text: &str| -> Option<u64> { text.parse().ok().filter(|n| *n > 0) };
            for (stage, word) in [(1, "beta"), (2, "alpha")] {
                if let Some((major, minor)) = rest.split_once(word) {
                    let minor = if minor.is_empty() { 0 } else { number(minor)? };
                    return Some(Self::Versioned(
                        stage,
                        Reverse(number(major)?),
                        Reverse(minor),
                    ));
                }
            }
            Some(Self::Versioned(0, Reverse(number(rest)?), Reverse(0)))
        };
        parsed().unwrap_or_else(|| Self::Other(name.to_owned()))
    }
}

fn scale_paths(scale: &Value) -> Option<[String; 3]> {
    scale.is_object().then(|| {
        [
            "specReplicasPath",
            "statusReplicasPath",
            "labelSelectorPath",
        ]
        .map(|field| text(&scale[field]))
    })
}

fn custom_subresources(version: &Value, group: &str, kind: &str) -> Vec<Subresource> {
    let mut list = Vec::new();
    let verbs = ["get", "patch", "update"].map(str::to_owned).to_vec();
    if version["subresources"]["scale"].is_object() {
        list.push(Subresource {
            name: "scale".into(),
            kind: "Scale".into(),
            group: "autoscaling".into(),
            version: "v1".into(),
            verbs: verbs.clone(),
        });
    }
    if version["subresources"]["status"].is_object() {
        list.insert(
            0,
            Subresource {
                name: "status".into(),
                kind: kind.to_owned(),
                group: group.to_owned(),
                version: text(&version["name"]),
                verbs,
            },
        );
    }
    list
}

/// What Kubernetes says of the fields that every object has, for `kubectl explain`.
const CONVENTIONS: &str =
    "https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md";
const API_VERSION: &str = "APIVersion defines the versioned schema of this representation of an object. Servers should convert recognized schemas to the latest internal value, and may reject unrecognized values.";
const KIND: &str = "Kind is a string value representing the REST resource this object represents. Servers may infer this from the endpoint the client submits requests to. Cannot be updated. In CamelCase.";
const METADATA: &str = "Standard object's metadata.";

fn description(text: &str, heading: &str) -> String {
    format!("{text} More info: {CONVENTIONS}#{heading}")
}

/// Returns a custom resource's schema with the fields that every object has.
fn with_meta(raw: &Value) -> Value {
    let mut schema = raw.clone();
    if !schema.is_object() {
        schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    }
    let fields = schema.as_object_mut().map(|map| {
        map.entry("properties")
            .or_insert_with(|| Value::Object(Map::new()))
    });
    if let Some(Value::Object(fields)) = fields {
        let explained = |mut field: Value, text: &str, heading: &str| {
            field["description"] = json!(description(text, heading));
            field
        };
        let (reference, string) = (json!({"$ref": OBJECT_META}), json!({"type": "string"}));
        fields.insert(
            "metadata".into(),
            explained(reference, METADATA, "metadata"),
        );
        let version = explained(string.clone(), API_VERSION, "resources");
        fields.insert("apiVersion".into(), version);
        fields.insert("kind".into(), explained(string, KIND, "types-kinds"));
    }
    schema
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_that_every_object_has_are_explained() {
        let schema = with_meta(
            &json!({"type": "object", "description": "own", "properties": {
            "kind": {"type": "string", "description": "of the user"}}}),
        );
        let explained = |field: &str| text(&schema["properties"][field]["description"]);
        assert!(explained("apiVersion").starts_with("APIVersion defines"));
        assert!(explained("kind").starts_with("Kind is"));
        assert!(explained("metadata").starts_with("Standard object's metadata. More info: "));
        assert_eq!(schema["properties"]["metadata"]["$ref"], OBJECT_META);
        assert_eq!(schema["description"], "own");
    }
}
