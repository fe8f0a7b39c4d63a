//! Custom objects and their schema: metadata that are metadata, no fields that the schema does not have, no empty values where none may
//! be, and the schema's defaults.
//!
//! Objects are kept in the form of the version that is marked so. Whoever reads them sees them cut to the schema of the version that he
//! asks for, with the defaults of the version in which they are kept: a schema may have changed since they were written.

use std::borrow::Cow;

use serde_json::{Map, Value, json};

use crate::decode::{self, Findings};
use crate::registry::{Custom, Resource};
use crate::schema::Node;

/// What every object has, whatever its schema says.
const META: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// Brings a written object into the form of its version; what was removed, or why it cannot be read.
pub(crate) fn take_in(schema: &Value, object: &mut Value) -> Findings {
    let mut found = Findings::default();
    metadata(object, "", &mut found);
    if found.undecodable.is_none() {
        prune(Some(schema), object, true, "", &mut found.unknown);
        drop_nulls(schema, object);
        embedded(schema, object, true, "", &mut found);
    }
    if found.undecodable.is_none() {
        complete(schema, object);
    }
    found
}

/// An object as it is kept: in the version for that, without what that version does not have.
pub(crate) fn kept(resource: &Resource, custom: &Custom, mut object: Value) -> Value {
    if custom.storage_version != resource.version {
        object["apiVersion"] = json!(format!("{}/{}", resource.group, custom.storage_version));
        prune(
            Some(&custom.storage_schema),
            &mut object,
            true,
            "",
            &mut Vec::new(),
        );
        drop_nulls(&custom.storage_schema, &mut object);
    }
    object
}

/// A kept object as the version of the resource has it, but for the version that it tells.
pub(crate) fn shown<'v>(resource: &Resource, object: &'v Value) -> Cow<'v, Value> {
    let Some(custom) = &resource.custom else {
        return Cow::Borrowed(object);
    };
    let schema = resource.schema().raw();
    if is_settled(Some(&custom.storage_schema), object, true)
        && (custom.storage_version == resource.version || is_settled(Some(schema), object, true))
    {
        return Cow::Borrowed(object);
    }
    let mut object = object.clone();
    settle(&custom.storage_schema, &mut object);
    if custom.storage_version != resource.version {
        prune(Some(schema), &mut object, true, "", &mut Vec::new());
        drop_nulls(schema, &mut object);
    }
    Cow::Owned(object)
}

/// Whether the owners of fields can be told after a write: those who wrote in another version must be able to see all of the object
/// there. A real server forgets all owners when they cannot.
pub(crate) fn are_owners_known(resource: &Resource, before: Option<&Value>, after: &Value) -> bool {
    let Some(custom) = &resource.custom else {
        return true;
    };
    let entries = after["metadata"]["managedFields"]
        .as_array()
        .into_iter()
        .flatten();
    let mut others = entries
        .filter_map(|entry| entry["apiVersion"].as_str()?.split_once('/'))
        .filter(|(_, version)| *version != resource.version);
    others.all(|(_, version)| {
        let Some((_, schema)) = custom.versions.iter().find(|(name, _)| name == version) else {
            return true;
        };
        before.into_iter().chain([after]).all(|object| {
            let mut unknown = Vec::new();
            prune(Some(schema), &mut object.clone(), true, "", &mut unknown);
            unknown.is_empty()
        })
    })
}

/// Cuts an object to a schema and completes it.
fn settle(schema: &Value, object: &mut Value) {
    prune(Some(schema), object, true, "", &mut Vec::new());
    drop_nulls(schema, object);
    complete(schema, object);
}

/// A field that a schema has.
#[derive(Clone, Copy)]
enum Field<'s> {
    /// With a schema of its own.
    Schema(&'s Value),
    /// About which the schema says nothing.
    Bare,
}

impl<'s> Field<'s> {
    fn find(schema: &'s Value, name: &str) -> Option<Self> {
        match schema["properties"].get(name) {
            Some(found) => Some(Self::Schema(found)),
            None => match &schema["additionalProperties"] {
                Value::Null | Value::Bool(false) => None,
                found @ Value::Object(_) => Some(Self::Schema(found)),
                _ => Some(Self::Bare),
            },
        }
    }

    fn schema(self) -> Option<&'s Value> {
        match self {
            Self::Schema(schema) => Some(schema),
            Self::Bare => None,
        }
    }
}

fn keeps_unknown(schema: &Value) -> bool {
    schema["x-kubernetes-preserve-unknown-fields"] == true
}

fn is_embedded(schema: &Value) -> bool {
    schema["x-kubernetes-embedded-resource"] == true
}

/// Removes what a schema does not have and tells where it was; without a schema nothing is left of objects.
pub(crate) fn prune(
    schema: Option<&Value>,
    value: &mut Value,
    is_object: bool,
    path: &str,
    unknown: &mut Vec<String>,
) {
    match value {
        Value::Object(fields) => {
            let has_meta = is_object || schema.is_some_and(is_embedded);
            let keeps = schema.is_some_and(keeps_unknown);
            fields.retain(|name, inner| {
                if has_meta && META.contains(&name.as_str()) {
                    return true;
                }
                let path = decode::join(path, name);
                match schema.and_then(|schema| Field::find(schema, name)) {
                    Some(found) => {
                        prune(found.schema(), inner, false, &path, unknown);
                        true
                    }
                    None if keeps => true,
                    None => {
                        unknown.push(path);
                        false
                    }
                }
            });
        }
        Value::Array(list) => {
            let items = schema
                .map(|schema| &schema["items"])
                .filter(|items| items.is_object());
            if items.is_none() && schema.is_some_and(keeps_unknown) {
                return;
            }
            for (index, item) in list.iter_mut().enumerate() {
                prune(items, item, false, &format!("{path}[{index}]"), unknown);
            }
        }
        _ => {}
    }
}

