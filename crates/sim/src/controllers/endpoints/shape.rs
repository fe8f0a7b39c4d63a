//! What pods look like in Endpoints and EndpointSlices.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{ObjectReference, Pod, Service, ServicePort};
use k8s_openapi::api::discovery::v1::{
    Endpoint, EndpointConditions, EndpointPort as SlicePort, EndpointSlice,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::{HEADLESS, MANAGED_BY, SERVICE_NAME, SLICE_MANAGER, TRIGGER};
use crate::controllers::objects;

/// Returns the slice of a service with the endpoints of its pods.
pub(super) fn slice(
    service: &Service,
    pods: &[Arc<Pod>],
    ports: &[ServicePort],
    headless: bool,
    published: bool,
) -> EndpointSlice {
    let mut labels = objects::labels(service).clone();
    labels.insert(MANAGED_BY.to_owned(), SLICE_MANAGER.to_owned());
    labels.insert(SERVICE_NAME.to_owned(), objects::name(service).to_owned());
    if headless {
        labels.insert(HEADLESS.to_owned(), String::new());
    }
    let endpoints: Vec<Endpoint> = pods
        .iter()
        .filter_map(|pod| {
            let serving = objects::ready(pod) || published;
            let leaving = objects::deleting(&**pod);
            Some(Endpoint {
                addresses: vec![address(pod)?.to_owned()],
                conditions: Some(EndpointConditions {
                    ready: Some(serving && (!leaving || published)),
                    serving: Some(serving),
                    terminating: Some(leaving),
                }),
                hostname: hostname(service, pod),
                node_name: objects::node_of(pod).map(str::to_owned),
                target_ref: Some(target(pod)),
                ..Endpoint::default()
            })
        })
        .collect();
    let slice_ports: Vec<SlicePort> = ports
        .iter()
        .map(|port| SlicePort {
            name: Some(port.name.clone().unwrap_or_default()),
            port: number(port, pods),
            protocol: Some(port.protocol.clone().unwrap_or_else(|| "TCP".to_owned())),
            app_protocol: port.app_protocol.clone(),
        })
        .collect();
    EndpointSlice {
        address_type: "IPv4".to_owned(),
        endpoints,
        // The ports describe the endpoints, so a slice without endpoints has none.
        ports: Some(slice_ports).filter(|_| !pods.is_empty()),
        metadata: ObjectMeta {
            generate_name: Some(format!("{}-", objects::name(service))),
            namespace: service.metadata.namespace.clone(),
            labels: Some(labels),
            annotations: trigger(pods).map(|at| [(TRIGGER.to_owned(), at)].into()),
            owner_references: Some(vec![objects::control(service)]),
            ..ObjectMeta::default()
        },
    }
}

/// Returns the time of the newest change of readiness among the pods.
fn trigger(pods: &[Arc<Pod>]) -> Option<String> {
    let ready = pods
        .iter()
        .filter_map(|pod| objects::pod_condition(pod, "Ready"));
    let newest = ready.filter_map(|held| held.last_transition_time.as_ref());
    newest.map(|time| time.0).max().map(|time| time.to_string())
}

pub(super) fn address(pod: &Pod) -> Option<&str> {
    let status = pod.status.as_ref()?;
    status
        .pod_ip
        .as_deref()
        .filter(|address| !address.is_empty())
}

/// Returns the name by which a pod of a headless service is reached, such as one of a StatefulSet.
pub(super) fn hostname(service: &Service, pod: &Pod) -> Option<String> {
    let spec = pod.spec.as_ref()?;
    let is_below = spec.subdomain.as_deref() == service.metadata.name.as_deref();
    spec.hostname
        .clone()
        .filter(|name| is_below && !name.is_empty())
}

pub(super) fn target(pod: &Pod) -> ObjectReference {
    ObjectReference {
        kind: Some("Pod".to_owned()),
        namespace: pod.metadata.namespace.clone(),
        name: pod.metadata.name.clone(),
        uid: pod.metadata.uid.clone(),
        ..ObjectReference::default()
    }
}

/// Returns the port of the pods that a service port targets. A named port has the number that the first pod with such a port gives it.
pub(super) fn number(port: &ServicePort, pods: &[Arc<Pod>]) -> Option<i32> {
    match &port.target_port {
        None | Some(IntOrString::Int(0)) => Some(port.port),
        Some(IntOrString::Int(number)) => Some(*number),
        Some(IntOrString::String(name)) => pods
            .iter()
            .filter_map(|pod| pod.spec.as_ref())
            .flat_map(|spec| &spec.containers)
            .flat_map(|container| container.ports.iter().flatten())
            .find(|port| port.name.as_ref() == Some(name))
            .map(|port| port.container_port),
    }
}
