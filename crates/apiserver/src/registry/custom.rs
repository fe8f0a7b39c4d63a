//! The resources that definitions of custom resources add.

use std::cmp::Reverse;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::columns::PrinterColumn;
use super::definition::{is_true, strings, text};
use super::resource::{Custom, Resource, Subresource, storage_name};
use crate::schema::rules::Rules;

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// Returns the resources of a definition, one for each served version.
pub(super) fn resources_of(definition: &Value) -> Vec<Resource> {
    let spec = &definition["spec"];
    let names = &definition["status"]["acceptedNames"];
    if !is_true(definition, "Established") {
        return Vec::new();
    }
    let mut versions: Vec<&Value> = spec["versions"].as_array().into_iter().flatten().collect();
    let storage = versions.iter().find(|version| version["storage"] == true);
    let storage_version = storage
        .map(|version| text(&version["name"]))
        .unwrap_or_default();
    let storage_schema = storage.map_or(Value::Null, |version| {
        with_meta(&version["schema"]["openAPIV3Schema"])
    });
    let storage_schema = Arc::new(storage_schema);
    let schemas = versions.iter().map(|version| {
        (
            text(&version["name"]),
            with_meta(&version["schema"]["openAPIV3Schema"]),
        )
    });
    let schemas = Arc::new(schemas.collect::<Vec<_>>());
    versions.sort_by_cached_key(|version| Priority::of(&text(&version["name"])));
    let group = text(&spec["group"]);
    versions
        .into_iter()
        .filter(|version| version["served"] == true)
        .map(|version| {
            let raw = version["schema"]["openAPIV3Schema"].clone();
            let plural = text(&names["plural"]);
            let subresources = custom_subresources(version, &group, &text(&names["kind"]));
            let warning = || {
                let kind = text(&names["kind"]);
                let name = text(&version["name"]);
                let newer = spec["versions"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .find(|other| other["served"] == true && other["deprecated"] != true);
                match newer.and_then(|newer| newer["name"].as_str()) {
                    Some(newer) => {
                        format!("{group}/{name} {kind} is deprecated; use {group}/{newer} {kind}")
                    }
                    None => format!("{group}/{name} {kind} is deprecated"),
                }
            };
            let deprecation = (version["deprecated"] == true).then(|| {
                version["deprecationWarning"]
                    .as_str()
                    .map_or_else(warning, str::to_owned)
            });
            Resource {
                group: group.clone(),
                version: text(&version["name"]),
                singular: text(&names["singular"]),
                kind: text(&names["kind"]),
                list_kind: text(&names["listKind"]),
                namespaced: spec["scope"] == "Namespaced",
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
                subresources,
                storage: storage_name(&group, &plural),
                schema: with_meta(&raw),
                custom: Some(Custom {
                    status: version["subresources"]["status"].is_object(),
                    scale: scale_paths(&version["subresources"]["scale"]),
                    selectable: version["selectableFields"]
                        .as_array()
                        .into_iter()
                        .flatten()
                        .filter_map(|field| field["jsonPath"].as_str())
                        .map(|path| path.trim_start_matches('.').to_owned())
                        .collect(),
                    rules: Rules::compile(&raw),
                    storage_version: storage_version.clone(),
                    storage_schema: Arc::clone(&storage_schema),
                    versions: Arc::clone(&schemas),
                    terminating: is_true(definition, "Terminating"),
                    columns: PrinterColumn::of_version(version),
                    deprecation,
                }),
                plural,
            }
        })
        .collect()
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
        fields.insert("metadata".into(), json!({"$ref": OBJECT_META}));
        fields.insert("apiVersion".into(), json!({"type": "string"}));
        fields.insert("kind".into(), json!({"type": "string"}));
    }
    schema
}
