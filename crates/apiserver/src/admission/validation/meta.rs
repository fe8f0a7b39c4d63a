//! Checks of the metadata of all kinds.

use serde_json::{Value, json};

use super::checks::{indexed, not_negative, text, wrong};
use super::{addresses, names};
use crate::failure::Cause;
use crate::registry::Resource;
use crate::storage::DEFINITIONS;

/// Largest total size of all annotations, in bytes.
const LARGEST_ANNOTATIONS: usize = 256 * 1024;
/// Standard finalizers, which need no prefix.
const STANDARD_FINALIZERS: [&str; 3] = ["kubernetes", "orphan", "foregroundDeletion"];
const BARE_FINALIZER: &str = "name is neither a standard finalizer name nor is it fully qualified";

/// Checks the metadata of a new object.
pub(super) fn check(resource: &Resource, object: &Value, causes: &mut Vec<Cause>) {
    let metadata = &object["metadata"];
    let name = text(&metadata["name"]);
    let prefix = text(&metadata["generateName"]);
    if !prefix.is_empty() {
        // a dash at its end is followed by something
        let begin = prefix.strip_suffix('-').filter(|rest| !rest.is_empty());
        let begin = begin.map_or_else(|| prefix.to_owned(), |rest| format!("{rest}a"));
        wrong(
            name_of(resource, &begin),
            prefix,
            "metadata.generateName",
            causes,
        );
    }
    if name.is_empty() {
        causes.push(Cause::required(
            "metadata.name",
            "name or generateName is required",
        ));
    } else {
        let mut found = name_of(resource, name);
        if resource.storage == "apiservices.apiregistration.k8s.io" && found.is_empty() {
            let spec = &object["spec"];
            let wanted = format!("{}.{}", text(&spec["version"]), text(&spec["group"]));
            if name != wanted {
                found.push(format!(
                    "must be `spec.version+\".\"+spec.group`: {wanted:?}"
                ));
            }
        }
        if resource.storage == DEFINITIONS {
            let spec = &object["spec"];
            let wanted = format!(
                "{}.{}",
                text(&spec["names"]["plural"]),
                text(&spec["group"])
            );
            if name != wanted {
                found.push("must be spec.names.plural+\".\"+spec.group".to_owned());
            }
        }
        causes.extend(
            found
                .into_iter()
                .map(|why| Cause::invalid("metadata.name", &json!(name), &why)),
        );
    }
    rest(metadata, knows_finalizers(resource), causes);
}

/// Checks the metadata of an embedded object at a path.
pub(crate) fn embedded(metadata: &Value, path: &str, causes: &mut Vec<Cause>) {
    let mut found = Vec::new();
    rest(metadata, false, &mut found);
    causes.extend(found.into_iter().map(|cause| Cause {
        field: cause.field.replacen("metadata", path, 1),
        ..cause
    }));
}

/// Returns warnings about new finalizers of custom objects that have no domain.
pub(crate) fn finalizer_warnings(before: Option<&Value>, object: &Value) -> Vec<String> {
    let all = |object: &Value| {
        object["metadata"]["finalizers"]
            .as_array()
            .cloned()
            .unwrap_or_default()
    };
    let known = before.map(all).unwrap_or_default();
    all(object)
        .iter()
        .filter(|finalizer| !known.contains(finalizer) && is_bare_finalizer(text(finalizer)))
        .map(|finalizer| {
            format!(
                "metadata.finalizers: {finalizer}: prefer a domain-qualified finalizer name to avoid accidental conflicts with other finalizer writers"
            )
        })
        .collect()
}

/// Returns whether a finalizer is not a standard one and has no domain.
fn is_bare_finalizer(name: &str) -> bool {
    !name.contains('/') && !STANDARD_FINALIZERS.contains(&name)
}

/// Returns whether finalizers of a kind must be standard ones or have a domain.
fn knows_finalizers(resource: &Resource) -> bool {
    resource.custom.is_none() && resource.storage != DEFINITIONS
}

fn name_of(resource: &Resource, name: &str) -> Vec<String> {
    if resource.group == "rbac.authorization.k8s.io" {
        return names::path_segment(name);
    }
    match resource.storage.as_str() {
        "namespaces" | "statefulsets.apps" => names::label(name),
        "services" => names::service(name),
        "apiservices.apiregistration.k8s.io"
        | "certificatesigningrequests.certificates.k8s.io"
        | "events" => names::path_segment(name),
        "ipaddresses.networking.k8s.io" => addresses::strict(name),
        "cronjobs.batch" => {
            let mut wrong = names::subdomain(name);
            if name.len() > 52 {
                wrong.push("must be no more than 52 characters".to_owned());
            }
            wrong
        }
        _ => names::subdomain(name),
    }
}

/// Checks labels, annotations, owners and finalizers.
fn rest(metadata: &Value, finalizers_are_known: bool, causes: &mut Vec<Cause>) {
    labels(&metadata["labels"], "metadata.labels", causes);
    annotations(&metadata["annotations"], "metadata.annotations", causes);
    owners(&metadata["ownerReferences"], causes);
    let at = "metadata.finalizers";
    for (path, finalizer) in indexed(&metadata["finalizers"], at) {
        check_finalizer(finalizer, at, causes);
        if finalizers_are_known && is_bare_finalizer(text(finalizer)) {
            causes.push(Cause::invalid(path, finalizer, BARE_FINALIZER));
        }
    }
    let generation = &metadata["generation"];
    not_negative(generation, "metadata.generation", causes);
}

