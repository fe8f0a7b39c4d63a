//! Admission: what the default admission plugins of a real server change in objects or refuse, before the objects are validated and stored.
//!
//! The plugins run in the order of the real server. Admission policies and webhooks are modules of their own.

use serde_json::{Value, json};

use crate::admission::attempt::Attempt;
use crate::failure::Failure;
use crate::storage::State;

mod escalation;
mod limits;
mod node_restriction;
mod priority;
mod quota;
mod runtime_class;
mod service_account;
mod taints;

/// Lets the plugins change the object and refuse it. Webhooks come next, then [`check`].
pub(crate) fn admit(
    state: &State,
    attempt: &Attempt<'_>,
    object: &mut Value,
) -> Result<(), Failure> {
    let storage = attempt.resource.storage.as_str();
    let new = attempt.before.is_none();
    if storage == "pods" && attempt.subresource.is_empty() {
        if new && attempt.is_enabled("LimitRanger") {
            limits::apply(state, attempt, object);
        }
        if new && attempt.is_enabled("ServiceAccount") {
            service_account::admit(state, attempt, object)?;
        }
    }
    if attempt.is_enabled("NodeRestriction") && attempt.node().is_some() {
        node_restriction::check_write(state, attempt, object)?;
    }
    if storage == "nodes" && new && attempt.is_enabled("TaintNodesByCondition") {
        taints::taint(object);
    }
    if storage == "pods" && attempt.subresource.is_empty() {
        if attempt.is_enabled("Priority") {
            priority::admit(state, attempt, object)?;
        }
        if attempt.is_enabled("DefaultTolerationSeconds") {
            taints::default_tolerations(object);
        }
        if new && attempt.is_enabled("RuntimeClass") {
            runtime_class::admit(state, attempt, object)?;
        }
    }
    if new && attempt.is_enabled("StorageObjectInUseProtection") {
        add_protection_finalizer(storage, object);
    }
    Ok(())
}

/// Refuses objects that all have changed who may.
pub(crate) fn check(state: &State, attempt: &Attempt<'_>, object: &Value) -> Result<(), Failure> {
    if attempt.resource.group == "rbac.authorization.k8s.io" {
        escalation::check(state, attempt, object)?;
    }
    if attempt.resource.storage == "pods"
        && attempt.subresource.is_empty()
        && attempt.is_enabled("LimitRanger")
        && attempt.before.is_none()
    {
        limits::check(state, attempt, object)?;
    }
    Ok(())
}

/// Returns whether a write changes the resources of a pod that exists. It is checked and charged as a new pod is.
pub(crate) fn is_resize(attempt: &Attempt<'_>) -> bool {
    attempt.resource.storage == "pods" && attempt.subresource == "resize"
}

/// Checks a new object, or a pod with new resources, against the limits of its namespace, and charges it to the quotas there. These plugins
/// run last, and the one of quotas is the only one that writes.
pub(crate) fn charge(
    state: &mut State,
    attempt: &Attempt<'_>,
    object: &Value,
    dry_run: bool,
) -> Result<(), Failure> {
    let is_resize = is_resize(attempt);
    if is_resize && attempt.is_enabled("LimitRanger") {
        limits::check(state, attempt, object)?;
    }
    let is_new = attempt.before.is_none() && attempt.subresource.is_empty();
    if (is_new || is_resize) && attempt.is_enabled("ResourceQuota") {
        quota::charge(state, attempt, object, dry_run)?;
    }
    Ok(())
}

/// Refuses deletions: of protected namespaces, and by kubelets of what is not theirs.
pub(crate) fn check_delete(attempt: &Attempt<'_>, before: &Value) -> Result<(), Failure> {
    if attempt.is_enabled("NodeRestriction") && attempt.node().is_some() {
        node_restriction::check_delete(attempt, before)?;
    }
    if attempt.resource.storage == "namespaces"
        && ["default", "kube-system", "kube-public"].contains(&attempt.name)
    {
        return Err(attempt.forbidden("this namespace may not be deleted"));
    }
    Ok(())
}

/// Adds the finalizer that keeps a volume, a claim or a class of volumes' attributes until nothing uses it.
fn add_protection_finalizer(storage: &str, object: &mut Value) {
    let finalizer = match storage {
        "persistentvolumes" => "kubernetes.io/pv-protection",
        "persistentvolumeclaims" => "kubernetes.io/pvc-protection",
        "volumeattributesclasses.storage.k8s.io" => "kubernetes.io/vac-protection",
        _ => return,
    };
    let list = &mut object["metadata"]["finalizers"];
    if !list.is_array() {
        *list = json!([]);
    }
    if let Some(list) = list.as_array_mut()
        && !list.iter().any(|known| known == finalizer)
    {
        list.push(json!(finalizer));
    }
}
