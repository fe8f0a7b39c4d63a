//! Reads and sets the fields of JSON objects.

use std::slice;
use std::sync::LazyLock;

use serde_json::{Map, Value, json, map};

/// Annotation of daemon sets that counts the changes of the template.
pub(crate) const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

/// Sets a field that is missing or null.
pub(crate) fn set_default(object: &mut Value, field: &str, value: impl FnOnce() -> Value) {
    // generic in as little as possible: there are more than a hundred callers, each with a copy of its own
    if let Some(fields) = lacking(object, field) {
        fields.insert(field.to_owned(), value());
    }
}

/// Returns the fields of an object in which one is missing or null; null becomes an empty object.
fn lacking<'a>(object: &'a mut Value, field: &str) -> Option<&'a mut Map<String, Value>> {
    if object.is_null() {
        *object = json!({});
    }
    let fields = object.as_object_mut()?;
    let is_lacking = fields.get(field).is_none_or(Value::is_null);
    is_lacking.then_some(fields)
}

/// Returns the elements of a list; none where there is no list. It is the iterator of a slice, because each chain of adaptors on a flattened
/// `Option` makes several times its code, and there are more than a hundred such chains.
pub(crate) fn elements(list: &Value) -> slice::Iter<'_, Value> {
    list.as_array().map_or(&[][..], Vec::as_slice).iter()
}

/// Returns the members of an object; none where there is no object.
pub(crate) fn members(object: &Value) -> map::Iter<'_> {
    static NONE: LazyLock<Map<String, Value>> = LazyLock::new(Map::new);
    object.as_object().unwrap_or(&NONE).iter()
}

/// Returns the items of a list; none where there is no list, and creates none.
pub(crate) fn items(list: &mut Value) -> impl Iterator<Item = &mut Value> {
    let items = list.as_array_mut().map(Vec::as_mut_slice);
    items.unwrap_or_default().iter_mut()
}

/// Returns a part that may be missing, without creating it.
pub(crate) fn existing_object<'a>(object: &'a mut Value, field: &str) -> Option<&'a mut Value> {
    object.get_mut(field).filter(|part| part.is_object())
}

/// Copies a field, or removes it where it is missing.
pub(crate) fn copy(from: &Value, to: &mut Value, field: &str) {
    let Some(fields) = to.as_object_mut() else {
        return;
    };
    match from.get(field) {
        Some(value) => fields.insert(field.to_owned(), value.clone()),
        None => fields.remove(field),
    };
}

pub(crate) fn copy_part(from: &Value, to: &mut Value, part: &str, field: &str) {
    if to[part].is_null() && from[part].get(field).is_some() {
        to[part] = json!({});
    }
    copy(&from[part], &mut to[part], field);
}

pub(crate) fn remove(object: &mut Value, field: &str) -> Option<Value> {
    object.as_object_mut()?.remove(field)
}

/// Returns the path of a field.
pub(crate) fn join(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}
