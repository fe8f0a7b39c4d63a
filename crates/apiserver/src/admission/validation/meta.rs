//! Checks of the metadata of all kinds.

use serde_json::{Value, json};

use super::checks::{indexed, not_negative, text, wrong};
use super::{addresses, names};
use crate::failure::Cause;
use crate::registry::Resource;
use crate::storage::DEFINITIONS;
use crate::values::fields::{elements, members};

/// Largest total size of all annotations, in bytes.
const LARGEST_ANNOTATIONS: usize = 256 * 1024;
/// Standard finalizers, which need no prefix.
const STANDARD_FINALIZERS: [&str; 3] = ["kubernetes", "orphan", "foregroundDeletion"];
const DEVICE_CLASSES: &str = "deviceclasses.resource.k8s.io";
const BARE_FINALIZER: &str = "name is neither a standard finalizer name nor is it fully qualified";

/// Checks the metadata of a new object.
pub(super) fn check(resource: &Resource, object: &Value, causes: &mut Vec<Cause>) {
    let metadata = &object["metadata"];
    let name = text(&metadata["name"]);
    prefix(resource, metadata, causes);
    if name.is_empty() {
        causes.push(Cause::required(
            "metadata.name",
            "name or generateName is required",
        ));
    } else {
        let mut found = name_of(resource, name);
        if found.is_empty() {
            found.extend(of_service(resource, object));
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
        wrong(found, name, "metadata.name", causes);
    }
    common(metadata, causes);
    finalizers(metadata, causes);
    if knows_finalizers(resource) && !is_bare(resource) {
        bare_finalizers(metadata, causes);
    }
}

/// Returns what is wrong with the name of an API service, which follows from its specification.
fn of_service(resource: &Resource, object: &Value) -> Option<String> {
    let spec = &object["spec"];
    let wanted = format!("{}.{}", text(&spec["version"]), text(&spec["group"]));
    let is_wrong = resource.storage == "apiservices.apiregistration.k8s.io"
        && object["metadata"]["name"] != wanted;
    is_wrong.then(|| format!("must be `spec.version+\".\"+spec.group`: {wanted:?}"))
}

/// Checks the begin of generated names, to which something is added.
fn prefix(resource: &Resource, metadata: &Value, causes: &mut Vec<Cause>) {
    let prefix = text(&metadata["generateName"]);
    if prefix.is_empty() || resource.storage == DEVICE_CLASSES {
        return;
    }
    let begin = prefix.strip_suffix('-').filter(|rest| !rest.is_empty());
    let begin = begin.map_or_else(|| prefix.to_owned(), |rest| format!("{rest}a"));
    let found = name_of(resource, &begin);
    wrong(found, prefix, "metadata.generateName", causes);
}

/// Returns whether the checks of a kind leave its metadata out, so that only what holds for all kinds is told, and only when nothing else
/// is wrong.
pub(super) fn is_bare(resource: &Resource) -> bool {
    match resource.storage.as_str() {
        "poddisruptionbudgets.policy" => true,
        "events" => resource.group.is_empty(),
        _ => false,
    }
}

/// Checks the metadata of an embedded object at a path.
pub(crate) fn embedded(metadata: &Value, path: &str, causes: &mut Vec<Cause>) {
    let mut found = Vec::new();
    common(metadata, &mut found);
    finalizers(metadata, &mut found);
    causes.extend(found.into_iter().map(|cause| Cause {
        field: cause.field.replacen("metadata", path, 1),
        ..cause
    }));
}

/// Checks the metadata of a template at a path: only labels and annotations have a meaning there.
pub(super) fn of_template(metadata: &Value, path: &str, causes: &mut Vec<Cause>) {
    annotations(
        &metadata["annotations"],
        &format!("{path}.annotations"),
        causes,
    );
    labels(&metadata["labels"], &format!("{path}.labels"), causes);
    for field in members(metadata).map(|(name, _)| name) {
        let shown = match field.as_str() {
            "annotations" | "labels" => continue,
            "uid" => "uID",
            other => other,
        };
        causes.push(Cause::forbidden(format!("{path}.{shown}"), "cannot be set"));
    }
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
    let others = ["admissionregistration.k8s.io", "apiregistration.k8s.io"];
    resource.custom.is_none()
        && ![
            DEFINITIONS,
            "leases.coordination.k8s.io",
            "runtimeclasses.node.k8s.io",
        ]
        .contains(&resource.storage.as_str())
        && !others.contains(&resource.group.as_str())
}

fn name_of(resource: &Resource, name: &str) -> Vec<String> {
    if resource.group == "rbac.authorization.k8s.io" || is_bare(resource) {
        return names::path_segment(name);
    }
    match resource.storage.as_str() {
        "namespaces" | "statefulsets.apps" => names::label(name),
        "services" => names::service(name),
        "apiservices.apiregistration.k8s.io" | "certificatesigningrequests.certificates.k8s.io" => {
            names::path_segment(name)
        }
        "ipaddresses.networking.k8s.io" => addresses::strict(name),
        "cronjobs.batch" => {
            let mut wrong = names::subdomain(name);
            if name.len() > 52 {
                wrong.push("must be no more than 52 characters".to_owned());
            }
            wrong
        }
        DEVICE_CLASSES | "replicationcontrollers" => names::long_name(name),
        _ => names::subdomain(name),
    }
}

/// Checks labels, annotations, owners and generation.
fn common(metadata: &Value, causes: &mut Vec<Cause>) {
    labels(&metadata["labels"], "metadata.labels", causes);
    annotations(&metadata["annotations"], "metadata.annotations", causes);
    owners(&metadata["ownerReferences"], causes);
    let generation = &metadata["generation"];
    not_negative(generation, "metadata.generation", causes);
}

/// Checks the form of finalizers.
fn finalizers(metadata: &Value, causes: &mut Vec<Cause>) {
    let at = "metadata.finalizers";
    for (_, finalizer) in indexed(&metadata["finalizers"], at) {
        check_finalizer(finalizer, at, causes);
    }
}

/// Refuses finalizers that are not standard ones and have no domain.
fn bare_finalizers(metadata: &Value, causes: &mut Vec<Cause>) {
    for (path, finalizer) in indexed(&metadata["finalizers"], "metadata.finalizers") {
        if is_bare_finalizer(text(finalizer)) {
            causes.push(Cause::invalid(path, finalizer, BARE_FINALIZER));
        }
    }
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
    for (key, value) in members(labels) {
        let wrong = names::key(key).into_iter();
        causes.extend(wrong.map(|why| Cause::invalid(path, &json!(key), &why)));
        let wrong = names::value(text(value)).into_iter();
        causes.extend(wrong.map(|why| Cause::invalid(path, value, &why)));
    }
}

/// Checks annotations at a path.
pub(super) fn annotations(annotations: &Value, path: &str, causes: &mut Vec<Cause>) {
    let mut size = 0;
    for (key, value) in members(annotations) {
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
                    let all: Vec<String> = elements(owners).map(written).collect();
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

/// How often a real server looks at the metadata of a changed object because of its kind, besides what it does for all kinds: as at that of
/// a new one, and as at a change. It tells what is wrong each time.
fn looks(resource: &Resource) -> (usize, usize) {
    if resource.group == "admissionregistration.k8s.io" {
        return (1, 0);
    }
    if resource.custom.is_some() {
        return (0, 1);
    }
    match resource.storage.as_str() {
        "endpointslices.discovery.k8s.io"
        | "flowschemas.flowcontrol.apiserver.k8s.io"
        | "limitranges"
        | "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io"
        | "volumeattachments.storage.k8s.io" => (1, 0),
        "csinodes.storage.k8s.io" | "persistentvolumes" => (2, 0),
        "events" if resource.group.is_empty() => (0, 0),
        "poddisruptionbudgets.policy" => (0, 0),
        DEFINITIONS
        | "cronjobs.batch"
        | "csidrivers.storage.k8s.io"
        | "daemonsets.apps"
        | "deployments.apps"
        | "events"
        | "horizontalpodautoscalers.autoscaling"
        | "leases.coordination.k8s.io"
        | "podtemplates"
        | "priorityclasses.scheduling.k8s.io"
        | "replicasets.apps"
        | "replicationcontrollers"
        | "resourcequotas"
        | "resourceslices.resource.k8s.io"
        | "servicecidrs.networking.k8s.io"
        | "services"
        | "statefulsets.apps" => (0, 1),
        _ => (1, 1),
    }
}

/// Returns how often a real server looks at a change of the metadata because of its kind, besides what it does for all kinds.
pub(crate) fn change_checks(resource: &Resource) -> usize {
    looks(resource).1
}

/// Returns what is wrong with the marks of a deletion that a client sends: only a deletion sets them. Those that are there already are kept,
/// whatever a client sends in their place.
pub(crate) fn deletion_marks(resource: &Resource, before: &Value, object: &Value) -> Vec<Cause> {
    let (old, new) = (&before["metadata"], &object["metadata"]);
    let (_, change) = looks(resource);
    let mut causes = Vec::new();
    for field in ["deletionTimestamp", "deletionGracePeriodSeconds"] {
        let is_kept = field == "deletionTimestamp" && !old[field].is_null();
        if new[field].is_null() || is_kept || old[field] == new[field] {
            continue;
        }
        for _ in 0..=change {
            let at = format!("metadata.{field}");
            causes.push(Cause::invalid(at, &new[field], "field is immutable"));
        }
    }
    causes
}

/// Checks the metadata of a changed object.
pub(super) fn check_change(
    resource: &Resource,
    before: &Value,
    object: &Value,
    causes: &mut Vec<Cause>,
) {
    let (old, new) = (&before["metadata"], &object["metadata"]);
    if let Some(why) = of_service(resource, object) {
        causes.push(Cause::invalid("metadata.name", &new["name"], &why));
    }
    let changed = [
        "labels",
        "annotations",
        "ownerReferences",
        "finalizers",
        "generateName",
    ]
    .iter()
    .any(|field| old[field] != new[field]);
    if !changed {
        return;
    }
    let (whole, change) = looks(resource);
    if old["deletionTimestamp"].is_string() {
        let known = old["finalizers"].as_array();
        let mut added: Vec<String> = elements(&new["finalizers"])
            .filter(|finalizer| !known.is_some_and(|known| known.contains(finalizer)))
            .map(|finalizer| format!("{:?}", text(finalizer)))
            .collect();
        added.sort();
        if !added.is_empty() {
            let why = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                added.join(", ")
            );
            for _ in 0..=change {
                causes.push(Cause::forbidden("metadata.finalizers", &why));
            }
        }
    }
    for why in names::path_segment(text(&new["generateName"])) {
        let given = &new["generateName"];
        causes.push(Cause::invalid("metadata.generateName", given, &why));
    }
    for _ in 0..whole {
        prefix(resource, new, causes);
    }
    for _ in 0..2 + whole + change {
        common(new, causes);
    }
    for _ in 0..=whole {
        finalizers(new, causes);
    }
    if knows_finalizers(resource) {
        for _ in 0..whole + change {
            bare_finalizers(new, causes);
        }
    }
}
