//! Directives: fields of a patch that say how to merge, and that are no part of the object.

use serde_json::{Map, Value};

use super::error::Error;
use crate::values::go::go_map;

/// Replaces or deletes the value that it is in.
pub(super) const DIRECTIVE: &str = "$patch";

/// Prefix of fields with the items to delete from a list.
pub(super) const DELETE_FROM: &str = "$deleteFromPrimitiveList";

/// Prefix of fields with the order of a list.
pub(super) const ELEMENT_ORDER: &str = "$setElementOrder";

/// Names the only fields that stay.
pub(super) const RETAIN_KEYS: &str = "$retainKeys";

/// Returns the refusal of a directive that is not known.
pub(super) fn unknown_directive(item: &Map<String, Value>) -> Error {
    Error::Directive {
        directive: item.get(DIRECTIVE).map_or_else(String::new, plain),
        item: go_map(item),
    }
}

/// Returns a text without quotes, and any other value as JSON.
pub(super) fn plain(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

/// Removes the fields that the patch does not retain.
pub(super) fn retain_keys(
    original: &mut Map<String, Value>,
    patch: &mut Map<String, Value>,
) -> Result<(), Error> {
    let Some(retained) = patch.remove(RETAIN_KEYS) else {
        return Ok(());
    };
    let retained = retained.as_array().ok_or(Error::RetainKeys)?;
    let is_retained = |name: &str| retained.iter().any(|key| key == name);
    let is_listed = patch.iter().all(|(name, value)| {
        value.is_null()
            || name.starts_with(DELETE_FROM)
            || name.starts_with(ELEMENT_ORDER)
            || is_retained(name)
    });
    if !is_listed {
        return Err(Error::RetainKeys);
    }
    original.retain(|name, _| is_retained(name));
    Ok(())
}

/// Removes the nulls and the directives of a value that was not merged with anything; `None` when a directive deletes the value.
pub(super) fn without_nulls_and_directives(mut value: Value) -> Option<Value> {
    drop_nulls(&mut value);
    without_directives(value)
}

fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, field| !field.is_null());
            fields.values_mut().for_each(drop_nulls);
        }
        Value::Array(list) => list.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

/// Removes the directives of a value that was not merged with anything; `None` when a directive deletes the value.
pub(super) fn without_directives(value: Value) -> Option<Value> {
    match value {
        Value::Object(fields) => {
            if fields.get(DIRECTIVE).is_some_and(|word| word == "delete") {
                return None;
            }
            Some(Value::Object(
                fields
                    .into_iter()
                    .filter(|(name, _)| {
                        // what names the keys to retain stays, as in a real server
                        name != DIRECTIVE
                            && !name.starts_with(DELETE_FROM)
                            && !name.starts_with(ELEMENT_ORDER)
                    })
                    .filter_map(|(name, field)| Some((name, without_directives(field)?)))
                    .collect(),
            ))
        }
        Value::Array(list) => Some(Value::Array(
            list.into_iter().filter_map(without_directives).collect(),
        )),
        other => Some(other),
    }
}
