//! A pod as the resource managers see it.

use std::collections::BTreeMap;

use api::quantity;
use k8s_openapi::api::core::v1::{Container, Pod};
pub use topology::request::ContainerKind;
use topology::request::Qos;
use topology::resource::Resources;

/// Annotation with the source of a pod.
const SOURCE: &str = "kubernetes.io/config.source";
/// Annotation that marks the mirror pod of a static pod.
const MIRROR: &str = "kubernetes.io/config.mirror";
/// Lowest priority of critical pods.
const CRITICAL: i32 = 2_000_000_000;

/// Amounts by resource: CPU in millicores, everything else in units.
pub type Amounts = BTreeMap<String, i64>;

/// What a container requests.
#[derive(Clone, Debug)]
pub struct ContainerRequest {
    /// Name.
    pub name: String,
    /// When it runs.
    pub kind: ContainerKind,
    /// Requests.
    pub requests: Amounts,
    /// Limits.
    pub limits: Amounts,
}

/// A pod.
#[derive(Clone, Debug)]
pub struct Workload {
    /// UID.
    pub uid: String,
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Quality of service.
    pub qos: Qos,
    /// Whether the pod has resources of its own (`spec.resources`).
    pub has_pod_level_resources: bool,
    /// Requests of the pod as a whole.
    pub pod_requests: Amounts,
    /// Regular init containers and sidecars in their order, then app containers.
    pub containers: Vec<ContainerRequest>,
    /// What the sandbox itself needs.
    pub overhead: Amounts,
    /// The pod itself, for everything else that its admission looks at.
    pub pod: Pod,
}

/// A quantity of the pod cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{resource} of container {container} has an invalid quantity")]
pub struct Error {
    container: String,
    resource: String,
}

impl Workload {
    /// Parses a pod object.
    pub fn new(pod: &Pod) -> Result<Self, Error> {
        let spec = pod.spec.clone().unwrap_or_default();
        let mut containers = Vec::new();
        for container in spec.init_containers.iter().flatten() {
            let sidecar = container.restart_policy.as_deref() == Some("Always");
            let kind = if sidecar {
                ContainerKind::Sidecar
            } else {
                ContainerKind::Init
            };
            containers.push(container_request(container, kind)?);
        }
        for container in &spec.containers {
            containers.push(container_request(container, ContainerKind::App)?);
        }
        let own = spec.resources.clone().unwrap_or_default();
        let has_pod_level_resources = [&own.requests, &own.limits]
            .into_iter()
            .flatten()
            .any(|list| !list.is_empty());
        let own = Container {
            resources: Some(own),
            ..Container::default()
        };
        let pod_requests = container_request(&own, ContainerKind::App)?.requests;
        let status = pod.status.as_ref();
        let qos = match status.and_then(|status| status.qos_class.as_deref()) {
            Some("Guaranteed") => Qos::Guaranteed,
            Some("Burstable") => Qos::Burstable,
            Some("BestEffort") => Qos::BestEffort,
            _ => class(&containers, &spec)?,
        };
        let mut overhead = Amounts::new();
        for (name, quantity) in spec.overhead.iter().flatten() {
            overhead.insert(name.clone(), amount("", name, quantity)?);
        }
        Ok(Self {
            uid: pod.metadata.uid.clone().unwrap_or_default(),
            namespace: pod.metadata.namespace.clone().unwrap_or_default(),
            name: pod.metadata.name.clone().unwrap_or_default(),
            qos,
            has_pod_level_resources,
            pod_requests,
            containers,
            overhead,
            pod: pod.clone(),
        })
    }

    /// Returns the most that the pod needs at any time, where `part` is the need of a container.
    pub fn peak(&self, part: impl Fn(&ContainerRequest) -> Amounts) -> Amounts {
        let mut running = Amounts::new();
        let mut peak = Amounts::new();
        for container in &self.containers {
            let mut need = part(container);
            if container.kind == ContainerKind::Init {
                add(&mut need, &running);
                for (name, amount) in need {
                    let held = peak.entry(name).or_default();
                    *held = amount.max(*held);
                }
            } else {
                add(&mut running, &need);
            }
        }
        for (name, amount) in peak {
            let held = running.entry(name).or_default();
            *held = amount.max(*held);
        }
        running
    }

