//! Views of objects that clients may ask for: tables for users, and metadata only.

use serde_json::{Map, Value, json};

use crate::registry::Resource;

mod cells;
mod columns;
mod network;
mod nodes;
mod pods;
mod policies;
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
                let items: Vec<Value> = items.map(metadata).collect();
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
            Self::Metadata => metadata(&body),
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
                json!({
                    "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": list_metadata,
                    "columnDefinitions": columns::definitions(resource), "rows": rows,
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

fn metadata(object: &Value) -> Value {
    json!({
        "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"],
    })
}

fn row(resource: &Resource, object: &Value, included: Included) -> Value {
    let mut row = Map::new();
    row.insert("cells".into(), Value::Array(cells::of(resource, object)));
    let conditions = pods::row_conditions(resource, object);
    if !conditions.is_null() {
        row.insert("conditions".into(), conditions);
    }
    let object = match included {
        Included::Nothing => Value::Null,
        Included::Metadata => metadata(object),
        Included::Object => {
            let mut object = object.clone();
            object["apiVersion"] = json!(resource.api_version());
            object["kind"] = json!(resource.kind);
            object
        }
    };
    row.insert("object".into(), object);
    Value::Object(row)
}

#[cfg(test)]
mod tests;
