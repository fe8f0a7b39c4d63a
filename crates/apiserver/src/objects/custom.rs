//! Custom objects and their schemas: decodes metadata, prunes fields that the schema does not have, drops nulls that it does not allow, and
//! fills in its defaults.
//!
//! Objects are stored in the storage version. Readers see them pruned to the schema of the requested version, with the defaults of the
//! storage version: a schema may have changed since an object was written.

use std::borrow::Cow;

use serde_json::{Map, Value, json};

use crate::registry::{Custom, Resource};
use crate::schema::Node;
use crate::schema::decode::{self, Findings};
use crate::values::fields::{elements, join, members};

/// Fields that every object has, whatever its schema says.
const META: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// Brings a written object into the form of its version. The findings say what was removed, or why the object cannot be decoded.
pub(crate) fn normalise(schema: &Value, object: &mut Value) -> Findings {
    let mut found = Findings::default();
    decode_metadata(object, "", &mut found);
    if found.undecodable.is_none() {
        prune(Some(schema), object, true, "", &mut found.unknown);
        drop_nulls(schema, object);
        decode_embedded(schema, object, true, "", &mut found);
    }
    if found.undecodable.is_none() {
        fill_in_defaults(schema, object);
    }
    found
}

/// Returns an object in its stored form: in the storage version, pruned to the schema of that version.
pub(crate) fn in_storage_version(resource: &Resource, custom: &Custom, mut object: Value) -> Value {
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

/// Returns a stored object in the form of the requested version. Its `apiVersion` stays that of the stored object.
pub(crate) fn in_requested_version<'v>(resource: &Resource, object: &'v Value) -> Cow<'v, Value> {
    let Some(custom) = &resource.custom else {
        return Cow::Borrowed(object);
    };
    let schema = resource.schema().raw();
    if is_pruned_and_defaulted(Some(&custom.storage_schema), object, true)
        && (custom.storage_version == resource.version
            || is_pruned_and_defaulted(Some(schema), object, true))
    {
        return Cow::Borrowed(object);
    }
    let mut object = object.clone();
    prune_and_default(&custom.storage_schema, &mut object);
    if custom.storage_version != resource.version {
        prune(Some(schema), &mut object, true, "", &mut Vec::new());
        drop_nulls(schema, &mut object);
    }
    Cow::Owned(object)
}

/// Returns whether the field owners can be kept after a write. All values must be of the types in the schema, and the schemas of all other
/// versions in which owners wrote must cover the whole object. Otherwise a real server drops all owners.
pub(crate) fn can_keep_owners(resource: &Resource, before: Option<&Value>, after: &Value) -> bool {
    let Some(custom) = &resource.custom else {
        return true;
    };
    if !has_types(resource.schema().raw(), after) {
        return false;
    }
    let entries = elements(&after["metadata"]["managedFields"]);
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

/// Returns whether texts, flags, lists and objects stand where the schema says so. Formats make a real server accept texts and lists elsewhere.
fn has_types(schema: &Value, value: &Value) -> bool {
    let fits = match schema["type"].as_str() {
        _ if value.is_null() || schema["x-kubernetes-int-or-string"] == true => true,
        Some("boolean") => value.is_boolean(),
        Some("string") => value.is_string(),
        Some("array") => value.is_array(),
        Some("object") => value.is_object(),
        _ => true,
    };
    let inner = match value {
        Value::Object(fields) => fields.iter().all(|(name, field)| {
            let known = &schema["properties"][name];
            let of_field = if known.is_null() {
                &schema["additionalProperties"]
            } else {
                known
            };
            has_types(of_field, field)
        }),
        Value::Array(items) => items.iter().all(|item| has_types(&schema["items"], item)),
        _ => true,
    };
    fits && inner
}

/// Prunes an object to a schema and fills in the defaults.
fn prune_and_default(schema: &Value, object: &mut Value) {
    prune(Some(schema), object, true, "", &mut Vec::new());
    drop_nulls(schema, object);
    fill_in_defaults(schema, object);
}

/// A field that a schema allows.
#[derive(Clone, Copy)]
enum Field<'s> {
    /// A field with a schema of its own.
    Schema(&'s Value),
    /// A field about which the schema says nothing.
    WithoutSchema,
}

impl<'s> Field<'s> {
    fn find(schema: &'s Value, name: &str) -> Option<Self> {
        match schema["properties"].get(name) {
            Some(found) => Some(Self::Schema(found)),
            None => match &schema["additionalProperties"] {
                Value::Null | Value::Bool(false) => None,
                found @ Value::Object(_) => Some(Self::Schema(found)),
                _ => Some(Self::WithoutSchema),
            },
        }
    }

    fn schema(self) -> Option<&'s Value> {
        match self {
            Self::Schema(schema) => Some(schema),
            Self::WithoutSchema => None,
        }
    }
}

