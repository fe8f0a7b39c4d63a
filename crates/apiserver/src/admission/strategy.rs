//! What the server sets in objects of each kind, and which parts of a write it ignores.

use serde_json::{Value, json};

use crate::failure::Failure;
use crate::registry::Resource;
use crate::storage::{DEFINITIONS, State};
use crate::values::fields::{TEMPLATE_GENERATION, copy, copy_part, elements, remove};

mod claim;
pub(crate) mod definition;
mod job;
mod pod;
mod service;

pub(crate) use self::service::{first_service_address, service_range};

/// Kinds whose generation the server counts, in addition to custom resources.
const COUNTED: &[&str] = &[
    "cronjobs.batch",
    DEFINITIONS,
    "csidrivers.storage.k8s.io",
    "daemonsets.apps",
    "deployments.apps",
    "deviceclasses.resource.k8s.io",
    "endpointslices.discovery.k8s.io",
    "flowschemas.flowcontrol.apiserver.k8s.io",
    "ingressclasses.networking.k8s.io",
    "ingresses.networking.k8s.io",
    "jobs.batch",
    "mutatingwebhookconfigurations.admissionregistration.k8s.io",
    "networkpolicies.networking.k8s.io",
    "poddisruptionbudgets.policy",
    "pods",
    "podtemplates",
    "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io",
    "replicasets.apps",
    "replicationcontrollers",
    "resourceslices.resource.k8s.io",
    "statefulsets.apps",
    "validatingadmissionpolicies.admissionregistration.k8s.io",
    "validatingadmissionpolicybindings.admissionregistration.k8s.io",
    "validatingwebhookconfigurations.admissionregistration.k8s.io",
];

fn is_counted(resource: &Resource) -> bool {
    resource.custom.is_some() || COUNTED.contains(&resource.storage.as_str())
}

/// Prepares a new object for the store; name, uid and time of creation are already set. What is only tried reserves nothing. Returns warnings.
pub(crate) fn prepare_create(
    resource: &Resource,
    state: &State,
    object: &mut Value,
    is_tried: bool,
) -> Result<Vec<String>, Failure> {
    let mut warnings = Vec::new();
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("deletionTimestamp");
        metadata.remove("deletionGracePeriodSeconds");
        metadata.remove("selfLink");
    }
    if is_counted(resource) && resource.storage != "csidrivers.storage.k8s.io" {
        object["metadata"]["generation"] = json!(1);
    } else if resource.storage == "priorityclasses.scheduling.k8s.io" {
        // always 1: no change of it counts as a change of the specification
        object["metadata"]["generation"] = json!(1);
    }
    if resource.has_status() && resource.storage != "nodes" {
        remove(object, "status");
    }
    match resource.storage.as_str() {
        "namespaces" => {
            let finalizers = &mut object["spec"]["finalizers"];
            if !finalizers.is_array() {
                *finalizers = json!([]);
            }
            if let Some(list) = finalizers.as_array_mut()
                && !list.contains(&json!("kubernetes"))
            {
                list.push(json!("kubernetes"));
            }
            object["status"] = json!({"phase": "Active"});
        }
        "pods" => warnings = pod::prepare(object),
        DEFINITIONS => definition::set_initial_status(object),
        "persistentvolumes" => {
            object["status"] = json!({"phase": "Pending", "lastPhaseTransitionTime": object["metadata"]["creationTimestamp"]});
        }
        "persistentvolumeclaims" => {
            object["status"] = json!({"phase": "Pending"});
            claim::settle(&mut object["spec"], None);
        }
        "jobs.batch" => job::prepare(object),
        "services" => service::allocate(state, object, None, is_tried)?,
        "daemonsets.apps" => {
            object["metadata"]["annotations"][TEMPLATE_GENERATION] = json!("1");
        }
        _ => {}
    }
    Ok(warnings)
}

/// Restores what a client may not change in a replacement. `subresource` is empty for the object itself.
pub(crate) fn prepare_update(
    resource: &Resource,
    state: &State,
    subresource: &str,
    before: &Value,
    object: &mut Value,
    is_tried: bool,
) -> Result<(), Failure> {
    match subresource {
        "status" => status_update(resource, before, object),
        _ => {
            if resource.has_status() {
                copy(before, object, "status");
            }
        }
    }
    match (resource.storage.as_str(), subresource) {
        ("namespaces", "") => copy_part(before, object, "spec", "finalizers"),
        ("namespaces", "finalize") => copy(before, object, "status"),
        ("persistentvolumeclaims", "") => {
            claim::settle(&mut object["spec"], Some(&before["spec"]));
        }
        ("services", "") => service::allocate(state, object, Some(before), is_tried)?,
        (DEFINITIONS, "") => definition::remember_storage(object),
        ("daemonsets.apps", "") => count_templates(before, object),
        ("pods", "ephemeralcontainers") => only_part(before, object, &["ephemeralContainers"]),
        ("pods", "resize") => resize(before, object),
        _ => {}
    }
    if is_counted(resource) && subresource != "status" && has_changed(resource, before, object) {
        let generation = before["metadata"]["generation"].as_i64().unwrap_or(0);
        object["metadata"]["generation"] = json!(generation + 1);
    }
    Ok(())
}

