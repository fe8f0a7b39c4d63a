//! Views of objects that clients may ask for: tables for users, and metadata only.

use std::borrow::Cow;

use serde_json::{Map, Value, json};

use super::{custom, events};
use crate::registry::Resource;
use crate::values::fields::{TEMPLATE_GENERATION, elements};

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

/// A list without its items.
#[derive(Debug)]
pub(crate) struct ListFrame {
    /// All fields but the one with the items.
    pub(crate) fields: Value,
    /// The name of the field with the items.
    pub(crate) items: &'static str,
    /// What stands there when there are none.
    pub(crate) empty: Value,
}

/// Returns an object in the version of a resource: itself, if it is stored like that.
pub(crate) fn whole<'v>(resource: &Resource, object: &'v Value) -> Cow<'v, Value> {
    let shown = custom::in_requested_version(resource, object);
    let is_of_kind = object["kind"] == resource.kind.as_str()
        && object["apiVersion"] == resource.api_version().as_str();
    if is_of_kind && matches!(shown, Cow::Borrowed(_)) {
        return shown;
    }
    let mut object = shown.into_owned();
    object["apiVersion"] = json!(resource.api_version());
    object["kind"] = json!(resource.kind);
    events::from_core_form(resource, &mut object);
    Cow::Owned(object)
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
        if body["items"].is_array() && body["kind"] == resource.list_kind.as_str() {
            let ListFrame {
                mut fields,
                items,
                empty,
            } = self.list(resource, &body["metadata"]);
            let objects = elements(&body["items"]);
            let shown: Vec<Value> = objects.map(|object| self.item(resource, object)).collect();
            fields[items] = if shown.is_empty() {
                empty
            } else {
                shown.into()
            };
            return fields;
        }
        let item = self.item(resource, &body);
        if self == Self::Metadata {
            return item;
        }
        let definitions = if body["kind"] == scale::KIND {
            scale::definitions(resource)
        } else {
            columns::definitions(resource)
        };
        let version = json!({"resourceVersion": body["metadata"]["resourceVersion"]});
        let mut table = table(&version, &definitions);
        table["rows"] = json!([item]);
        table
    }

    /// Returns a list in this view without its items; `metadata` is that of the list of whole objects.
    pub(crate) fn list(self, resource: &Resource, metadata: &Value) -> ListFrame {
        match self {
            Self::Whole => ListFrame {
                fields: json!({"kind": resource.list_kind, "apiVersion": resource.api_version(), "metadata": metadata}),
                items: "items",
                empty: json!([]),
            },
            // an empty list of this kind is `null`, unlike other lists
            Self::Metadata => ListFrame {
                fields: json!({
                    "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1",
                    "metadata": without_empty_token(metadata),
                }),
                items: "items",
                empty: Value::Null,
            },
            Self::Table(_) => ListFrame {
                fields: table(
                    &without_empty_token(metadata),
                    &columns::definitions(resource),
                ),
                items: "rows",
                // tables of kinds without columns of their own are made elsewhere
                empty: if columns::are_of_any_kind(resource) {
                    Value::Null
                } else {
                    json!([])
                },
            },
        }
    }

    /// Returns the view of one object of a list.
    pub(crate) fn item(self, resource: &Resource, object: &Value) -> Value {
        match self {
            Self::Whole => object.clone(),
            Self::Metadata => metadata(resource, object),
            Self::Table(included) => row(resource, object, included),
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

/// Returns the metadata of a list. That of whole custom objects always has a continue token, even an empty one, which views leave out.
fn without_empty_token(metadata: &Value) -> Value {
    let mut metadata = metadata.clone();
    if metadata["continue"] == ""
        && let Some(fields) = metadata.as_object_mut()
    {
        fields.remove("continue");
    }
    metadata
}

/// Returns a table without rows.
fn table(metadata: &Value, definitions: &Value) -> Value {
    json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "columnDefinitions": definitions})
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
