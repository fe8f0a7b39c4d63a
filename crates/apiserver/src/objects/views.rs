//! Views of objects that clients may ask for: tables for users, and metadata only.

use serde_json::{Map, Value, json};

use crate::registry::Resource;
use crate::values::fields::TEMPLATE_GENERATION;

mod cells;
mod columns;
mod network;
mod nodes;
mod pods;
mod policies;
mod scale;
mod storage;
mod workloads;

/// How an object is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum View {
    /// The whole object.
    Whole,
    /// A table with a row for each object.
    Table(Included),
    /// Metadata only.
    Metadata,
}

/// What the rows of a table contain of their objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Included {
    /// Nothing.
    Nothing,
    /// The metadata.
    Metadata,
    /// The whole object.
    Object,
}

impl View {
    /// Returns the view that a request asks for; `None` when it accepts no supported one.
    pub(crate) fn negotiate(accept: &str, include: &str) -> Option<Self> {
        if accept.is_empty() {
            return Some(Self::Whole);
        }
        accept.split(',').find_map(|clause| {
            let mut words = clause.split(';').map(str::trim);
            let readable = matches!(
                words.next(),
                Some("application/json" | "*/*" | "application/*" | "application/yaml")
            );
            let parameters: Vec<(&str, &str)> =
                words.filter_map(|word| word.split_once('=')).collect();
            let value = |name: &str| {
                let found = parameters.iter().find(|(key, _)| *key == name);
                found.map_or("", |(_, value)| *value)
            };
            let of_meta = value("g") == "meta.k8s.io" && value("v") == "v1";
            match value("as") {
                "" => readable.then_some(Self::Whole),
                "Table" if readable && of_meta => Some(Self::Table(match include {
                    "None" => Included::Nothing,
                    "Object" => Included::Object,
                    _ => Included::Metadata,
                })),
                "PartialObjectMetadata" | "PartialObjectMetadataList" if readable && of_meta => {
                    Some(Self::Metadata)
                }
                _ => None,
            }
        })
    }

    /// Returns the view of an answer, one object or a list. Refusals stay unchanged.
    pub(crate) fn of(self, resource: &Resource, body: Value) -> Value {
        if self == Self::Whole || body["kind"] == "Status" {
            return body;
        }
        let is_list = body["items"].is_array() && body["kind"] == resource.list_kind.as_str();
        match self {
            Self::Whole => body,
            Self::Metadata if is_list => {
                let items = body["items"].as_array().into_iter().flatten();
                let items: Vec<Value> = items.map(|item| metadata(resource, item)).collect();
                // an empty list of this kind is `null`, unlike other lists
                let items = if items.is_empty() {
                    Value::Null
                } else {
                    Value::Array(items)
                };
                json!({
                    "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1",
                    "metadata": list_metadata(&body), "items": items,
                })
            }
            Self::Metadata => metadata(resource, &body),
            Self::Table(included) => {
                let objects: Vec<&Value> = if is_list {
                    body["items"].as_array().into_iter().flatten().collect()
                } else {
                    vec![&body]
                };
                let list_metadata = if is_list {
                    list_metadata(&body)
                } else {
                    json!({"resourceVersion": body["metadata"]["resourceVersion"]})
                };
                let rows: Vec<Value> = objects
                    .into_iter()
                    .map(|object| row(resource, object, included))
                    .collect();
                // tables of kinds without columns of their own are made elsewhere
                let rows = if rows.is_empty() && columns::are_of_any_kind(resource) {
                    Value::Null
                } else {
                    Value::Array(rows)
                };
                let definitions = if body["kind"] == scale::KIND {
                    scale::definitions(resource)
                } else {
                    columns::definitions(resource)
                };
                json!({
                    "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": list_metadata,
                    "columnDefinitions": definitions, "rows": rows,
                })
            }
        }
    }

    /// Returns the view of an object in a watch event; only the first table has columns.
    pub(crate) fn of_event(self, resource: &Resource, object: Value, is_first: bool) -> Value {
        let mut view = self.of(resource, object);
        if matches!(self, Self::Table(_)) && !is_first && view["kind"] == "Table" {
            view["columnDefinitions"] = Value::Null;
        }
        view
    }
}

/// Returns the metadata of a list. The metadata of whole custom objects always has a continue token, even an empty one, which views leave
/// out.
fn list_metadata(list: &Value) -> Value {
    let mut metadata = list["metadata"].clone();
    if metadata["continue"] == ""
        && let Some(fields) = metadata.as_object_mut()
    {
        fields.remove("continue");
    }
    metadata
}

fn metadata(resource: &Resource, object: &Value) -> Value {
    let mut metadata = object["metadata"].clone();
    // a real server adds it when it writes the whole object
    if resource.storage == "daemonsets.apps"
        && let Some(annotations) = metadata["annotations"].as_object_mut()
    {
        annotations.remove(TEMPLATE_GENERATION);
        if annotations.is_empty()
            && let Some(fields) = metadata.as_object_mut()
        {
            fields.remove("annotations");
        }
    }
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata})
}

fn row(resource: &Resource, object: &Value, included: Included) -> Value {
    let mut row = Map::new();
    let cells = if object["kind"] == scale::KIND {
        scale::cells(object)
    } else {
        cells::of(resource, object)
    };
    row.insert("cells".into(), Value::Array(cells));
    let conditions = pods::row_conditions(resource, object);
    if !conditions.is_null() {
        row.insert("conditions".into(), conditions);
    }
    let object = match included {
        Included::Nothing => Value::Null,
        Included::Metadata => metadata(resource, object),
        Included::Object => {
            let mut object = object.clone();
            if object["kind"] != scale::KIND {
                object["apiVersion"] = json!(resource.api_version());
                object["kind"] = json!(resource.kind);
            }
            object
        }
    };
    row.insert("object".into(), object);
    Value::Object(row)
}

#[cfg(test)]
mod tests;
