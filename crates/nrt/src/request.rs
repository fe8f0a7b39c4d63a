//! What a pod requests, read from the object of the API.

use std::collections::BTreeMap;

use api::quantity::Amount;
use k8s_openapi::api::core::v1::{Container as WireContainer, PodSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use topology::request::{Container, ContainerKind, Pod as Request, Qos};
use topology::resource::{ResourceName, Resources};

/// Returns what a pod requests. `qos_class` is the class that its status reports; without it the class is computed.
pub fn of_pod(spec: &PodSpec, qos_class: Option<&str>) -> Request {
    let request = adjusted(spec, |_| {});
    match qos_class {
        Some("Guaranteed") => request.with_qos(Qos::Guaranteed),
        Some("Burstable") => request.with_qos(Qos::Burstable),
        Some("BestEffort") => request.with_qos(Qos::BestEffort),
        _ => request,
    }
}

/// Returns what a pod requests if `adjust` changes the requests of each container.
pub fn adjusted(spec: &PodSpec, adjust: impl Fn(&mut Resources)) -> Request {
    let container = |wire: &WireContainer, kind| {
        let resources_of = wire.resources.as_ref();
        let mut requests = resources(resources_of.and_then(|list| list.requests.as_ref()));
        adjust(&mut requests);
        Container {
            name: wire.name.clone(),
            kind,
            requests,
            limits: resources(resources_of.and_then(|list| list.limits.as_ref())),
        }
    };
    let init = spec.init_containers.iter().flatten().map(|wire| {
        let sidecar = wire.restart_policy.as_deref() == Some("Always");
        container(
            wire,
            if sidecar {
                ContainerKind::Sidecar
            } else {
                ContainerKind::Init
            },
        )
    });
    let app = spec
        .containers
        .iter()
        .map(|wire| container(wire, ContainerKind::App));
    let mut request =
        Request::new(init.chain(app).collect()).with_overhead(resources(spec.overhead.as_ref()));
    if let Some(level) = &spec.resources {
        let (requests, limits) = (
            resources(level.requests.as_ref()),
            resources(level.limits.as_ref()),
        );
        if !requests.is_empty() || !limits.is_empty() {
            request = request.with_pod_level(requests, &limits);
        }
    }
    request
}

/// Returns the amounts of a quantity list in the units of [`topology::resource`]. Invalid quantities are left out; the API server
/// accepts none.
pub fn resources(list: Option<&BTreeMap<String, Quantity>>) -> Resources {
    list.into_iter()
        .flatten()
        .filter_map(|(name, quantity)| {
            let name = ResourceName::from(name.as_str());
            let amount = Amount::try_from(quantity).ok()?;
            let amount = amount.in_unit_of(name.as_str());
            Some((name, amount))
        })
        .collect()
}
