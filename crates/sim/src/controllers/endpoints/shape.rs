//! What pods look like in Endpoints and EndpointSlices.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{
    Container, EndpointAddress, EndpointPort, EndpointSubset, ObjectReference, Pod, PodSpec,
    Service, ServicePort,
};
use k8s_openapi::api::discovery::v1::{
    Endpoint, EndpointConditions, EndpointPort as SlicePort, EndpointSlice,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::{HEADLESS, MANAGED_BY, SERVICE_NAME, SLICE_MANAGER, TRIGGER};
use crate::controllers::objects;

/// Ports as pods have them, each with the pods that have them.
type Groups<'a> = Vec<(Vec<EndpointPort>, Vec<&'a Arc<Pod>>)>;

/// Returns the slices of a service with the endpoints of its pods: one for all pods that have the same ports, and an empty one if there is no pod.
pub(super) fn slices(
    service: &Service,
    pods: &[Arc<Pod>],
    ports: &[ServicePort],
    headless: bool,
    published: bool,
) -> Vec<EndpointSlice> {
    let mut groups = Groups::new();
    for pod in pods {
        let own: Vec<EndpointPort> = ports.iter().filter_map(|port| of_pod(port, pod)).collect();
        match groups.iter_mut().find(|(held, _)| *held == own) {
            Some((_, pods)) => pods.push(pod),
            None => groups.push((own, vec![pod])),
        }
    }
    if groups.is_empty() {
        groups.push((Vec::new(), Vec::new()));
    }
    let newest = trigger(pods);
    let mut all = Vec::new();
    for (ports, pods) in groups {
        let mut slice = slice(service, &pods, &ports, headless, published);
        slice.metadata.annotations = newest.clone().map(|at| [(TRIGGER.to_owned(), at)].into());
        all.push(slice);
    }
    all
}

fn slice(
    service: &Service,
    pods: &[&Arc<Pod>],
    ports: &[EndpointPort],
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
            let leaving = objects::deleting(&***pod);
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
    EndpointSlice {
        address_type: "IPv4".to_owned(),
        endpoints,
        // The ports describe the endpoints, so a slice without endpoints has none.
        ports: Some(slice_ports(ports)).filter(|_| !pods.is_empty()),
        metadata: ObjectMeta {
            generate_name: Some(format!("{}-", objects::name(service))),
            namespace: service.metadata.namespace.clone(),
            labels: Some(labels),
            owner_references: Some(vec![objects::control(service)]),
            ..ObjectMeta::default()
        },
    }
}

/// Returns the ports of Endpoints as slices have them.
pub(super) fn slice_ports(ports: &[EndpointPort]) -> Vec<SlicePort> {
    let ports = ports.iter().map(|port| SlicePort {
        name: Some(port.name.clone().unwrap_or_default()),
        port: Some(port.port),
        protocol: port.protocol.clone(),
        app_protocol: port.app_protocol.clone(),
    });
    ports.collect()
}

/// Returns the subsets of the Endpoints of a service: one for all ports that the same pods have.
pub(super) fn subsets(
    service: &Service,
    pods: &[Arc<Pod>],
    ports: &[ServicePort],
    published: bool,
) -> Vec<EndpointSubset> {
    let staying = pods
        .iter()
        .filter(|pod| published || !objects::deleting(&***pod));
    let mut by_port = Groups::new();
    for pod in staying {
        let own = ports.iter().filter_map(|port| of_pod(port, pod));
        let own: Vec<Vec<EndpointPort>> = if ports.is_empty() {
            vec![Vec::new()]
        } else {
            own.map(|port| vec![port]).collect()
        };
        for port in own {
            match by_port.iter_mut().find(|(held, _)| *held == port) {
                Some((_, pods)) => pods.push(pod),
                None => by_port.push((port, vec![pod])),
            }
        }
    }
    let mut groups = Groups::new();
    for (port, pods) in by_port {
        let is_same = |held: &[&Arc<Pod>]| {
            let pairs = held.iter().zip(&pods);
            held.len() == pods.len() && pairs.into_iter().all(|(a, b)| Arc::ptr_eq(a, b))
        };
        match groups.iter_mut().find(|(_, held)| is_same(held)) {
            Some((ports, _)) => ports.extend(port),
            None => groups.push((port, pods)),
        }
    }
    let subsets = groups.into_iter().map(|(ports, pods)| {
        let (ready, waiting): (Vec<_>, Vec<_>) = pods
            .into_iter()
            .partition(|pod| objects::ready(pod) || published);
        let list = |pods: Vec<&Arc<Pod>>| {
            let list: Vec<EndpointAddress> = pods
                .into_iter()
                .filter_map(|pod| endpoint_address(service, pod))
                .collect();
            Some(list).filter(|list| !list.is_empty())
        };
        EndpointSubset {
            addresses: list(ready),
            not_ready_addresses: list(waiting),
            ports: Some(ports).filter(|list| !list.is_empty()),
        }
    });
    subsets.collect()
}