fn check_finalizer(finalizer: &Value, path: &str, causes: &mut Vec<Cause>) {
    let name = text(finalizer);
    wrong(names::key(name), name, path, causes);
}

/// Checks the specification of a namespace.
pub(super) fn namespace(spec: &Value, causes: &mut Vec<Cause>) {
    let at = "spec.finalizers";
    for (_, finalizer) in indexed(&spec["finalizers"], at) {
        check_finalizer(finalizer, at, causes);
        if is_bare_finalizer(text(finalizer)) {
            causes.push(Cause::invalid(at, finalizer, BARE_FINALIZER));
        }
    }
}

/// Checks labels, or a selector of labels.
pub(super) fn labels(labels: &Value, path: &str, causes: &mut Vec<Cause>) {
    for (key, value) in labels.as_object().into_iter().flatten() {
        let wrong = names::key(key).into_iter();
        causes.extend(wrong.map(|why| Cause::invalid(path, &json!(key), &why)));
        let wrong = names::value(text(value)).into_iter();
        causes.extend(wrong.map(|why| Cause::invalid(path, value, &why)));
    }
}

/// Checks annotations at a path.
pub(super) fn annotations(annotations: &Value, path: &str, causes: &mut Vec<Cause>) {
    let mut size = 0;
    for (key, value) in annotations.as_object().into_iter().flatten() {
        let wrong = names::key(&key.to_lowercase()).into_iter();
        causes.extend(wrong.map(|why| Cause::invalid(path, &json!(key), &why)));
        size += key.len() + text(value).len();
    }
    if size > LARGEST_ANNOTATIONS {
        causes.push(Cause::too_long(path, LARGEST_ANNOTATIONS));
    }
}

fn owners(owners: &Value, causes: &mut Vec<Cause>) {
    const PATH: &str = "metadata.ownerReferences";
    let mut controller: Option<&Value> = None;
    for (_, owner) in indexed(owners, PATH) {
        let version = text(&owner["apiVersion"]);
        if version.is_empty() || version.matches('/').count() > 1 {
            causes.push(Cause::invalid(
                format!("{PATH}.apiVersion"),
                &json!(version),
                "version must not be empty",
            ));
        }
        for field in ["kind", "name", "uid"] {
            if text(&owner[field]).is_empty() {
                causes.push(Cause::invalid(
                    format!("{PATH}.{field}"),
                    &json!(""),
                    "must not be empty",
                ));
            }
        }
        if version == "v1" && owner["kind"] == "Event" {
            causes.push(
                Cause::invalid(
                    PATH,
                    owner,
                    "/v1, Kind=Event is disallowed from being an owner",
                )
                .with_value(&written(owner)),
            );
        }
        if owner["controller"] == true && controller != Some(owner) {
            match controller {
                None => controller = Some(owner),
                Some(first) => {
                    let all: Vec<String> = owners
                        .as_array()
                        .into_iter()
                        .flatten()
                        .map(written)
                        .collect();
                    let named = |owner: &Value| {
                        format!("{}/{}", text(&owner["kind"]), text(&owner["name"]))
                    };
                    let why = format!(
                        "Only one reference can have Controller set to true. Found \"true\" in references for {} and {}",
                        named(first),
                        named(owner)
                    );
                    causes.push(
                        Cause::invalid(PATH, owners, &why)
                            .with_value(&format!("[{}]", all.join(","))),
                    );
                }
            }
        }
    }
}

/// Returns an owner with its fields in the order of its type.
fn written(owner: &Value) -> String {
    let fields: Vec<String> = [
        "apiVersion",
        "kind",
        "name",
        "uid",
        "controller",
        "blockOwnerDeletion",
    ]
    .into_iter()
    .filter_map(|field| Some(format!("{field:?}:{}", owner.get(field)?)))
    .collect();
    format!("{{{}}}", fields.join(","))
}

/// Checks the metadata of a changed object.
pub(super) fn check_change(
    resource: &Resource,
    before: &Value,
    object: &Value,
    causes: &mut Vec<Cause>,
) {
    let (old, new) = (&before["metadata"], &object["metadata"]);
    let changed = ["labels", "annotations", "ownerReferences", "finalizers"]
        .iter()
        .any(|field| old[field] != new[field]);
    if !changed {
        return;
    }
    if old["deletionTimestamp"].is_string() {
        let known = old["finalizers"].as_array();
        let mut added: Vec<String> = new["finalizers"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|finalizer| !known.is_some_and(|known| known.contains(finalizer)))
            .map(|finalizer| format!("{:?}", text(finalizer)))
            .collect();
        added.sort();
        if !added.is_empty() {
            let why = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                added.join(", ")
            );
            // a real server reports this twice, in the general check and in that of the kind
            causes.push(Cause::forbidden("metadata.finalizers", &why));
            causes.push(Cause::forbidden("metadata.finalizers", &why));
        }
    }
    rest(new, knows_finalizers(resource), causes);
}
