//! What a pod requests: containers, quality of service, effective and exclusive requests.

use crate::policy::Scope;
use crate::resource::{CPU, MEMORY, ResourceName, Resources};

/// When a container runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContainerKind {
    /// Runs to completion before the next container starts.
    Init,
    /// An init container that keeps running (`restartPolicy: Always`).
    Sidecar,
    /// Runs together with all other app containers, after the init containers.
    App,
}

/// A container with its resources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Container {
    /// Name in the pod.
    pub name: String,
    /// When it runs.
    pub kind: ContainerKind,
    /// Requests. Where only limits were given, the API server has filled in requests from them.
    pub requests: Resources,
    /// Limits.
    pub limits: Resources,
}

/// Quality of service class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Qos {
    /// Requests equal limits for CPU and memory in all containers.
    Guaranteed,
    /// Neither of the other two.
    Burstable,
    /// No CPU or memory requests or limits.
    BestEffort,
}

/// What a pod requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    containers: Vec<Container>,
    overhead: Resources,
    level: Option<Resources>,
    qos: Qos,
}

impl Pod {
    /// Creates a pod of these containers, init containers in spec order before the others. It has no overhead; its class is computed.
    pub fn new(containers: Vec<Container>) -> Self {
        let qos = qos(containers
            .iter()
            .map(|container| (&container.requests, &container.limits)));
        Self {
            containers,
            overhead: Resources::new(),
            level: None,
            qos,
        }
    }

    /// Returns the pod with the overhead of its sandbox (`spec.overhead`).
    #[must_use]
    pub fn with_overhead(mut self, overhead: Resources) -> Self {
        self.overhead = overhead;
        self
    }

    /// Returns the pod with pod-level requests and limits (`spec.resources`), which alone decide its class (kubelet-node.md 12.1).
    #[must_use]
    pub fn with_pod_level(mut self, requests: Resources, limits: &Resources) -> Self {
        self.qos = qos([(&requests, limits)].into_iter());
        self.level = Some(requests);
        self
    }

    /// Returns the pod with the class that its status reports.
    #[must_use]
    pub fn with_qos(mut self, qos: Qos) -> Self {
        self.qos = qos;
        self
    }

    /// Returns the quality of service class.
    pub fn qos(&self) -> Qos {
        self.qos
    }

    /// Returns the containers, init containers first.
    pub fn containers(&self) -> &[Container] {
        &self.containers
    }

    /// Returns whether any container, including sidecars and init containers, requests a resource that is not native to Kubernetes.
    pub fn asks_for_devices(&self) -> bool {
        self.containers
            .iter()
            .any(|container| container.requests.iter().any(|(name, _)| !name.is_native()))
    }

    /// Returns what the node as a whole must have left for the pod (scheduler.md 7.4): the app containers and sidecars together, or an
    /// init container with the sidecars before it if that is more. Pod-level requests replace these amounts. Overhead is added.
    pub fn node_request(&self) -> Resources {
        let mut total = self.effective(|container| container.requests.clone());
        if let Some(level) = &self.level {
            for (name, amount) in level.iter().filter(|(name, _)| name.is_affine()) {
                total.set(name.clone(), amount);
            }
        }
        total.add(&self.overhead);
        total
    }

    /// Returns what one zone must have left if the whole pod is to run there (scheduler.md 3.5: pod scope). Unlike in that rule,
    /// sidecars are added to the app containers, because the kubelet keeps them running.
    pub fn aligned_request(&self) -> Resources {
        let mut total = self.effective(|container| container.requests.clone());
        total.add(&self.overhead);
        total
    }

    /// Returns what the kubelet's managers together must find for the pod (kubelet-node.md 6.2, 7.2, 8.2): the peak of the amounts that
    /// `counts` accepts.
    pub fn peak(&self, counts: impl Fn(&ResourceName, i64) -> bool) -> Resources {
        self.effective(|container| {
            let requests = container.requests.iter();
            requests
                .filter(|(name, amount)| counts(name, *amount))
                .map(|(name, amount)| (name.clone(), amount))
                .collect()
        })
    }

    /// Returns whether the pod has pod-level requests. The kubelet aligns neither CPUs nor memory of such a pod.
    pub fn has_pod_level(&self) -> bool {
        self.level.is_some()
    }

    /// Returns what the kubelet takes from the zones for this pod: whole CPUs and memory of guaranteed pods, devices that have a home
    /// zone. `zoned` says which resources the node's zones hold; other resources are not accounted by zone (scheduler.md 5.4).
    pub fn exclusive_request(&self, zoned: impl Fn(&ResourceName) -> bool) -> Resources {
        self.effective(|container| self.exclusive_part(container, &zoned))
    }

