//! Changes that are not allowed.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::checks::text;
use super::{events, internal, network};
use crate::failure::Cause;
use crate::registry::Resource;
use crate::values::fields::{copy, elements};
use crate::values::quantity;

mod jobs;
mod pod;
mod services;

const IMMUTABLE_DATA: &str = "field is immutable when `immutable` is set";
const IMMUTABLE: &str = "field is immutable";

/// Checks a change before the object itself is checked.
pub(super) fn before_contents(
    resource: &Resource,
    before: &Value,
    object: &Value,
    causes: &mut Vec<Cause>,
) {
    match resource.storage.as_str() {
        "rolebindings.rbac.authorization.k8s.io"
        | "clusterrolebindings.rbac.authorization.k8s.io" => {
            let role = &object["roleRef"];
            if before["roleRef"] != *role {
                let written = format!(
                    "{{\"APIGroup\":{},\"Kind\":{},\"Name\":{}}}",
                    role["apiGroup"], role["kind"], role["name"]
                );
                let cause = Cause::invalid("roleRef", role, "cannot change roleRef");
                causes.push(cause.with_value(&written));
            }
        }
        "priorityclasses.scheduling.k8s.io" => {
            if before["value"] != object["value"] {
                causes.push(Cause::forbidden(
                    "value",
                    "may not be changed in an update.",
                ));
            }
            if before["preemptionPolicy"] != object["preemptionPolicy"] {
                causes.push(Cause::invalid(
                    "preemptionPolicy",
                    &object["preemptionPolicy"],
                    IMMUTABLE,
                ));
            }
        }
        _ => {}
    }
}

/// Checks a change after the object itself was checked.
pub(super) fn after_contents(
    resource: &Resource,
    before: &Value,
    object: &Value,
    causes: &mut Vec<Cause>,
) {
    let (old, new) = (&before["spec"], &object["spec"]);
    match resource.storage.as_str() {
        "pods" => pod::check(old, new, causes),
        "deployments.apps" | "replicasets.apps" | "daemonsets.apps" => {
            selector(&old["selector"], &new["selector"], "spec.selector", causes);
        }
        "statefulsets.apps" => stateful_set(old, new, causes),
        "jobs.batch" => jobs::check(before, object, causes),
        "services" => services::check(old, new, causes),
        "events" => events::of_change(resource, before, object, causes),
        "csinodes.storage.k8s.io" => node_drivers(old, new, causes),
        "secrets" | "configmaps" => immutable_data(before, object, causes),
        "nodes" => {
            let had = old["podCIDRs"]
                .as_array()
                .is_some_and(|list| !list.is_empty());
            if had && old["podCIDRs"] != new["podCIDRs"] {
                causes.push(Cause::forbidden(
                    "spec.podCIDRs",
                    "node updates may not change podCIDR except from \"\" to valid",
                ));
            }
            let had = !text(&old["providerID"]).is_empty();
            if had && old["providerID"] != new["providerID"] {
                causes.push(Cause::forbidden(
                    "spec.providerID",
                    "node updates may not change providerID except from \"\" to valid",
                ));
            }
            if text(&old["externalID"]) != text(&new["externalID"]) {
                causes.push(Cause::forbidden("spec.externalID", "may not be updated"));
            }
        }
        "storageclasses.storage.k8s.io" => {
            for field in ["parameters", "provisioner", "reclaimPolicy"] {
                forbidden(before, object, field, causes);
            }
            let field = "volumeBindingMode";
            immutable(&before[field], &object[field], field, causes);
        }
        "volumeattributesclasses.storage.k8s.io" => {
            for field in ["driverName", "parameters"] {
                forbidden(before, object, field, causes);
            }
        }
        "csidrivers.storage.k8s.io" => {
            for (field, shown) in [
                ("attachRequired", "attachedRequired"),
                ("volumeLifecycleModes", "volumeLifecycleModes"),
            ] {
                immutable(&old[field], &new[field], &format!("spec.{shown}"), causes);
            }
        }
        "csistoragecapacities.storage.k8s.io" => {
            let field = "nodeTopology";
            selector(&before[field], &object[field], field, causes);
            same_text(
                before,
                object,
                "storageClassName",
                "storageClassName",
                causes,
            );
        }
        "controllerrevisions.apps" => {
            immutable(&before["data"], &object["data"], "data", causes);
        }
        "endpointslices.discovery.k8s.io" => {
            same_text(before, object, "addressType", "addressType", causes);
        }
        "ingressclasses.networking.k8s.io" => {
            same_text(old, new, "controller", "spec.controller", causes);
        }
        "ipaddresses.networking.k8s.io" => {
            let (was, is) = (&old["parentRef"], &new["parentRef"]);
            shown_as("ParentReference", was, is, "spec.parentRef", causes);
        }
        "servicecidrs.networking.k8s.io" => service_ranges(old, new, causes),
        "resourcequotas" => {
            let scopes = |spec: &Value| -> BTreeSet<String> {
                let scopes = elements(&spec["scopes"]);
                scopes.map(|scope| text(scope).to_owned()).collect()
            };
            if scopes(old) != scopes(new) {
                causes.push(Cause::invalid("spec.scopes", &new["scopes"], IMMUTABLE));
            }
        }
        "persistentvolumes" => volume(old, new, causes),
        "resourceclaims.resource.k8s.io" => {
            shown_as("ResourceClaimSpec", old, new, "spec", causes);
        }
        "resourceclaimtemplates.resource.k8s.io" => {
            shown_as("ResourceClaimTemplateSpec", old, new, "spec", causes);
        }
        "resourceslices.resource.k8s.io" => {
            same_text(&old["pool"], &new["pool"], "name", "spec.pool.name", causes);
            same_text(old, new, "driver", "spec.driver", causes);
            immutable(&old["nodeName"], &new["nodeName"], "spec.nodeName", causes);
        }
        "volumeattachments.storage.k8s.io" => {
            shown_as("VolumeAttachmentSpec", old, new, "spec", causes);
        }
        "persistentvolumeclaims" => claim(before, object, causes),
        "runtimeclasses.node.k8s.io" => {
            same_text(before, object, "handler", "handler", causes);
        }
        _ => {}
    }
}

