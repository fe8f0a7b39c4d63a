//! Pods from the scheduler's point of view: their resources and their constraints on nodes.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::quantity::Amount;
use k8s_openapi::api::core::v1::{
    Affinity, Container, Pod, PodAffinityTerm, PodSpec, ResourceRequirements, Toleration,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::controllers::mirror::ObjectKey;
use crate::controllers::objects;

/// Amounts by resource: milli-CPUs for `cpu`, whole units for everything else.
pub(super) type Amounts = BTreeMap<String, i64>;

/// CPU that a container without a CPU request counts for in scores, in milli-CPUs.
const DEFAULT_SCORED_CPU: i64 = 100;
/// Memory that a container without a memory request counts for in scores, in bytes.
const DEFAULT_SCORED_MEMORY: i64 = 200 << 20;

/// A host port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HostPort {
    protocol: String,
    address: String,
    port: i32,
}

impl HostPort {
    /// Returns whether two host ports exclude each other on one node.
    pub(super) fn clashes(&self, other: &Self) -> bool {
        const ANY: &str = "0.0.0.0";
        self.protocol == other.protocol
            && self.port == other.port
            && (self.address == other.address || self.address == ANY || other.address == ANY)
    }
}

/// A pod to schedule or already placed.
#[derive(Clone, Debug)]
pub(super) struct Task {
    pub(super) key: ObjectKey,
    pub(super) pod: Arc<Pod>,
    pub(super) priority: i32,
    /// What the node must have free in total.
    pub(super) requests: Amounts,
    /// CPU and memory that count for the score.
    pub(super) scored: (i64, i64),
    pub(super) ports: Vec<HostPort>,
}

impl Task {
    /// Reads a pod.
    pub(super) fn new(pod: &Arc<Pod>) -> Self {
        let spec = pod.spec.clone().unwrap_or_default();
        let own = |container: &Container| taken(pod, container);
        let requests = requests(&spec, own);
        let apps = spec.containers.iter().chain(
            spec.init_containers
                .iter()
                .flatten()
                .filter(|it| sidecar(it)),
        );
        let (mut cpu, mut memory) = (0, 0);
        for container in apps {
            let own_requests = own(container);
            cpu += own_requests
                .get("cpu")
                .copied()
                .unwrap_or(DEFAULT_SCORED_CPU);
            memory += own_requests
                .get("memory")
                .copied()
                .unwrap_or(DEFAULT_SCORED_MEMORY);
        }
        let whole = |name: &str| requests.get(name).copied().unwrap_or(0);
        Self {
            key: ObjectKey::of(&pod.metadata),
            priority: spec.priority.unwrap_or(0),
            scored: (cpu.max(whole("cpu")), memory.max(whole("memory"))),
            ports: host_ports(&spec),
            requests,
            pod: Arc::clone(pod),
        }
    }

    pub(super) fn spec(&self) -> &PodSpec {
        static EMPTY: std::sync::OnceLock<PodSpec> = std::sync::OnceLock::new();
        self.pod
            .spec
            .as_ref()
            .unwrap_or_else(|| EMPTY.get_or_init(PodSpec::default))
    }

    pub(super) fn tolerations(&self) -> &[Toleration] {
        self.spec().tolerations.as_deref().unwrap_or_default()
    }

    fn affinity(&self) -> Option<&Affinity> {
        self.spec().affinity.as_ref()
    }

    /// Returns the required pod affinity terms.
    pub(super) fn required_affinity(&self) -> &[PodAffinityTerm] {
        self.affinity()
            .and_then(|affinity| affinity.pod_affinity.as_ref())
            .and_then(|affinity| {
                affinity
                    .required_during_scheduling_ignored_during_execution
                    .as_deref()
            })
            .unwrap_or_default()
    }

    /// Returns the required pod anti-affinity terms.
    pub(super) fn required_anti_affinity(&self) -> &[PodAffinityTerm] {
        self.affinity()
            .and_then(|affinity| affinity.pod_anti_affinity.as_ref())
            .and_then(|affinity| {
                affinity
                    .required_during_scheduling_ignored_during_execution
                    .as_deref()
            })
            .unwrap_or_default()
    }

    /// Returns the node on which a preemption made room for the pod.
    pub(super) fn nominated(&self) -> Option<&str> {
        self.pod
            .status
            .as_ref()?
            .nominated_node_name
            .as_deref()
            .filter(|node| !node.is_empty())
    }

    /// Returns the names of the only nodes that the node affinity allows by name, or `None` if it does not restrict the name.
    pub(super) fn only_node(&self) -> Option<Vec<String>> {
        let required = self
            .affinity()?
            .node_affinity
            .as_ref()?
            .required_during_scheduling_ignored_during_execution
            .as_ref()?;
        let mut names = Vec::new();
        for term in &required.node_selector_terms {
            let field = term
                .match_fields
                .iter()
                .flatten()
                .find(|field| field.key == "metadata.name" && field.operator == "In")?;
            names.extend(field.values.clone().unwrap_or_default());
        }
        (!required.node_selector_terms.is_empty()).then_some(names)
    }
}

/// Converts a list of quantities into amounts.
pub(super) fn amounts(list: Option<&BTreeMap<String, Quantity>>) -> Amounts {
    list.into_iter()
        .flatten()
        .filter_map(|(name, quantity)| {
            let amount = Amount::try_from(quantity).ok()?;
            Some((name.clone(), amount.in_unit_of(name)))
        })
        .collect()
}

/// Returns the requests of a container; the limit counts as the request of a resource that has only a limit.
fn own_requests(resources: Option<&ResourceRequirements>) -> Amounts {
    let Some(resources) = resources else {
        return Amounts::new();
    };
    let mut own_requests = amounts(resources.limits.as_ref());
    own_requests.extend(amounts(resources.requests.as_ref()));
    own_requests
}

