//! Changes that are not allowed.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::checks::text;
use super::{events, internal, network};
use crate::failure::Cause;
use crate::registry::Resource;
use crate::values::fields::copy;
use crate::values::quantity;

const IMMUTABLE_DATA: &str = "field is immutable when `immutable` is set";
const IMMUTABLE: &str = "field is immutable";
/// Which fields of a pod may be changed, in the words of the refusal.
const POD_CHANGES: &str = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

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
        "pods" => pod(old, new, causes),
        "deployments.apps" | "replicasets.apps" | "daemonsets.apps" => {
            immutable(&old["selector"], &new["selector"], "spec.selector", causes);
        }
        "statefulsets.apps" => stateful_set(old, new, causes),
        "jobs.batch" => {
            for field in ["selector", "template", "completionMode"] {
                let path = format!("spec.{field}");
                if field == "template" && old["suspend"] == true {
                    continue;
                }
                immutable(&old[field], &new[field], &path, causes);
            }
        }
        "services" => {
            let kept = old["type"] != "ExternalName" && new["type"] != "ExternalName";
            let (was, is) = (&old["clusterIP"], &new["clusterIP"]);
            if kept && !was.is_null() && was != is {
                causes.push(Cause::invalid(
                    "spec.clusterIPs[0]",
                    &new["clusterIPs"],
                    "may not change once set",
                ));
            }
            balancer(old, new, causes);
        }
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
            for field in ["nodeTopology", "storageClassName"] {
                immutable(&before[field], &object[field], field, causes);
            }
        }
        "controllerrevisions.apps" => {
            immutable(&before["data"], &object["data"], "data", causes);
        }
        "endpointslices.discovery.k8s.io" => {
            let field = "addressType";
            immutable(&before[field], &object[field], field, causes);
        }
        "ingressclasses.networking.k8s.io" => {
            immutable(
                &old["controller"],
                &new["controller"],
                "spec.controller",
                causes,
            );
        }
        "ipaddresses.networking.k8s.io" => {
            immutable(
                &old["parentRef"],
                &new["parentRef"],
                "spec.parentRef",
                causes,
            );
        }
        "servicecidrs.networking.k8s.io" => service_ranges(old, new, causes),
        "resourcequotas" => {
            let scopes = |spec: &Value| -> BTreeSet<String> {
                let scopes = spec["scopes"].as_array().into_iter().flatten();
                scopes.map(|scope| text(scope).to_owned()).collect()
            };
            if scopes(old) != scopes(new) {
                causes.push(Cause::invalid("spec.scopes", &new["scopes"], IMMUTABLE));
            }
        }
        "persistentvolumes" => volume(old, new, causes),
        "resourceclaims.resource.k8s.io"
        | "resourceclaimtemplates.resource.k8s.io"
        | "volumeattachments.storage.k8s.io" => immutable(old, new, "spec", causes),
        "persistentvolumeclaims" => claim(before, object, causes),
        "runtimeclasses.node.k8s.io" => {
            immutable(&before["handler"], &object["handler"], "handler", causes);
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
    let source = |spec: &Value| {
        let mut fields = spec.as_object().cloned().unwrap_or_default();
        for field in [
            "accessModes",
            "capacity",
            "claimRef",
            "mountOptions",
            "nodeAffinity",
            "persistentVolumeReclaimPolicy",
            "storageClassName",
            "volumeAttributesClassName",
            "volumeMode",
        ] {
            fields.remove(field);
        }
        fields
    };
    if source(old) != source(new) {
        let why = "spec.persistentvolumesource is immutable after creation";
        causes.push(Cause::forbidden("spec.persistentvolumesource", why));
    }
    immutable(&old["volumeMode"], &new["volumeMode"], "volumeMode", causes);
    let affinity = "nodeAffinity";
    if !old[affinity].is_null() {
        immutable(&old[affinity], &new[affinity], affinity, causes);
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

/// Checks what must stay of a service that a load balancer is for.
fn balancer(old: &Value, new: &Value, causes: &mut Vec<Cause>) {
    if old["type"] != "LoadBalancer" || new["type"] != "LoadBalancer" {
        return;
    }
    let is_local = |spec: &Value| spec["externalTrafficPolicy"] == "Local";
    let (was, is) = (&old["healthCheckNodePort"], &new["healthCheckNodePort"]);
    let both = is_local(old) && is_local(new);
    if both && is.as_i64().unwrap_or_default() != 0 && was != is {
        causes.push(Cause::forbidden("spec.healthCheckNodePort", IMMUTABLE));
    }
    let class = &new["loadBalancerClass"];
    if old["loadBalancerClass"] != *class {
        let why = "may not change once set";
        causes.push(Cause::invalid("spec.loadBalancerClass", class, why));
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
            let written = format!(
                "{{\"Name\":{},\"NodeID\":{},\"TopologyKeys\":{},\"Allocatable\":null}}",
                is["name"],
                json!(text(&is["nodeID"])),
                is["topologyKeys"]
            );
            let cause = Cause::invalid("spec.drivers", &Value::Null, IMMUTABLE);
            causes.push(cause.with_value(&written));
        }
    }
}

/// Checks the data of a secret or config map that is marked as immutable, and the type of a secret.
fn immutable_data(before: &Value, object: &Value, causes: &mut Vec<Cause>) {
    let kind = text(&object["kind"]);
    if kind == "Secret" && before["type"] != object["type"] {
        causes.push(Cause::invalid("type", &object["type"], IMMUTABLE));
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

fn pod(old: &Value, new: &Value, causes: &mut Vec<Cause>) {
    for list in ["containers", "initContainers"] {
        let count = |spec: &Value| spec[list].as_array().map_or(0, Vec::len);
        if count(old) != count(new) {
            causes.push(Cause::forbidden(
                format!("spec.{list}"),
                "pod updates may not add or remove containers",
            ));
            return;
        }
        for (index, container) in new[list].as_array().into_iter().flatten().enumerate() {
            if text(&container["image"]).trim() != text(&container["image"]) {
                causes.push(Cause::invalid(
                    format!("spec.{list}[{index}].image"),
                    &container["image"],
                    "must not have leading or trailing whitespace",
                ));
            }
        }
    }
    deadline(old, new, causes);
    tolerations(old, new, causes);
    gates(old, new, causes);
    let fixed = without_allowed_changes(old, new);
    if fixed != *old {
        let difference = internal::difference(old, &fixed);
        causes.push(Cause::forbidden(
            "spec",
            &format!("{POD_CHANGES}\n{difference}"),
        ));
    }
}

/// Returns the new specification of a pod with the old values of all fields that may change.
fn without_allowed_changes(old: &Value, new: &Value) -> Value {
    let mut fixed = new.clone();
    for list in ["containers", "initContainers"] {
        let before = old[list].as_array().into_iter().flatten();
        let after = fixed[list].as_array_mut().into_iter().flatten();
        for (container, before) in after.zip(before) {
            container["image"] = before["image"].clone();
        }
    }
    let was_negative = old["terminationGracePeriodSeconds"]
        .as_i64()
        .is_some_and(|seconds| seconds < 0);
    let mut free = vec!["activeDeadlineSeconds", "schedulingGates", "tolerations"];
    if was_negative && new["terminationGracePeriodSeconds"] == 1 {
        free.push("terminationGracePeriodSeconds");
    }
    let gated = old["schedulingGates"]
        .as_array()
        .is_some_and(|gates| !gates.is_empty());
    if gated {
        free.extend(["nodeSelector", "affinity"]);
    }
    for field in free {
        crate::values::fields::copy(old, &mut fixed, field);
    }
    // indexing by the name of a missing list leaves a null
    if let Some(fields) = fixed.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    fixed
}

/// Checks that the tolerations of a pod are kept, with other seconds at most.
fn tolerations(old: &Value, new: &Value, causes: &mut Vec<Cause>) {
    let empty = Vec::new();
    let (known, given) = (
        old["tolerations"].as_array().unwrap_or(&empty),
        new["tolerations"].as_array().unwrap_or(&empty),
    );
    let seconds_aside = |toleration: &Value| {
        let mut toleration = toleration.clone();
        if let Some(fields) = toleration.as_object_mut() {
            fields.remove("tolerationSeconds");
        }
        toleration
    };
    let all_kept = known.iter().all(|toleration| {
        given
            .iter()
            .any(|other| seconds_aside(other) == seconds_aside(toleration))
    });
    if !all_kept {
        causes.push(Cause::forbidden(
            "spec.tolerations",
            "existing toleration can not be modified except its tolerationSeconds",
        ));
    }
}

fn deadline(old: &Value, new: &Value, causes: &mut Vec<Cause>) {
    const FIELD: &str = "activeDeadlineSeconds";
    let path = format!("spec.{FIELD}");
    match (old[FIELD].as_i64(), new[FIELD].as_i64()) {
        (Some(was), Some(is)) if was < is => causes.push(Cause::invalid(
            path,
            &json!(is),
            "must be less than or equal to previous value",
        )),
        (Some(_), None) => causes.push(Cause::invalid(
            path,
            &Value::Null,
            "must not update from a positive integer to nil value",
        )),
        _ => {}
    }
}

fn gates(old: &Value, new: &Value, causes: &mut Vec<Cause>) {
    let known = old["schedulingGates"].as_array();
    let added = new["schedulingGates"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|gate| !known.is_some_and(|known| known.contains(gate)));
    if added.is_some() {
        causes.push(Cause::forbidden(
            "spec.schedulingGates",
            "only deletion is allowed, but found new scheduling gate",
        ));
    }
}
