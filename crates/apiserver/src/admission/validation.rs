//! What a real server refuses in built-in kinds: common mistakes of users, with the causes of a real server, in its order.
//!
//! The checks are not complete. What is not checked here is accepted if its types are right.

use serde_json::Value;

use super::policies::{BINDINGS, POLICIES};
use super::webhooks::{MUTATING, VALIDATING};
use crate::failure::Cause;
use crate::registry::Resource;
use crate::storage::DEFINITIONS;

mod addresses;
mod affinity;
mod aggregation;
mod autoscaling;
mod certificates;
mod change;
mod checks;
mod claims;
mod clients;
mod container;
pub(crate) mod custom;
pub(crate) mod definitions;
mod devices;
mod diff;
mod endpoints;
mod events;
mod fields;
mod flow;
mod internal;
mod jobs;
mod kinds;
mod limits;
pub(crate) mod meta;
pub(crate) mod names;
mod network;
mod pod;
mod policies;
mod probes;
mod resize;
mod resources;
pub(crate) mod reviews;
mod security;
pub(crate) mod service;
mod storage;
mod volumes;
pub(crate) mod warnings;
mod webhooks;
mod workloads;

/// Returns what is wrong with a new object.
pub(crate) fn of_new(resource: &Resource, object: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    if !meta::is_bare(resource) {
        meta::check(resource, object, &mut causes);
    }
    if resource.storage == DEFINITIONS {
        causes.extend(definitions::of_new(object));
    } else if resource.custom.is_none() {
        contents(resource, object, &mut causes);
        of_new_only(resource, object, &mut causes);
    }
    if meta::is_bare(resource) && causes.is_empty() {
        meta::check(resource, object, &mut causes);
    }
    if causes.len() > 1 && resource.storage == "certificatesigningrequests.certificates.k8s.io" {
        // any name will do for the kind; what holds for all kinds is told only when nothing else is wrong
        causes.retain(|cause| cause.field != "metadata.name");
    }
    causes
}

/// Returns what is wrong with a new object in its namespace.
pub(crate) fn of_place(resource: &Resource, object: &Value, namespace: &Value) -> Vec<Cause> {
    let spec = &object["spec"];
    let claim = match resource.storage.as_str() {
        "resourceclaims.resource.k8s.io" => spec,
        "resourceclaimtemplates.resource.k8s.io" => &spec["spec"],
        _ => return Vec::new(),
    };
    devices::administration(claim, namespace)
        .into_iter()
        .collect()
}

/// Checks what a change may leave as it is, because an object of old may have it.
fn of_new_only(resource: &Resource, object: &Value, causes: &mut Vec<Cause>) {
    let spec = &object["spec"];
    match resource.storage.as_str() {
        "pods" => pod::of_new(object, causes),
        "controllerrevisions.apps" => kinds::new_revision(object, causes),
        "events" => events::of_new(resource, object, causes),
        "statefulsets.apps" => workloads::new_stateful_set(spec, causes),
        "volumeattachments.storage.k8s.io" => storage::new_attachment(spec, causes),
        _ => {}
    }
}

