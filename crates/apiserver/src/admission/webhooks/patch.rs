//! JSON patches that webhooks answer with. Failures are told in the words of the package that a real server uses.

use json_patch::{Patch, PatchOperation};
use serde_json::Value;

use crate::failure::Failure;

/// Changes an object by a JSON patch.
pub(super) fn apply(object: &mut Value, patch: Patch) -> Result<(), Failure> {
    for operation in patch.0 {
        let why = why_not(object, &operation);
        json_patch::patch(object, &[operation]).map_err(|_| Failure::internal(why))?;
    }
    Ok(())
}

/// Returns why an operation cannot be applied, if it cannot.
fn why_not(object: &Value, operation: &PatchOperation) -> String {
    let path = operation.path().as_str();
    let (parent, key) = path.rsplit_once('/').unwrap_or(("", path));
    let has_parent = object.pointer(parent).is_some();
    let without_parent = |word: &str| {
        format!("{word} operation does not apply: doc is missing path: {path:?}: missing value")
    };
    match operation {
        PatchOperation::Test(_) => format!("testing value {path} failed: test failed"),
        PatchOperation::Add(_) => without_parent("add"),
        PatchOperation::Remove(_) if has_parent => {
            format!(
                "error in remove for path: '{path}': Unable to remove nonexistent key: {key}: missing value"
            )
        }
        PatchOperation::Remove(_) => without_parent("remove"),
        PatchOperation::Replace(_) if has_parent => {
            format!("replace operation does not apply: doc is missing key: {path}: missing value")
        }
        PatchOperation::Replace(_) => without_parent("replace"),
        PatchOperation::Move(_) => without_parent("move"),
        PatchOperation::Copy(_) => without_parent("copy"),
    }
}
