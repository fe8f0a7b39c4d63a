//! Writes a status as a minimal merge patch, and only when it changed (operator.md 3).

use std::fmt::Debug;

use kube::api::{Api, Patch, PatchParams};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

/// Patches `/status` of the named object from `old` to `new`. Returns whether a write was needed.
pub(crate) async fn write<K, S>(
    api: &Api<K>,
    name: &str,
    old: Option<&S>,
    new: &S,
) -> Result<bool, Error>
where
    K: Clone + DeserializeOwned + Debug,
    S: Serialize,
{
    let old = old
        .map(serde_json::to_value)
        .transpose()
        .map_err(Error::Form)?
        .unwrap_or_else(|| json!({}));
    let new = serde_json::to_value(new).map_err(Error::Form)?;
    let Some(patch) = difference(&old, &new) else {
        return Ok(false);
    };
    api.patch_status(
        name,
        &PatchParams::default(),
        &Patch::Merge(json!({"status": patch})),
    )
    .await
    .map_err(|error| Error::Patch(error.into()))?;
    Ok(true)
}

/// The status cannot be written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("status has no JSON form")]
    Form(#[source] serde_json::Error),
    #[error("failed to patch the status")]
    Patch(#[source] apply::Cause),
}

/// Returns the merge patch (RFC 7386) from `old` to `new`; `None` when they are equal.
fn difference(old: &Value, new: &Value) -> Option<Value> {
    let (Value::Object(before), Value::Object(after)) = (old, new) else {
        return (old != new).then(|| new.clone());
    };
    let mut patch = Map::new();
    for key in before.keys().filter(|key| !after.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    for (key, value) in after {
        match before.get(key) {
            Some(old) => {
                if let Some(difference) = difference(old, value) {
                    patch.insert(key.clone(), difference);
                }
            }
            None => {
                patch.insert(key.clone(), value.clone());
            }
        }
    }
    (!patch.is_empty()).then_some(Value::Object(patch))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patch_holds_only_what_changed_and_removes_what_is_gone() {
        let old = json!({"a": 1, "gone": [1], "map": {"k": 1, "same": 2}, "list": [1, 2]});
        let new = json!({"a": 1, "map": {"k": 2, "same": 2}, "list": [1], "added": {"x": 1}});
        let patch = difference(&old, &new).unwrap();
        assert_eq!(
            patch,
            json!({"gone": null, "map": {"k": 2}, "list": [1], "added": {"x": 1}})
        );
        assert_eq!(difference(&new, &new), None);
    }
}