    /// Like [`exclusive_request`](Self::exclusive_request), for the containers that keep running: app containers and sidecars.
    pub fn kept_request(&self, zoned: impl Fn(&ResourceName) -> bool) -> Resources {
        let mut total = Resources::new();
        for container in &self.containers {
            if container.kind != ContainerKind::Init {
                total.add(&self.exclusive_part(container, &zoned));
            }
        }
        total
    }

    /// Returns whether a zone with `available` left can hold any container (container scope) or the whole pod (pod scope), on a kubelet
    /// that assigns one zone to each.
    pub fn may_use(
        &self,
        scope: Scope,
        available: &Resources,
        zoned: impl Fn(&ResourceName) -> bool,
    ) -> bool {
        let fits = |part: &Resources| {
            !part.is_empty()
                && part
                    .iter()
                    .all(|(name, wanted)| available.amount(name.as_str()) >= wanted)
        };
        match scope {
            Scope::Pod => fits(&self.exclusive_request(zoned)),
            Scope::Container => self
                .containers
                .iter()
                .any(|container| fits(&self.exclusive_part(container, &zoned))),
        }
    }

    /// Returns whether the pod holds anything exclusively, so that a fingerprint over exclusive resources includes it. Init containers
    /// do not count, sidecars do (scheduler.md 5.4).
    pub fn is_exclusive(&self, zoned: impl Fn(&ResourceName) -> bool) -> bool {
        self.containers
            .iter()
            .filter(|container| container.kind != ContainerKind::Init)
            .any(|container| !self.exclusive_part(container, &zoned).is_empty())
    }

    /// Returns the containers that hold something exclusively while the pod runs, with what each holds (scheduler.md 5.4).
    pub fn exclusive_containers(
        &self,
        zoned: impl Fn(&ResourceName) -> bool,
    ) -> Vec<(&Container, Resources)> {
        self.containers
            .iter()
            .filter(|container| container.kind != ContainerKind::Init)
            .map(|container| (container, self.exclusive_part(container, &zoned)))
            .filter(|(_, part)| !part.is_empty())
            .collect()
    }

    fn exclusive_part(
        &self,
        container: &Container,
        zoned: &impl Fn(&ResourceName) -> bool,
    ) -> Resources {
        let exclusive = |name: &ResourceName, amount: i64| {
            amount > 0
                && zoned(name)
                && match (name.is_native(), self.qos) {
                    (false, _) => true,
                    (true, Qos::Guaranteed) => {
                        name.is_memory_like() || (name.is_cpu() && amount % 1000 == 0)
                    }
                    (true, _) => false,
                }
        };
        container
            .requests
            .iter()
            .filter(|(name, amount)| exclusive(name, *amount))
            .map(|(name, amount)| (name.clone(), amount))
            .collect()
    }

    /// Returns the most that the pod needs at any time; `part` computes what one container needs.
    fn effective(&self, part: impl Fn(&Container) -> Resources) -> Resources {
        let mut running = Resources::new();
        let mut peak = Resources::new();
        for container in &self.containers {
            let mut need = part(container);
            match container.kind {
                ContainerKind::Init => {
                    need.add(&running);
                    peak.raise_to(&need);
                }
                ContainerKind::Sidecar | ContainerKind::App => running.add(&need),
            }
        }
        running.raise_to(&peak);
        running
    }
}

/// Returns the class of a pod whose parts have these (requests, limits) (kubelet-node.md 12.1).
fn qos<'a>(parts: impl Iterator<Item = (&'a Resources, &'a Resources)>) -> Qos {
    let (mut requests, mut limits) = (Resources::new(), Resources::new());
    let mut limited = true;
    for (request, limit) in parts {
        for name in [CPU, MEMORY] {
            let positive = |list: &Resources| list.get(name).filter(|amount| *amount > 0);
            if let Some(amount) = positive(request) {
                requests.add(&Resources::from_iter([(name, amount)]));
            }
            match positive(limit) {
                Some(amount) => limits.add(&Resources::from_iter([(name, amount)])),
                None => limited = false,
            }
        }
    }
    if requests.is_empty() && limits.is_empty() {
        Qos::BestEffort
    } else if limited && requests == limits {
        Qos::Guaranteed
    } else {
        Qos::Burstable
    }
}

#[cfg(test)]
mod tests;
