//! What a real server refuses in definitions, with its causes, in its order.

use serde_json::{Value, json};

use self::hub::Spec;
use crate::failure::Cause;
use crate::registry::definition::texts;

pub(crate) mod approval;
mod conversion;
mod defaults;
mod go;
mod hub;
mod parts;
mod path;
pub(super) mod rules;
mod schema;
mod spec;
mod structural;

/// Returns what is wrong with a new definition, apart from its metadata.
pub(crate) fn of_new(definition: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let spec = Spec::of(&definition["spec"]);
    spec::check(&spec, None, &mut causes);
    rest(definition, None, &spec, &mut causes);
    if spec.raw["preserveUnknownFields"] == true {
        causes.push(Cause::invalid(
            "spec.preserveUnknownFields",
            &json!(true),
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead",
        ));
    }
    causes
}

/// Returns what is wrong with a change of a definition, apart from its metadata.
pub(crate) fn of_change(subresource: &str, before: &Value, definition: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    if subresource == "status" {
        status(definition, &mut causes);
        return causes;
    }
    let spec = Spec::of(&definition["spec"]);
    spec::check(&spec, Some(&before["spec"]), &mut causes);
    spec::check_change(before, definition, &mut causes);
    rest(definition, Some(before), &spec, &mut causes);
    let (was, is) = (
        &before["spec"]["preserveUnknownFields"],
        &definition["spec"]["preserveUnknownFields"],
    );
    if *is == true && *was != true {
        causes.push(Cause::invalid(
            "spec.preserveUnknownFields",
            is,
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead",
        ));
    }
    causes
}

fn rest(definition: &Value, before: Option<&Value>, spec: &Spec<'_>, causes: &mut Vec<Cause>) {
    status(definition, causes);
    stored_versions(&definition["status"]["storedVersions"], spec, causes);
    approval::check(before, definition, causes);
}

fn status(definition: &Value, causes: &mut Vec<Cause>) {
    let names = &definition["status"]["acceptedNames"];
    spec::names(names, "status.acceptedNames", causes);
}

/// Checks that the stored versions include the storage version, and that all of them still exist.
fn stored_versions(stored: &Value, spec: &Spec<'_>, causes: &mut Vec<Cause>) {
    const PATH: &str = "status.storedVersions";
    let names: Vec<&str> = texts(stored).collect();
    if names.is_empty() {
        let cause = Cause::invalid(PATH, &Value::Null, "must have at least one stored version");
        causes.push(cause);
        return;
    }
    for (index, version) in spec.versions.iter().enumerate() {
        // a second one of the name does not find it any more
        let is_first = !spec.versions[..index]
            .iter()
            .any(|known| known.name() == version.name());
        let is_known = is_first && names.contains(&version.name());
        if version.is("storage") && !is_known {
            let why = format!("must have the storage version {}", version.name());
            causes.push(Cause::invalid(PATH, &Value::Null, &why).with_value(&go::json(stored)));
        }
    }
    for (index, name) in names.iter().enumerate() {
        if !spec.versions.iter().any(|version| version.name() == *name) {
            let why = format!(
                "missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in {name} and removes {name} from status.storedVersions"
            );
            causes.push(Cause::invalid(
                format!("{PATH}[{index}]"),
                &json!(name),
                &why,
            ));
        }
    }
}

#[cfg(test)]
mod tests;
