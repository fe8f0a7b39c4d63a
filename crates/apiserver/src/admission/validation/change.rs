//! Changes that are not allowed.

use serde_json::{Value, json};

use super::checks::text;
use super::internal;
use crate::failure::Cause;
use crate::registry::Resource;

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
        }
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
            for field in [
                "provisioner",
                "parameters",
                "reclaimPolicy",
                "volumeBindingMode",
            ] {
                if before[field] != object[field] {
                    causes.push(Cause::forbidden(
                        field,
                        &format!("updates to {field} are forbidden."),
                    ));
                }
            }
        }
        "runtimeclasses.node.k8s.io" => {
            immutable(&before["handler"], &object["handler"], "handler", causes);
        }
        _ => {}
    }
}

fn immutable(old: &Value, new: &Value, path: &str, causes: &mut Vec<Cause>) {
    if old != new {
        causes.push(Cause::invalid(path, new, IMMUTABLE));
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