/// Refuses another value of a field, in the words of the kinds of storage.
fn forbidden(before: &Value, object: &Value, field: &str, causes: &mut Vec<Cause>) {
    if before[field] != object[field] {
        let why = format!("updates to {field} are forbidden.");
        causes.push(Cause::forbidden(field, &why));
    }
}

/// Checks that the ranges of addresses stay; one of the other family may come.
fn service_ranges(old: &Value, new: &Value, causes: &mut Vec<Cause>) {
    let empty = Vec::new();
    let (was, is) = (
        old["cidrs"].as_array().unwrap_or(&empty),
        new["cidrs"].as_array().unwrap_or(&empty),
    );
    let grows = was.len() == 1 && is.len() == 2;
    if was.len() != is.len() && !grows {
        causes.push(Cause::invalid("spec.cidrs", &new["cidrs"], IMMUTABLE));
        return;
    }
    for (index, (was, is)) in was.iter().zip(is).enumerate() {
        immutable(was, is, &format!("spec.cidrs[{index}]"), causes);
    }
    if grows {
        network::service_cidr(new, causes);
    }
}

/// Checks that what is behind a volume stays.
fn volume(old: &Value, new: &Value, causes: &mut Vec<Cause>) {
    const SOURCE: &str = "PersistentVolumeSource";
    const SECRET: &str = "controllerExpandSecretRef";
    let mut source = new.clone();
    // it may come later
    if old["csi"].is_object()
        && old["csi"][SECRET].is_null()
        && let Some(csi) = source["csi"].as_object_mut()
    {
        csi.remove(SECRET);
    }
    let difference = internal::difference_of(SOURCE, old, &source);
    if !difference.is_empty() {
        let why = format!("spec.persistentvolumesource is immutable after creation\n{difference}");
        causes.push(Cause::forbidden("spec.persistentvolumesource", &why));
    }
    immutable(&old["volumeMode"], &new["volumeMode"], "volumeMode", causes);
    let affinity = "nodeAffinity";
    if !old[affinity].is_null() && old[affinity] != new[affinity] {
        let why = format!("{IMMUTABLE}, except for updating from beta label to GA");
        let written = internal::written("VolumeNodeAffinity", &new[affinity]);
        causes.push(Cause::invalid(affinity, &Value::Null, &why).with_value(&written));
    }
    let class = "volumeAttributesClassName";
    if !old[class].is_null() && new[class].is_null() {
        let why = "update from non-nil value to nil is forbidden";
        causes.push(Cause::forbidden(format!("spec.{class}"), why));
    }
}