/// Returns whether a change of an object is only looked at for what must stay: the rest cannot be changed.
fn is_fixed(resource: &Resource) -> bool {
    [
        "priorityclasses.scheduling.k8s.io",
        "resourceclaims.resource.k8s.io",
        "servicecidrs.networking.k8s.io",
    ]
    .contains(&resource.storage.as_str())
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
    let is_pod = resource.storage == "pods";
    if resource.custom.is_some() || subresource == "status" {
        if is_pod {
            pod::annotations::of_change(before, object, &mut causes);
        }
        return causes;
    }
    if subresource.is_empty() {
        change::before_contents(resource, before, object, &mut causes);
    }
    let is_changed = before["spec"] != object["spec"]
        || before["metadata"]["uid"] != object["metadata"]["uid"]
        || is_pod && before["metadata"]["annotations"] != object["metadata"]["annotations"]
        || resource.subresource("status").is_none();
    if is_changed && !is_fixed(resource) {
        changed_contents(resource, before, object, &mut causes);
    }
    if is_pod {
        pod::annotations::of_change(before, object, &mut causes);
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

/// Checks a changed object. A real server checks some kinds twice in a change, and tells twice what is wrong.
fn changed_contents(resource: &Resource, before: &Value, object: &Value, causes: &mut Vec<Cause>) {
    match resource.storage.as_str() {
        "jobs.batch" => return jobs::changed(before, object, causes),
        "persistentvolumeclaims" => {
            return claims::changed(&before["spec"], &object["spec"], causes);
        }
        "endpointslices.discovery.k8s.io" => {
            return endpoints::changed_slice(before, object, causes);
        }
        _ => contents(resource, object, causes),
    }
    match resource.storage.as_str() {
        "csinodes.storage.k8s.io" | "networkpolicies.networking.k8s.io" | "persistentvolumes" => {
            contents(resource, object, causes);
        }
        "nodes" => kinds::taints(object, causes),
        _ => {}
    }
}

fn contents(resource: &Resource, object: &Value, causes: &mut Vec<Cause>) {
    let spec = &object["spec"];
    match resource.storage.as_str() {
        "pods" => pod::of_pod(object, causes),
        "podtemplates" => workloads::template(&object["template"], "template", causes),
        "deployments.apps"
        | "replicasets.apps"
        | "daemonsets.apps"
        | "statefulsets.apps"
        | "replicationcontrollers" => workloads::check(resource, object, causes),
        "jobs.batch" => jobs::job(object, causes),
        "cronjobs.batch" => jobs::cron_job(spec, causes),
        "services" => service::check(spec, causes),
        "secrets" => kinds::secret(object, causes),
        "configmaps" => kinds::config_map(object, causes),
        "leases.coordination.k8s.io" => kinds::lease(spec, causes),
        "namespaces" => meta::namespace(spec, causes),
        "events" => events::check(resource, object, causes),
        "resourcequotas" => limits::quota(spec, causes),
        "limitranges" => limits::range(spec, causes),
        "controllerrevisions.apps" => kinds::revision(object, causes),
        "deviceclasses.resource.k8s.io" => devices::class(spec, causes),
        "resourceclaims.resource.k8s.io" => devices::claim(spec, "spec", causes),
        "resourceclaimtemplates.resource.k8s.io" => {
            meta::of_template(&spec["metadata"], "spec.metadata", causes);
            devices::claim(&spec["spec"], "spec.spec", causes);
        }
        "resourceslices.resource.k8s.io" => devices::slice(spec, causes),
        "certificatesigningrequests.certificates.k8s.io" => certificates::check(spec, causes),
        "apiservices.apiregistration.k8s.io" => aggregation::api_service(object, causes),
        "flowschemas.flowcontrol.apiserver.k8s.io" => flow::schema(object, causes),
        "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io" => flow::level(object, causes),
        "endpoints" => endpoints::check(object, causes),
        "endpointslices.discovery.k8s.io" => endpoints::slice(object, causes),
        "ingresses.networking.k8s.io" => network::ingress(spec, causes),
        "ingressclasses.networking.k8s.io" => network::ingress_class(spec, causes),
        "ipaddresses.networking.k8s.io" => network::ip_address(spec, causes),
        "servicecidrs.networking.k8s.io" => network::service_cidr(spec, causes),
        "horizontalpodautoscalers.autoscaling" => autoscaling::check(spec, causes),
        "persistentvolumes" => storage::volume(object, causes),
        "persistentvolumeclaims" => claims::claim(spec, "spec", causes),
        "volumeattachments.storage.k8s.io" => storage::attachment(spec, causes),
        "volumeattributesclasses.storage.k8s.io" => storage::attributes_class(object, causes),
        "csidrivers.storage.k8s.io" => storage::driver(spec, causes),
        "csinodes.storage.k8s.io" => storage::node_drivers(spec, causes),
        "csistoragecapacities.storage.k8s.io" => storage::room(object, causes),
        "runtimeclasses.node.k8s.io" => kinds::runtime_class(object, causes),
        "poddisruptionbudgets.policy" => kinds::budget(spec, causes),
        "nodes" => kinds::node(object, causes),
        "priorityclasses.scheduling.k8s.io" => kinds::priority_class(object, causes),
        "storageclasses.storage.k8s.io" => storage::class(object, causes),
        "networkpolicies.networking.k8s.io" => network::network_policy(spec, causes),
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