/// Returns what a container takes of its node while its resources change: the most of what it asks for, what it is allocated and what it has.
/// What it will never get does not count.
fn taken(pod: &Pod, container: &Container) -> Amounts {
    let wanted = own_requests(container.resources.as_ref());
    let Some(status) = &pod.status else {
        return wanted;
    };
    let mut statuses = [&status.container_statuses, &status.init_container_statuses]
        .into_iter()
        .flatten()
        .flatten();
    let known = statuses.find(|status| status.name == container.name);
    let Some((known, actual)) = known.and_then(|known| Some((known, known.resources.as_ref()?)))
    else {
        return wanted;
    };
    let mut conditions = status.conditions.iter().flatten();
    let never = conditions.any(|condition| {
        condition.type_ == "PodResizePending" && condition.reason.as_deref() == Some("Infeasible")
    });
    let mut taken = if never { Amounts::new() } else { wanted };
    let allocated = amounts(known.allocated_resources.as_ref());
    for (name, amount) in allocated
        .into_iter()
        .chain(amounts(actual.requests.as_ref()))
    {
        let most = taken.entry(name).or_default();
        *most = amount.max(*most);
    }
    taken
}

fn sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

fn add(to: &mut Amounts, other: &Amounts) {
    for (name, amount) in other {
        *to.entry(name.clone()).or_default() += amount;
    }
}

/// Returns the peak over the pod's life: the larger of all containers with all sidecars, and any init container with the sidecars before
/// it. Pod-level requests take precedence, and overhead is added. `own` says what a container takes.
fn requests(spec: &PodSpec, own: impl Fn(&Container) -> Amounts) -> Amounts {
    let mut total = Amounts::new();
    for container in &spec.containers {
        add(&mut total, &own(container));
    }
    let (mut sidecars, mut peak) = (Amounts::new(), Amounts::new());
    for container in spec.init_containers.iter().flatten() {
        let own = own(container);
        if sidecar(container) {
            add(&mut sidecars, &own);
        }
        let mut needed = sidecars.clone();
        if !sidecar(container) {
            add(&mut needed, &own);
        }
        for (name, amount) in needed {
            let highest = peak.entry(name).or_default();
            *highest = amount.max(*highest);
        }
    }
    add(&mut total, &sidecars);
    for (name, amount) in peak {
        let held = total.entry(name).or_default();
        *held = amount.max(*held);
    }
    for (name, amount) in own_requests(spec.resources.as_ref()) {
        if name == "cpu" || name == "memory" || name.starts_with("hugepages-") {
            total.insert(name, amount);
        }
    }
    add(&mut total, &amounts(spec.overhead.as_ref()));
    total
}

fn host_ports(spec: &PodSpec) -> Vec<HostPort> {
    spec.containers
        .iter()
        .chain(
            spec.init_containers
                .iter()
                .flatten()
                .filter(|it| sidecar(it)),
        )
        .flat_map(|container| container.ports.iter().flatten())
        .filter_map(|port| {
            Some(HostPort {
                protocol: port.protocol.clone().unwrap_or_else(|| "TCP".to_owned()),
                address: port
                    .host_ip
                    .clone()
                    .filter(|address| !address.is_empty())
                    .unwrap_or_else(|| "0.0.0.0".to_owned()),
                port: port.host_port.filter(|port| *port > 0)?,
            })
        })
        .collect()
}

/// Returns whether a pod waits for this scheduler: it has no node, has not ended, and names this scheduler.
pub(super) fn pending(pod: &Pod, scheduler: &str) -> bool {
    let spec = pod.spec.as_ref();
    let name = spec
        .and_then(|spec| spec.scheduler_name.as_deref())
        .filter(|name| !name.is_empty())
        .unwrap_or("default-scheduler");
    objects::node_of(pod).is_none() && !objects::terminal(pod) && name == scheduler
}

/// Returns whether containers of a pod have got other resources.
pub(super) fn resized(before: &Pod, after: &Pod) -> bool {
    let statuses = |pod: &Pod| {
        let status = pod.status.as_ref();
        let statuses = status.and_then(|status| status.container_statuses.clone());
        statuses.unwrap_or_default()
    };
    let pairs = statuses(before).into_iter().zip(statuses(after));
    pairs
        .filter_map(|(before, after)| Some((before.resources?, after.resources?)))
        .any(|(before, after)| before != after)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    #[rstest]
    #[case::that_has_what_it_asks_for("2", "2", "2", Value::Null, 2000)]
    #[case::that_waits_for_more("4", "2", "2", json!("Deferred"), 4000)]
    #[case::that_never_gets_more("4", "2", "2", json!("Infeasible"), 2000)]
    #[case::that_still_has_more("1", "1", "3", Value::Null, 3000)]
    fn a_pod_takes_the_most(
        #[case] asks: &str,
        #[case] allocated: &str,
        #[case] has: &str,
        #[case] pending: Value,
        #[case] expected: i64,
    ) {
        let cpu = |amount: &str| json!({"cpu": amount});
        let pod = json!({
            "metadata": {"name": "p"},
            "spec": {"containers": [{"name": "c", "resources": {"requests": cpu(asks)}}]},
            "status": {
                "conditions": [{"type": "PodResizePending", "status": "True", "reason": pending}],
                "containerStatuses": [{"name": "c", "image": "", "imageID": "", "ready": true, "restartCount": 0,
                    "allocatedResources": cpu(allocated), "resources": {"requests": cpu(has)}}],
            },
        });
        let pod = Arc::new(serde_json::from_value(pod).unwrap());
        assert_eq!(Task::new(&pod).requests["cpu"], expected);
    }
}