/// Counts the changes of a daemon set's template in an annotation.
fn count_templates(before: &Value, object: &mut Value) {
    let known = before["metadata"]["annotations"][TEMPLATE_GENERATION]
        .as_str()
        .and_then(|text| text.parse::<i64>().ok())
        .unwrap_or(1);
    let changed = before["spec"]["template"] != object["spec"]["template"];
    let now = known + i64::from(changed);
    object["metadata"]["annotations"][TEMPLATE_GENERATION] = json!(now.to_string());
}

fn status_update(resource: &Resource, before: &Value, object: &mut Value) {
    let status = remove(object, "status").unwrap_or(Value::Null);
    let keeps_metadata = [
        "resourceclaims.resource.k8s.io",
        "volumeattachments.storage.k8s.io",
    ];
    if resource.custom.is_some() || keeps_metadata.contains(&resource.storage.as_str()) {
        // all metadata except the managed fields are those of the stored object
        let owners = object["metadata"]["managedFields"].take();
        *object = before.clone();
        if !owners.is_null() {
            object["metadata"]["managedFields"] = owners;
        }
    } else {
        let metadata = object["metadata"].take();
        *object = before.clone();
        object["metadata"] = metadata;
        if resource.storage == "pods" {
            copy_part(before, object, "metadata", "ownerReferences");
        }
        if resource.storage == "deployments.apps" {
            copy_part(before, object, "metadata", "labels");
        }
    }
    if status.is_null() {
        remove(object, "status");
    } else {
        object["status"] = status;
    }
    if resource.storage == "pods" {
        let qos_class = before["status"]["qosClass"].clone();
        if object["status"]["qosClass"].is_null() && !qos_class.is_null() {
            object["status"]["qosClass"] = qos_class;
        }
        keep_observed_generations(before, object);
    }
}

/// Keeps the observed generations in a status whose writer does not set them.
fn keep_observed_generations(before: &Value, object: &mut Value) {
    let observed = before["status"]["observedGeneration"].clone();
    if object["status"]["observedGeneration"].is_null() && !observed.is_null() {
        object["status"]["observedGeneration"] = observed;
    }
    let known = before["status"]["conditions"].clone();
    let Some(list) = object["status"]["conditions"].as_array_mut() else {
        return;
    };
    for condition in list {
        if condition.get("observedGeneration").is_some() {
            continue;
        }
        let was = elements(&known)
            .find(|was| was["type"] == condition["type"])
            .and_then(|was| was.get("observedGeneration"));
        if let Some(was) = was {
            condition["observedGeneration"] = was.clone();
        }
    }
}

/// Takes only some fields of the new specification.
fn only_part(before: &Value, object: &mut Value, fields: &[&str]) {
    let given = object["spec"].take();
    object["spec"] = before["spec"].clone();
    copy(before, object, "status");
    keep_metadata(before, object);
    for field in fields {
        copy(&given, &mut object["spec"], field);
    }
}

/// Takes the new resources of the containers, if the containers are the same.
fn resize(before: &Value, object: &mut Value) {
    let given = object["spec"].take();
    let mut spec = before["spec"].clone();
    for list in ["containers", "initContainers"] {
        let same = names(&given[list]) == names(&spec[list]);
        if !same {
            // validation refuses this
            object["spec"] = given;
            return;
        }
        let new = elements(&given[list]);
        for (old, new) in spec[list].as_array_mut().into_iter().flatten().zip(new) {
            copy(new, old, "resources");
            copy(new, old, "resizePolicy");
        }
    }
    object["spec"] = spec;
    copy(before, object, "status");
    keep_metadata(before, object);
}

/// Restores the metadata that a write of a part of the specification does not change.
fn keep_metadata(before: &Value, object: &mut Value) {
    for field in ["labels", "annotations", "finalizers", "ownerReferences"] {
        copy_part(before, object, "metadata", field);
    }
}

fn names(list: &Value) -> Vec<&str> {
    let list = elements(list);
    list.filter_map(|item| item["name"].as_str()).collect()
}

/// Returns whether a write counts as a new generation.
fn has_changed(resource: &Resource, before: &Value, object: &Value) -> bool {
    let spec_only = |field: &str| before.get(field) != object.get(field);
    match resource.storage.as_str() {
        "pods"
        | "jobs.batch"
        | "cronjobs.batch"
        | "statefulsets.apps"
        | "daemonsets.apps"
        | "replicasets.apps"
        | "replicationcontrollers"
        | "poddisruptionbudgets.policy" => spec_only("spec"),
        "deployments.apps" => {
            spec_only("spec")
                || before["metadata"]["annotations"] != object["metadata"]["annotations"]
        }
        "endpointslices.discovery.k8s.io" => {
            without_meta(before) != without_meta(object)
                || before["metadata"]["labels"] != object["metadata"]["labels"]
        }
        _ => without_meta(before) != without_meta(object),
    }
}

/// Returns the parts whose changes count as a new generation in kinds without a specification.
fn without_meta(object: &Value) -> Value {
    let mut object = object.clone();
    for field in ["metadata", "status", "apiVersion"] {
        remove(&mut object, field);
    }
    object
}