/// Whether a value is nothing where something has to be.
fn is_wrong_null(schema: Option<&Value>, value: &Value) -> bool {
    value.is_null() && schema.is_some_and(|schema| schema["nullable"] != true)
}

/// Removes empty values of fields that may not be empty; those with a default keep them until it takes their place.
fn drop_nulls(schema: &Value, value: &mut Value) {
    match value {
        Value::Object(fields) => fields.retain(|name, inner| {
            let Some(Field::Schema(schema)) = Field::find(schema, name) else {
                return true;
            };
            if is_wrong_null(Some(schema), inner) {
                return !schema["default"].is_null();
            }
            drop_nulls(schema, inner);
            true
        }),
        Value::Array(list) => {
            for item in list {
                drop_nulls(&schema["items"], item);
            }
        }
        _ => {}
    }
}

/// Fills in the defaults of a schema, those of the values that are filled in as well.
pub(crate) fn complete(schema: &Value, value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, inner) in schema["properties"].as_object().into_iter().flatten() {
                let default = &inner["default"];
                let is_missing = || {
                    fields
                        .get(name)
                        .is_none_or(|value| is_wrong_null(Some(inner), value))
                };
                if !default.is_null() && is_missing() {
                    fields.insert(name.clone(), default.clone());
                }
            }
            complete_fields(schema, fields);
        }
        Value::Array(list) => {
            let items = &schema["items"];
            for item in list {
                if is_wrong_null(Some(items), item) && !items["default"].is_null() {
                    *item = items["default"].clone();
                }
                complete(items, item);
            }
        }
        _ => {}
    }
}

fn complete_fields(schema: &Value, fields: &mut Map<String, Value>) {
    for (name, inner) in fields.iter_mut() {
        if let Some(Field::Schema(schema)) = Field::find(schema, name) {
            if is_wrong_null(Some(schema), inner) && !schema["default"].is_null() {
                *inner = schema["default"].clone();
            }
            complete(schema, inner);
        }
    }
}

/// Whether an object is cut to a schema and complete already.
fn is_settled(schema: Option<&Value>, value: &Value, is_object: bool) -> bool {
    match value {
        Value::Object(fields) => {
            let Some(schema) = schema else {
                return fields.is_empty();
            };
            let has_meta = is_object || is_embedded(schema);
            let keeps = keeps_unknown(schema);
            let is_complete = || {
                let properties = schema["properties"].as_object().into_iter().flatten();
                let mut missing = properties.filter(|(name, inner)| {
                    !inner["default"].is_null() && !fields.contains_key(name.as_str())
                });
                missing.next().is_none()
            };
            fields.iter().all(|(name, inner)| {
                if has_meta && META.contains(&name.as_str()) {
                    return true;
                }
                match Field::find(schema, name) {
                    Some(found) => {
                        let schema = found.schema();
                        !is_wrong_null(schema, inner) && is_settled(schema, inner, false)
                    }
                    None => keeps,
                }
            }) && is_complete()
        }
        Value::Array(list) => {
            let items = schema
                .map(|schema| &schema["items"])
                .filter(|items| items.is_object());
            if items.is_none() && schema.is_some_and(keeps_unknown) {
                return true;
            }
            let has_default = items.is_some_and(|items| !items["default"].is_null());
            list.iter().all(|item| {
                !(has_default && is_wrong_null(items, item)) && is_settled(items, item, false)
            })
        }
        _ => true,
    }
}

/// Reads the metadata of an object as what they are.
fn metadata(object: &mut Value, path: &str, found: &mut Findings) {
    let Some(given) = object.get_mut("metadata") else {
        return;
    };
    if given.is_null() {
        *given = json!({});
    }
    let read = decode::decode(Node::object_meta(), given);
    let prefix = decode::join(path, "metadata");
    found
        .unknown
        .extend(read.unknown.iter().map(|name| format!("{prefix}.{name}")));
    if let Some(why) = read.undecodable {
        let told = if path.is_empty() {
            why
        } else {
            format!("{prefix}: Invalid value: {given}: {why}")
        };
        found.undecodable.get_or_insert(told);
    }
}

/// Reads what is embedded: objects in objects.
fn embedded(schema: &Value, value: &mut Value, is_root: bool, path: &str, found: &mut Findings) {
    if !is_root && is_embedded(schema) && value.is_object() {
        for name in ["apiVersion", "kind"] {
            if let Some(given) = value.get(name).filter(|given| !given.is_string()) {
                let path = decode::join(path, name);
                let why = format!("{path}: Invalid value: {given}: must be a string");
                found.undecodable.get_or_insert(why);
            }
        }
        metadata(value, path, found);
    }
    match value {
        Value::Object(fields) => {
            for (name, inner) in fields {
                if let Some(Field::Schema(schema)) = Field::find(schema, name) {
                    embedded(schema, inner, false, &decode::join(path, name), found);
                }
            }
        }
        Value::Array(list) => {
            for (index, item) in list.iter_mut().enumerate() {
                embedded(
                    &schema["items"],
                    item,
                    false,
                    &format!("{path}[{index}]"),
                    found,
                );
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests;
