//! Checks of claims of volumes.

use serde_json::{Value, json};

use super::checks::{filled, label_selector, one_of, optional_name, text};
use super::names;
use crate::failure::Cause;
use crate::values::fields::elements;
use crate::values::quantity;

const ACCESS_MODES: [&str; 4] = [
    "ReadOnlyMany",
    "ReadWriteMany",
    "ReadWriteOnce",
    "ReadWriteOncePod",
];
/// How a volume can be used.
pub(super) const VOLUME_MODES: [&str; 2] = ["Block", "Filesystem"];

/// Checks how a volume may be mounted.
pub(super) fn access_modes(spec: &Value, path: &str, causes: &mut Vec<Cause>) {
    let at = format!("{path}.accessModes");
    let (mut alone, mut shared) = (false, false);
    for mode in elements(&spec["accessModes"]) {
        one_of(mode, &ACCESS_MODES, &at, causes);
        alone |= mode == "ReadWriteOncePod";
        shared |= mode != "ReadWriteOncePod" && ACCESS_MODES.contains(&text(mode));
    }
    if alone && shared {
        let why = "may not use ReadWriteOncePod with other access modes";
        causes.push(Cause::forbidden(at, why));
    }
}

/// Checks the specification of a claim at a path.
pub(super) fn claim(spec: &Value, path: &str, causes: &mut Vec<Cause>) {
    specification(spec, true, path, causes);
}

/// Checks the changed specification of a claim. One that had a group in its source may have any.
pub(super) fn changed(before: &Value, spec: &Value, causes: &mut Vec<Cause>) {
    let had_group = ["dataSource", "dataSourceRef"]
        .iter()
        .any(|field| filled(&before[*field]["apiGroup"]));
    specification(spec, !had_group, "spec", causes);
}

fn specification(spec: &Value, group_is_checked: bool, path: &str, causes: &mut Vec<Cause>) {
    if !filled(&spec["accessModes"]) {
        let why = "at least 1 access mode is required";
        causes.push(Cause::required(format!("{path}.accessModes"), why));
    }
    label_selector(&spec["selector"], &format!("{path}.selector"), causes);
    access_modes(spec, path, causes);
    let (amount, at) = (
        &spec["resources"]["requests"]["storage"],
        format!("{path}.resources[storage]"),
    );
    if amount.is_null() {
        causes.push(Cause::required(at, ""));
    } else {
        let parsed = quantity::amount(amount);
        if parsed.is_zero() || parsed.is_negative() {
            causes.push(Cause::invalid(at, amount, "must be greater than zero"));
        }
    }
    for field in ["storageClassName", "volumeAttributesClassName"] {
        let at = format!("{path}.{field}");
        optional_name(&spec[field], names::subdomain, &at, causes);
    }
    if !spec["volumeMode"].is_null() {
        let at = format!("{path}.volumeMode");
        one_of(&spec["volumeMode"], &VOLUME_MODES, &at, causes);
    }
    for field in ["dataSource", "dataSourceRef"] {
        if !spec[field].is_null() {
            let at = format!("{path}.{field}");
            data_source(&spec[field], group_is_checked, &at, causes);
        }
    }
    let (source, other) = (&spec["dataSource"], &spec["dataSourceRef"]);
    let why = if source.is_null() || other.is_null() {
        return;
    } else if filled(&other["namespace"]) {
        "may not be specified when dataSourceRef.namespace is specified"
    } else if ["apiGroup", "kind", "name"]
        .iter()
        .any(|field| source[field] != other[field])
    {
        "must match dataSourceRef"
    } else {
        return;
    };
    let cause = Cause::invalid(path, &Value::Null, why);
    // what is shown is a path, which has no form of its own there
    causes.push(cause.with_value("{}"));
}

fn data_source(source: &Value, group_is_checked: bool, path: &str, causes: &mut Vec<Cause>) {
    for field in ["name", "kind"] {
        if !filled(&source[field]) {
            causes.push(Cause::required(format!("{path}.{field}"), ""));
        }
    }
    let group = text(&source["apiGroup"]);
    if group.is_empty() && source["kind"] != "PersistentVolumeClaim" {
        let why = "must be 'PersistentVolumeClaim' when referencing the default apiGroup";
        causes.push(Cause::invalid(path, &json!(text(&source["kind"])), why));
    }
    if group_is_checked {
        optional_name(
            &source["apiGroup"],
            names::subdomain,
            &format!("{path}.apiGroup"),
            causes,
        );
    }
    optional_name(
        &source["namespace"],
        names::label,
        &format!("{path}.namespace"),
        causes,
    );
}
