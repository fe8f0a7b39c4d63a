//! The status of definitions of custom resources: the server sets it, clients do not.

use serde_json::{Value, json};

use crate::values::fields::elements;

/// Sets the status of a new definition.
pub(super) fn set_initial_status(definition: &mut Value) {
    definition["status"] =
        json!({"acceptedNames": no_accepted_names(), "conditions": null, "storedVersions": null});
    remember_storage(definition);
}

/// Adds the storage version to the stored versions.
pub(super) fn remember_storage(definition: &mut Value) {
    let mut versions = elements(&definition["spec"]["versions"]);
    let Some(storage) = versions.find(|version| version["storage"] == true) else {
        return;
    };
    let name = storage["name"].clone();
    let stored = &mut definition["status"]["storedVersions"];
    match stored.as_array_mut() {
        Some(list) if list.contains(&name) => {}
        Some(list) => list.push(name),
        None => *stored = json!([name]),
    }
}

/// Returns the accepted names of a new definition.
pub(crate) fn no_accepted_names() -> Value {
    json!({"kind": "", "plural": ""})
}