fn keeps_unknown(schema: &Value) -> bool {
    schema["x-kubernetes-preserve-unknown-fields"] == true
}

fn is_embedded(schema: &Value) -> bool {
    schema["x-kubernetes-embedded-resource"] == true
}

/// Removes what a schema does not have and reports the paths; without a schema, everything in an object is removed.
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
                let path = join(path, name);
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

/// Returns whether a value is null although its schema does not allow null.
fn is_wrong_null(schema: Option<&Value>, value: &Value) -> bool {
    value.is_null() && schema.is_some_and(|schema| schema["nullable"] != true)
}

/// Removes nulls that their schemas do not allow. A null with a default stays until the default replaces it.
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

/// Fills in the defaults of a schema, also within values that were filled in.
pub(crate) fn fill_in_defaults(schema: &Value, value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, inner) in members(&schema["properties"]) {
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
            fill_in_defaults_of_fields(schema, fields);
        }
        Value::Array(list) => {
            let items = &schema["items"];
            for item in list {
                if is_wrong_null(Some(items), item) && !items["default"].is_null() {
                    *item = items["default"].clone();
                }
                fill_in_defaults(items, item);
            }
        }
        _ => {}
    }
}

fn fill_in_defaults_of_fields(schema: &Value, fields: &mut Map<String, Value>) {
    for (name, inner) in fields.iter_mut() {
        if let Some(Field::Schema(schema)) = Field::find(schema, name) {
            if is_wrong_null(Some(schema), inner) && !schema["default"].is_null() {
                *inner = schema["default"].clone();
            }
            fill_in_defaults(schema, inner);
        }
    }
}

/// Returns whether an object is already pruned to a schema and has all defaults.
fn is_pruned_and_defaulted(schema: Option<&Value>, value: &Value, is_object: bool) -> bool {
    match value {
        Value::Object(fields) => {
            let Some(schema) = schema else {
                return fields.is_empty();
            };
            let has_meta = is_object || is_embedded(schema);
            let keeps = keeps_unknown(schema);
            let has_defaults = || {
                let properties = members(&schema["properties"]);
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
                        !is_wrong_null(schema, inner)
                            && is_pruned_and_defaulted(schema, inner, false)
                    }
                    None => keeps,
                }
            }) && has_defaults()
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
                !(has_default && is_wrong_null(items, item))
                    && is_pruned_and_defaulted(items, item, false)
            })
        }
        _ => true,
    }
}

/// Decodes the metadata of an object by the schema of object metadata.
fn decode_metadata(object: &mut Value, path: &str, found: &mut Findings) {
    let Some(given) = object.get_mut("metadata") else {
        return;
    };
    if given.is_null() {
        *given = json!({});
    }
    let read = decode::decode(Node::object_meta(), given);
    let prefix = join(path, "metadata");
    found
        .unknown
        .extend(read.unknown.iter().map(|name| format!("{prefix}.{name}")));
    if let Some(why) = read.undecodable {
        let message = if path.is_empty() {
            why
        } else {
            format!("{prefix}: Invalid value: {given}: {why}")
        };
        found.undecodable.get_or_insert(message);
    }
}

/// Decodes the metadata of embedded objects.
fn decode_embedded(
    schema: &Value,
    value: &mut Value,
    is_root: bool,
    path: &str,
    found: &mut Findings,
) {
    if !is_root && is_embedded(schema) && value.is_object() {
        for name in ["apiVersion", "kind"] {
            if let Some(given) = value.get(name).filter(|given| !given.is_string()) {
                let path = join(path, name);
                let why = format!("{path}: Invalid value: {given}: must be a string");
                found.undecodable.get_or_insert(why);
            }
        }
        decode_metadata(value, path, found);
    }
    match value {
        Value::Object(fields) => {
            for (name, inner) in fields {
                if let Some(Field::Schema(schema)) = Field::find(schema, name) {
                    decode_embedded(schema, inner, false, &join(path, name), found);
                }
            }
        }
        Value::Array(list) => {
            for (index, item) in list.iter_mut().enumerate() {
                decode_embedded(
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