/// Checks that a claim stays; its volume may be named once, and while it is bound it may grow.
fn claim(before: &Value, object: &Value, causes: &mut Vec<Cause>) {
    let mut fixed = (before["spec"].clone(), object["spec"].clone());
    if text(&fixed.0["volumeName"]).is_empty() {
        copy(&object["spec"], &mut fixed.0, "volumeName");
    }
    if fixed.0["storageClassName"].is_null() && !fixed.1["storageClassName"].is_null() {
        copy(&before["spec"], &mut fixed.1, "storageClassName");
    }
    let amount =
        |object: &Value| quantity::amount(&object["spec"]["resources"]["requests"]["storage"]);
    if object["status"]["phase"] == "Bound" {
        fixed.1["resources"]["requests"]["storage"] =
            before["spec"]["resources"]["requests"]["storage"].clone();
        copy(&before["spec"], &mut fixed.1, "volumeAttributesClassName");
    }
    if fixed.0 != fixed.1 {
        let difference = internal::difference_of("PersistentVolumeClaimSpec", &fixed.0, &fixed.1);
        let why = format!(
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims\n{difference}"
        );
        causes.push(Cause::forbidden("spec", &why));
    }
    let has = quantity::amount(&before["status"]["capacity"]["storage"]);
    if amount(object) < amount(before) && amount(object) <= has {
        let why = "field can not be less than status.capacity";
        causes.push(Cause::forbidden("spec.resources.requests.storage", why));
    }
    let mode = |object: &Value| object["spec"]["volumeMode"].clone();
    immutable(&mode(before), &mode(object), "volumeMode", causes);
}

fn immutable(old: &Value, new: &Value, path: &str, causes: &mut Vec<Cause>) {
    if old != new {
        causes.push(Cause::invalid(path, new, IMMUTABLE));
    }
}

/// Checks that a text stays; a missing one is shown as an empty one.
fn same_text(old: &Value, new: &Value, field: &str, path: &str, causes: &mut Vec<Cause>) {
    let given = text(&new[field]);
    if text(&old[field]) != given {
        causes.push(Cause::invalid(path, &json!(given), IMMUTABLE));
    }
}

/// Checks that a selector of labels stays.
fn selector(old: &Value, new: &Value, path: &str, causes: &mut Vec<Cause>) {
    if old != new {
        let cause = Cause::invalid(path, &Value::Null, IMMUTABLE);
        causes.push(cause.with_value(&internal::selector(new)));
    }
}

/// Checks that a structure stays, which is shown in the server's internal form.
fn shown_as(kind: &str, old: &Value, new: &Value, path: &str, causes: &mut Vec<Cause>) {
    if old != new {
        let cause = Cause::invalid(path, &Value::Null, IMMUTABLE);
        causes.push(cause.with_value(&internal::written(kind, new)));
    }
}

/// Checks that the drivers of a node stay, but for how many volumes they can attach.
fn node_drivers(old: &Value, new: &Value, causes: &mut Vec<Cause>) {
    let drivers = |spec: &Value| spec["drivers"].as_array().cloned().unwrap_or_default();
    for was in drivers(old) {
        for is in drivers(new).iter().filter(|is| is["name"] == was["name"]) {
            let fields = ["nodeID", "topologyKeys"];
            if fields.iter().all(|field| was[*field] == is[*field]) {
                continue;
            }
            let mut shown = is.clone();
            shown["allocatable"] = Value::Null;
            let written = internal::written("CSINodeDriver", &shown);
            let cause = Cause::invalid("spec.drivers", &Value::Null, IMMUTABLE);
            causes.push(cause.with_value(&written));
        }
    }
}

/// Checks the data of a secret or config map that is marked as immutable, and the type of a secret.
fn immutable_data(before: &Value, object: &Value, causes: &mut Vec<Cause>) {
    let kind = text(&object["kind"]);
    if kind == "Secret" && before["type"] != object["type"] {
        causes.push(Cause::invalid(
            "type",
            &json!(text(&object["type"])),
            IMMUTABLE,
        ));
    }
    if before["immutable"] != true {
        return;
    }
    if object["immutable"] != true {
        causes.push(Cause::forbidden("immutable", IMMUTABLE_DATA));
    }
    for field in ["data", "binaryData"] {
        if before[field] != object[field] {
            causes.push(Cause::forbidden(field, IMMUTABLE_DATA));
        }
    }
}

fn stateful_set(old: &Value, new: &Value, causes: &mut Vec<Cause>) {
    const CHANGEABLE: [&str; 8] = [
        "replicas",
        "template",
        "updateStrategy",
        "persistentVolumeClaimRetentionPolicy",
        "minReadySeconds",
        "ordinals",
        "revisionHistoryLimit",
        "podManagementPolicy",
    ];
    let fixed = |spec: &Value| {
        let mut spec = spec.clone();
        if let Some(fields) = spec.as_object_mut() {
            for field in CHANGEABLE {
                if field != "podManagementPolicy" {
                    fields.remove(field);
                }
            }
        }
        spec
    };
    if fixed(old) != fixed(new) {
        causes.push(Cause::forbidden(
            "spec",
            "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden",
        ));
    }
}
