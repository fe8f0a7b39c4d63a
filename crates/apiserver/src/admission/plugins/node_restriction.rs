//! What kubelets may write: their own node and lease, and the pods bound to that node.

use serde_json::Value;

use crate::admission::attempt::Attempt;
use crate::failure::Failure;
use crate::storage::State;
use crate::values::annotations::MIRROR;
use crate::values::fields::members;

/// Labels with this prefix decide where workloads may run, so kubelets may not set them.
const RESTRICTED: &str = "node-restriction.kubernetes.io/";

pub(super) fn check_write(
    state: &State,
    attempt: &Attempt<'_>,
    object: &Value,
) -> Result<(), Failure> {
    let Some(node) = attempt.node() else {
        return Ok(());
    };
    match attempt.resource.storage.as_str() {
        "pods" => pod(attempt, node, object),
        "nodes" => own_node(attempt, node, object),
        "leases.coordination.k8s.io" => {
            if attempt.namespace == "kube-node-lease" && attempt.name == node {
                Ok(())
            } else if attempt.namespace == "kube-node-lease" {
                Err(attempt.forbidden(
                    "can only access node lease with the same name as the requesting node",
                ))
            } else {
                Err(attempt.forbidden(
                    "can only access leases in the \"kube-node-lease\" system namespace",
                ))
            }
        }
        "csinodes.storage.k8s.io" if attempt.name != node => {
            Err(attempt
                .forbidden("can only access CSINode with the same name as the requesting node"))
        }
        "serviceaccounts" if attempt.subresource == "token" => token(state, attempt, node, object),
        _ => Ok(()),
    }
}

fn pod(attempt: &Attempt<'_>, node: &str, object: &Value) -> Result<(), Failure> {
    let on_it = |pod: &Value| pod["spec"]["nodeName"] == node;
    match (attempt.before, attempt.subresource) {
        (None, "") => {
            let is_mirror = object["metadata"]["annotations"][MIRROR].is_string();
            if !is_mirror {
                return Err(attempt.forbidden(&format!(
                    "pod does not have \"{MIRROR}\" annotation, node {node:?} can only create mirror pods"
                )));
            }
            if !on_it(object) {
                return Err(attempt.forbidden(&format!(
                    "node {node:?} can only create pods with spec.nodeName set to itself"
                )));
            }
            Ok(())
        }
        (Some(before), "status") if !on_it(before) => Err(attempt.forbidden(&format!(
            "node {node:?} can only update pod status for pods with spec.nodeName set to itself"
        ))),
        (Some(before), "status") => {
            if before["metadata"]["labels"] == object["metadata"]["labels"] {
                Ok(())
            } else {
                Err(attempt.forbidden(&format!(
                    "node {node:?} cannot update labels through pod status"
                )))
            }
        }
        _ => Ok(()),
    }
}

fn own_node(attempt: &Attempt<'_>, node: &str, object: &Value) -> Result<(), Failure> {
    if attempt.name != node {
        return Err(attempt.forbidden(&format!(
            "node {node:?} is not allowed to modify node {:?}",
            attempt.name
        )));
    }
    if let Some(before) = attempt.before
        && attempt.subresource.is_empty()
    {
        if before["spec"]["taints"] != object["spec"]["taints"] {
            return Err(
                attempt.forbidden(&format!("node {node:?} is not allowed to modify taints"))
            );
        }
        if before["metadata"]["ownerReferences"] != object["metadata"]["ownerReferences"] {
            return Err(attempt.forbidden(&format!(
                "node {node:?} is not allowed to modify ownerReferences"
            )));
        }
    }
    let empty = Value::Null;
    let old = attempt
        .before
        .map_or(&empty, |before| &before["metadata"]["labels"]);
    let mut changed: Vec<&str> = members(&object["metadata"]["labels"])
        .filter(|(name, value)| name.contains(RESTRICTED) && old.get(name.as_str()) != Some(value))
        .map(|(name, _)| name.as_str())
        .collect();
    changed.sort_unstable();
    if changed.is_empty() {
        return Ok(());
    }
    let verb = if attempt.before.is_some() {
        "modify"
    } else {
        "set"
    };
    Err(attempt.forbidden(&format!(
        "is not allowed to {verb} the following labels: {}",
        changed.join(", ")
    )))
}

fn token(state: &State, attempt: &Attempt<'_>, node: &str, object: &Value) -> Result<(), Failure> {
    let bound = &object["spec"]["boundObjectRef"];
    if bound.is_null() {
        return Err(attempt.forbidden(&format!(
            "node requested token not bound to a pod: node {node:?}"
        )));
    }
    if bound["kind"] != "Pod" || bound["apiVersion"] != "v1" {
        return Err(attempt.forbidden("node requested token not bound to a pod"));
    }
    let name = bound["name"].as_str().unwrap_or_default();
    let pod = state.get("pods", attempt.namespace, name);
    if pod.is_some_and(|pod| pod["spec"]["nodeName"] != node) {
        return Err(
            attempt.forbidden("node requested token bound to a pod scheduled on a different node")
        );
    }
    Ok(())
}

pub(super) fn check_delete(attempt: &Attempt<'_>, before: &Value) -> Result<(), Failure> {
    let Some(node) = attempt.node() else {
        return Ok(());
    };
    match attempt.resource.storage.as_str() {
        "pods" if before["spec"]["nodeName"] != node => Err(attempt.forbidden(&format!(
            "node {node:?} can only delete pods with spec.nodeName set to itself"
        ))),
        "nodes" if attempt.name != node => Err(attempt.forbidden(&format!(
            "node {node:?} is not allowed to modify node {:?}",
            attempt.name
        ))),
        _ => Ok(()),
    }
}
