//! What a real server refuses in built-in kinds: common mistakes of users, with the causes of a real server, in its order.
//!
//! The checks are not complete. What is not checked here is accepted if its types are right.

use serde_json::Value;

use super::policies::{BINDINGS, POLICIES};
use super::webhooks::{MUTATING, VALIDATING};
use crate::failure::Cause;
use crate::registry::Resource;
use crate::storage::DEFINITIONS;

mod change;
mod checks;
mod clients;
pub(crate) mod custom;
pub(crate) mod definitions;
mod diff;
mod internal;
mod kinds;
pub(crate) mod meta;
pub(crate) mod names;
mod pod;
mod policies;
mod resize;
mod resources;
pub(crate) mod warnings;
mod webhooks;
mod workloads;

/// Returns what is wrong with a new object.
pub(crate) fn of_new(resource: &Resource, object: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    meta::check(resource, object, &mut causes);
    if resource.storage == DEFINITIONS {
        causes.extend(definitions::of_new(object));
    } else if resource.custom.is_none() {
        contents(resource, object, &mut causes);
    }
    causes
}

/// Returns what is wrong with a change of an object.
pub(crate) fn of_change(
    resource: &Resource,
    subresource: &str,
    before: &Value,
    object: &Value,
) -> Vec<Cause> {
    let mut causes = Vec::new();
    meta::check_change(resource, before, object, &mut causes);
    if resource.storage == DEFINITIONS {
        causes.extend(definitions::of_change(subresource, before, object));
        return causes;
    }
    if resource.custom.is_some() || subresource == "status" {
        return causes;
    }
    if subresource.is_empty() {
        change::before_contents(resource, before, object, &mut causes);
    }
    if before["spec"] != object["spec"] || resource.subresource("status").is_none() {
        contents(resource, object, &mut causes);
    }
    match (resource.storage.as_str(), subresource) {
        (_, "") => change::after_contents(resource, before, object, &mut causes),
        ("pods", "resize") => match resize::impossible(before, object) {
            Some(why) => return vec![why],
            None => resize::check(before, object, &mut causes),
        },
        _ => {}
    }
    causes
}

fn contents(resource: &Resource, object: &Value, causes: &mut Vec<Cause>) {
    let spec = &object["spec"];
    match resource.storage.as_str() {
        "pods" => pod::check(spec, "spec", causes),
        "podtemplates" => pod::check(&object["template"]["spec"], "template.spec", causes),
        "deployments.apps"
        | "replicasets.apps"
        | "daemonsets.apps"
        | "statefulsets.apps"
        | "replicationcontrollers" => workloads::check(resource, object, causes),
        "jobs.batch" => workloads::job(spec, "spec", causes),
        "cronjobs.batch" => workloads::cron_job(spec, causes),
        "services" => kinds::service(spec, causes),
        "secrets" => kinds::secret(object, causes),
        "configmaps" => kinds::config_map(object, causes),
        "leases.coordination.k8s.io" => kinds::lease(spec, causes),
        "events" => kinds::event(resource, object, causes),
        "resourcequotas" => kinds::quota(spec, causes),
        "poddisruptionbudgets.policy" => kinds::budget(spec, causes),
        "nodes" => kinds::node(object, causes),
        "priorityclasses.scheduling.k8s.io" => kinds::priority_class(object, causes),
        "storageclasses.storage.k8s.io" => kinds::storage_class(object, causes),
        "networkpolicies.networking.k8s.io" => kinds::network_policy(spec, causes),
        "roles.rbac.authorization.k8s.io" => kinds::rules(object, true, causes),
        "clusterroles.rbac.authorization.k8s.io" => kinds::rules(object, false, causes),
        "rolebindings.rbac.authorization.k8s.io"
        | "clusterrolebindings.rbac.authorization.k8s.io" => kinds::binding(object, causes),
        POLICIES => policies::policy(object, causes),
        BINDINGS => policies::binding(spec, causes),
        MUTATING | VALIDATING => webhooks::check(resource, object, causes),
        _ => {}
    }
}