fn endpoint_address(service: &Service, pod: &Pod) -> Option<EndpointAddress> {
    Some(EndpointAddress {
        ip: address(pod)?.to_owned(),
        node_name: objects::node_of(pod).map(str::to_owned),
        target_ref: Some(target(pod)),
        hostname: hostname(service, pod),
    })
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
fn hostname(service: &Service, pod: &Pod) -> Option<String> {
    let spec = pod.spec.as_ref()?;
    let is_below = spec.subdomain.as_deref() == service.metadata.name.as_deref();
    spec.hostname
        .clone()
        .filter(|name| is_below && !name.is_empty())
}

fn target(pod: &Pod) -> ObjectReference {
    ObjectReference {
        kind: Some("Pod".to_owned()),
        namespace: pod.metadata.namespace.clone(),
        name: pod.metadata.name.clone(),
        uid: pod.metadata.uid.clone(),
        ..ObjectReference::default()
    }
}

/// Returns a port of a service as a pod has it; `None` if the pod does not have it.
fn of_pod(port: &ServicePort, pod: &Pod) -> Option<EndpointPort> {
    let protocol = port.protocol.as_deref().unwrap_or("TCP");
    let number = match &port.target_port {
        None | Some(IntOrString::Int(0)) => port.port,
        Some(IntOrString::Int(number)) => *number,
        Some(IntOrString::String(name)) => named(pod.spec.as_ref()?, name, protocol)?,
    };
    Some(EndpointPort {
        name: port.name.clone(),
        port: number,
        protocol: Some(protocol.to_owned()),
        app_protocol: port.app_protocol.clone(),
    })
}

/// Returns the number of a named port: that of the first container with such a port, before those of the sidecars.
fn named(spec: &PodSpec, name: &str, protocol: &str) -> Option<i32> {
    let is_sidecar = |container: &&Container| container.restart_policy.as_deref() == Some("Always");
    let init = spec.init_containers.iter().flatten();
    let mut ports = spec
        .containers
        .iter()
        .chain(init.filter(is_sidecar))
        .flat_map(|container| container.ports.iter().flatten());
    let found = ports.find(|port| {
        port.name.as_deref() == Some(name) && port.protocol.as_deref().unwrap_or("TCP") == protocol
    });
    found.map(|port| port.container_port)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    /// Returns a pod that is ready, or not, with named ports.
    fn pod(address: &str, ready: bool, ports: &[(&str, i32)]) -> Arc<Pod> {
        let ports = ports.iter().map(
            |(name, number)| json!({"name": name, "containerPort": number, "protocol": "TCP"}),
        );
        let ports: Vec<Value> = ports.collect();
        let status = if ready { "True" } else { "False" };
        let pod = json!({
            "metadata": {"name": address, "uid": address},
            "spec": {"containers": [{"name": "c", "ports": ports}]},
            "status": {"podIP": address, "conditions": [{"type": "Ready", "status": status}]},
        });
        Arc::new(serde_json::from_value(pod).unwrap())
    }

    /// Returns numbers of ports with the addresses that have them.
    fn short(ports: impl Iterator<Item = i32>, addresses: impl Iterator<Item = String>) -> String {
        let ports: Vec<String> = ports.map(|port| port.to_string()).collect();
        let addresses: Vec<String> = addresses.collect();
        format!("{}: {}", ports.join(" "), addresses.join(" "))
    }

    fn of_subsets(pods: &[Arc<Pod>], ports: &[ServicePort]) -> Vec<String> {
        let subsets = subsets(&Service::default(), pods, ports, false).into_iter();
        let all = subsets.map(|subset| {
            let ready = subset.addresses.into_iter().flatten().map(|one| one.ip);
            let waiting = subset.not_ready_addresses.into_iter().flatten();
            let waiting = waiting.map(|one| format!("{}?", one.ip));
            let ports = subset.ports.into_iter().flatten();
            short(ports.map(|port| port.port), ready.chain(waiting))
        });
        all.collect()
    }

    fn of_slices(pods: &[Arc<Pod>], ports: &[ServicePort]) -> Vec<String> {
        let slices = slices(&Service::default(), pods, ports, false, false).into_iter();
        let all = slices.map(|slice| {
            let ports = slice.ports.into_iter().flatten();
            let addresses = slice.endpoints.into_iter().flat_map(|one| one.addresses);
            short(ports.filter_map(|one| one.port), addresses)
        });
        all.collect()
    }

    #[rstest]
    #[case::numbers_of_their_own(
        &[pod("a", true, &[("web", 80)]), pod("b", true, &[("web", 81)]), pod("c", true, &[("web", 80)])],
        json!([{"name": "w", "port": 1, "targetPort": "web"}]), &["80: a c", "81: b"], &["80: a c", "81: b"])]
    #[case::one_lacks_a_port(
        &[pod("a", true, &[("x", 80), ("y", 90)]), pod("b", false, &[("y", 90)])],
        json!([{"name": "v", "port": 1, "targetPort": "x"}, {"name": "w", "port": 2, "targetPort": "y"}]),
        &["80: a", "90: a b?"], &["80 90: a", "90: b"])]
    #[case::none_has_the_port(
        &[pod("a", true, &[])], json!([{"port": 1, "targetPort": "x"}]), &[], &[": a"])]
    #[case::another_protocol(
        &[pod("a", true, &[("x", 80)])], json!([{"port": 1, "targetPort": "x", "protocol": "UDP"}]), &[], &[": a"])]
    #[case::numbers(
        &[pod("a", true, &[]), pod("b", true, &[])], json!([{"name": "v", "port": 1, "targetPort": 8}, {"name": "w", "port": 2}]),
        &["8 2: a b"], &["8 2: a b"])]
    #[case::no_ports(&[pod("a", true, &[])], json!([]), &[": a"], &[": a"])]
    #[case::no_pods(&[], json!([{"port": 1}]), &[], &[": "])]
    fn each_pod_has_its_own_number_of_a_named_port(
        #[case] pods: &[Arc<Pod>],
        #[case] wanted: Value,
        #[case] in_subsets: &[&str],
        #[case] in_slices: &[&str],
    ) {
        let ports: Vec<ServicePort> = serde_json::from_value(wanted).unwrap();
        assert_eq!(of_subsets(pods, &ports), in_subsets);
        assert_eq!(of_slices(pods, &ports), in_slices);
    }
}
