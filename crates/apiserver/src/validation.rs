//! What a real server refuses of the built-in kinds: what users get wrong commonly, with the causes that it gives.

use serde_json::Value;

use super::failure::Cause;
use super::registry::Resource;

/// What is wrong with a new object.
pub(crate) fn of_new(resource: &Resource, object: &Value) -> Vec<Cause> {
    let _ = (resource, object);
    Vec::new()
}

/// What is wrong with a change of an object.
pub(crate) fn of_change(
    resource: &Resource,
    subresource: &str,
    before: &Value,
    object: &Value,
) -> Vec<Cause> {
    let _ = (resource, subresource, before, object);
    Vec::new()
}