    /// Returns the pod's share of the node's allocatable.
    pub fn node_request(&self) -> Amounts {
        let mut total = self.peak(|container| container.requests.clone());
        // Requests of the pod as a whole replace those of its containers.
        total.extend(self.pod_requests.clone());
        add(&mut total, &self.overhead);
        total
    }

    /// Returns whether the kubelet got the pod from another source than the API server.
    pub fn is_static(&self) -> bool {
        self.annotation(SOURCE)
            .is_some_and(|source| source != "api")
    }

    /// Returns whether the kubelet preempts other pods to make room for it.
    pub fn is_critical(&self) -> bool {
        let priority = self.priority().unwrap_or_default();
        self.is_static() || self.annotation(MIRROR).is_some() || priority >= CRITICAL
    }

    /// Returns the priority.
    pub fn priority(&self) -> Option<i32> {
        self.pod.spec.as_ref()?.priority
    }

    fn annotation(&self, name: &str) -> Option<&String> {
        self.pod.metadata.annotations.as_ref()?.get(name)
    }

    /// Returns the number of exclusive CPUs of the whole pod.
    pub fn exclusive_cpus(&self) -> usize {
        let one = |container: &ContainerRequest| {
            let count = container.exclusive_cpus(self);
            Amounts::from([("cpu".to_owned(), count as i64)])
        };
        self.peak(one).get("cpu").map_or(0, |count| *count as usize)
    }
}

impl ContainerRequest {
    /// Returns the number of CPUs that the container gets exclusively (kubelet-node.md 6.2).
    pub fn exclusive_cpus(&self, pod: &Workload) -> usize {
        let milli = self.requests.get("cpu").copied().unwrap_or_default();
        if pod.qos != Qos::Guaranteed || pod.has_pod_level_resources || milli % 1000 != 0 {
            return 0;
        }
        usize::try_from(milli / 1000).unwrap_or_default()
    }
}

fn add(sum: &mut Amounts, other: &Amounts) {
    for (name, amount) in other {
        *sum.entry(name.clone()).or_default() += amount;
    }
}

fn container_request(
    container: &Container,
    kind: ContainerKind,
) -> Result<ContainerRequest, Error> {
    let resources = container.resources.clone().unwrap_or_default();
    let read = |list: Option<BTreeMap<String, _>>| -> Result<Amounts, Error> {
        list.unwrap_or_default()
            .iter()
            .map(|(name, quantity)| {
                let amount = amount(&container.name, name, quantity)?;
                Ok((name.clone(), amount))
            })
            .collect()
    };
    let limits = read(resources.limits)?;
    let mut requests = read(resources.requests)?;
    // The API server sets missing requests to the limits; this does the same for a pod that did not come through one.
    for (name, amount) in &limits {
        requests.entry(name.clone()).or_insert(*amount);
    }
    Ok(ContainerRequest {
        name: container.name.clone(),
        kind,
        requests,
        limits,
    })
}

fn amount(
    container: &str,
    resource: &str,
    text: &k8s_openapi::apimachinery::pkg::api::resource::Quantity,
) -> Result<i64, Error> {
    quantity::in_unit_of(resource, text).map_err(|_| Error {
        container: container.to_owned(),
        resource: resource.to_owned(),
    })
}

fn class(
    requests: &[ContainerRequest],
    spec: &k8s_openapi::api::core::v1::PodSpec,
) -> Result<Qos, Error> {
    let list = |amounts: &Amounts| -> Resources {
        amounts
            .iter()
            .map(|(name, amount)| (name.clone(), *amount))
            .collect()
    };
    let containers = requests
        .iter()
        .map(|request| topology::request::Container {
            name: request.name.clone(),
            kind: request.kind,
            requests: list(&request.requests),
            limits: list(&request.limits),
        })
        .collect();
    let mut pod = topology::request::Pod::new(containers);
    if let Some(level) = &spec.resources {
        let container = Container {
            resources: Some(level.clone()),
            ..Container::default()
        };
        let level = container_request(&container, ContainerKind::App)?;
        pod = pod.with_pod_level(list(&level.requests), &list(&level.limits));
    }
    Ok(pod.qos())
}
