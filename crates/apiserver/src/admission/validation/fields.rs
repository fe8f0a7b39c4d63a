//! Checks of references to fields of a pod, in variables and in files.

use serde_json::{Value, json};

use super::checks::{filled, one_of, text, wrong};
use super::names;
use crate::failure::Cause;

const OF_VOLUMES: [&str; 5] = [
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
];
const OF_VARIABLES: [&str; 9] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];
const RESOURCES: [&str; 6] = [
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];
/// In what amounts of bytes can be given.
const UNITS: [&str; 13] = [
    "1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei",
];

/// Checks a field in a file.
pub(super) fn of_volume(reference: &Value, path: &str, causes: &mut Vec<Cause>) {
    check(reference, &OF_VOLUMES, path, causes);
}

/// Checks a field in a variable.
pub(super) fn of_variable(reference: &Value, path: &str, causes: &mut Vec<Cause>) {
    check(reference, &OF_VARIABLES, path, causes);
}

fn check(reference: &Value, allowed: &[&str], path: &str, causes: &mut Vec<Cause>) {
    for field in ["apiVersion", "fieldPath"] {
        if !filled(&reference[field]) {
            causes.push(Cause::required(format!("{path}.{field}"), ""));
            return;
        }
    }
    let (given, at) = (text(&reference["fieldPath"]), format!("{path}.fieldPath"));
    let key = given
        .split_once("['")
        .and_then(|(field, rest)| Some((field, rest.strip_suffix("']")?)));
    let field = key.map_or(given, |(field, _)| field);
    let known = OF_VOLUMES.contains(&field)
        || OF_VARIABLES.contains(&field)
        || ["spec.restartPolicy", "spec.schedulerName", "status.phase"].contains(&field);
    if text(&reference["apiVersion"]) != "v1" {
        let why = format!(
            "error converting fieldPath: unsupported pod version: {}",
            text(&reference["apiVersion"])
        );
        causes.push(Cause::invalid(at, &json!(given), &why));
    } else if !known {
        let why = format!("error converting fieldPath: field label not supported: {given}");
        causes.push(Cause::invalid(at, &json!(given), &why));
    } else if let Some((field, key)) = key {
        match field {
            "metadata.annotations" => {
                let key = key.to_lowercase();
                wrong(names::key(&key), &key, path, causes);
            }
            "metadata.labels" => wrong(names::key(key), key, path, causes),
            _ => causes.push(Cause::invalid(
                path,
                &json!(field),
                "does not support subscript",
            )),
        }
    } else {
        one_of(&reference["fieldPath"], allowed, &at, causes);
    }
}

/// Checks a reference to an amount of a container.
pub(super) fn resource(reference: &Value, in_volume: bool, path: &str, causes: &mut Vec<Cause>) {
    let given = text(&reference["resource"]);
    let is_huge =
        given.starts_with("limits.hugepages-") || given.starts_with("requests.hugepages-");
    if in_volume && !filled(&reference["containerName"]) {
        causes.push(Cause::required(format!("{path}.containerName"), ""));
    } else if given.is_empty() {
        causes.push(Cause::required(format!("{path}.resource"), ""));
    } else if !is_huge {
        one_of(
            &reference["resource"],
            &RESOURCES,
            &format!("{path}.resource"),
            causes,
        );
    }
    let divisor = text(&reference["divisor"]);
    if divisor.is_empty() || divisor == "0" {
        return;
    }
    let of_bytes = |kind: &str| {
        let units = UNITS.join(", ");
        let why = format!("only divisor's values {units} are supported with the {kind} resource");
        (!UNITS.contains(&divisor)).then_some(why)
    };
    let why = match given.split_once('.').map(|(_, resource)| resource) {
        Some("cpu") if !["1m", "1"].contains(&divisor) => {
            Some("only divisor's values 1m and 1 are supported with the cpu resource".to_owned())
        }
        Some("memory") => of_bytes("memory"),
        Some("ephemeral-storage") => of_bytes("local ephemeral storage"),
        Some(_) if is_huge => of_bytes("hugepages"),
        _ => None,
    };
    if let Some(why) = why {
        causes.push(Cause::invalid(
            format!("{path}.divisor"),
            &json!(given),
            &why,
        ));
    }
}
