//! Computes the published zones from the kubelet's answers and the machine (rte.md 4.2, 4.4). Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use api::nrt::{CostInfo, ResourceInfo, ZONE_TYPE_NODE, Zone};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use podresources::v1;

use crate::config::{ContainerId, PodPattern};
use crate::glob::{self, Pattern};
use crate::sysinfo::{Machine, NumaNode};

const CPU: &str = "cpu";
const MEMORY: &str = "memory";

/// Resource amounts by NUMA node.
type Counters = BTreeMap<u32, BTreeMap<String, i64>>;

/// What is not accounted for or not published.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// The only namespace that is accounted for; empty: all.
    pub namespace: String,
    /// Resources that zones do not show.
    pub hidden_resources: BTreeSet<String>,
    /// Pods to ignore, as patterns of namespace and name.
    pub hidden_pods: Vec<(Pattern, Pattern)>,
    /// A container whose CPUs are shared by all containers.
    pub shared: Option<ContainerId>,
    /// Account for the resources of hidden pods and of pods in other namespaces, because no other pod can get them, and charge memory of
    /// several NUMA nodes only once. The original does neither, so the default is off. Then a hidden pod, or one in another namespace, is
    /// missing from the fingerprint *and* its resources look available, and memory of several NUMA nodes is charged in full to each.
    pub exact: bool,
}

impl Filter {
    /// Adds the valid patterns to the hidden pods. Returns the errors of the others, which match nothing.
    pub fn hide_pods(&mut self, patterns: &[PodPattern]) -> Vec<glob::Error> {
        let mut errors = Vec::new();
        for PodPattern {
            name_pattern,
            namespace_pattern,
        } in patterns
        {
            match (Pattern::new(namespace_pattern), Pattern::new(name_pattern)) {
                (Ok(namespace), Ok(name)) => self.hidden_pods.push((namespace, name)),
                (Err(error), _) | (_, Err(error)) => errors.push(error),
            }
        }
        errors
    }

    /// Removes the shared CPUs from an answer of the kubelet. Must run before anything else reads the answer.
    pub fn remove_shared_cpus(&self, pods: &mut [v1::PodResources]) {
        if let Some(id) = &self.shared {
            let shared: BTreeSet<i64> = pods
                .iter()
                .filter(|pod| pod.namespace == id.namespace && pod.name == id.pod_name)
                .flat_map(|pod| &pod.containers)
                .filter(|container| container.name == id.container_name)
                .flat_map(|container| container.cpu_ids.iter().copied())
                .collect();
            for container in pods.iter_mut().flat_map(|pod| &mut pod.containers) {
                container.cpu_ids.retain(|cpu| !shared.contains(cpu));
                container.cpu_ids.sort_unstable();
            }
        }
    }

    /// Removes the hidden pods and returns them.
    pub fn remove_hidden_pods(&self, pods: &mut Vec<v1::PodResources>) -> Vec<v1::PodResources> {
        let is_hidden = |pod: &mut v1::PodResources| {
            self.hidden_pods.iter().any(|(namespace, name)| {
                namespace.matches(&pod.namespace) && name.matches(&pod.name)
            })
        };
        pods.extract_if(.., is_hidden).collect()
    }

    /// Returns whether a pod is in the watched namespace.
    pub fn is_watched(&self, pod: &v1::PodResources) -> bool {
        self.namespace.is_empty() || pod.namespace == self.namespace
    }
}

/// A part of the answers that does not fit the machine. The zones are correct apart from it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Problem {
    /// A CPU that sysfs does not show, or that is offline.
    UnknownCpu(i64),
    /// Memory or a device on a NUMA node that sysfs does not show.
    UnknownNode {
        /// The resource.
        resource: String,
        /// Id of the NUMA node.
        node: i64,
    },
    /// More is allocatable than the capacity; the published capacity is raised to the allocatable amount.
    AboveCapacity {
        /// The resource.
        resource: String,
        /// Id of the NUMA node.
        node: u32,
    },
    /// More is held than allocatable; the published available amount is zero.
    Overused {
        /// The resource.
        resource: String,
        /// Id of the NUMA node.
        node: u32,
    },
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownCpu(cpu) => write!(f, "cannot find the NUMA node for CPU {cpu}"),
            Self::UnknownNode { resource, node } => {
                write!(f, "{resource} is on NUMA node {node}, which does not exist")
            }
            Self::AboveCapacity { resource, node } => {
                write!(
                    f,
                    "allocated more than capacity: {resource} on NUMA node {node}"
                )
            }
            Self::Overused { resource, node } => {
                write!(f, "negative size: {resource} on NUMA node {node}")
            }
        }
    }
}

/// Returns the zones sorted by id, with resources sorted by name, and the problems.
pub fn zones(
    machine: &Machine,
    allocatable: &v1::AllocatableResourcesResponse,
    pods: &[&v1::PodResources],
    filter: &Filter,
) -> (Vec<Zone>, BTreeSet<Problem>) {
    let mut problems = BTreeSet::new();
    let mut total = Counters::new();
    let mut add = |counters: &mut Counters, cpus: &[i64], memory: &[_], devices: &[_]| {
        count(machine, counters, (cpus, memory, devices), &mut problems);
    };
    add(
        &mut total,
        &allocatable.cpu_ids,
        &allocatable.memory,
        &allocatable.devices,
    );
    let mut used = Counters::new();
    let mut spanning = Vec::new();
    for container in pods.iter().flat_map(|pod| &pod.containers) {
        let (cpus, devices) = (&container.cpu_ids, &container.devices);
        if filter.exact {
            let (several, one): (Vec<_>, Vec<_>) =
                container.memory.iter().cloned().partition(is_spanning);
            add(&mut used, cpus, &one, devices);
            spanning.extend(several);
        } else {
            add(&mut used, cpus, &container.memory, devices);
        }
    }
    for block in &spanning {
        charge_spanning(&total, &mut used, block);
    }
    let none = BTreeMap::new();
    let zones = machine
        .nodes
        .iter()
        .map(|(&id, node)| Zone {
            name: zone_name(id),
            zone_type: ZONE_TYPE_NODE.to_owned(),
            costs: costs(node),
            resources: resources(
                id,
                node,
                total.get(&id).unwrap_or(&none),
                used.get(&id).unwrap_or(&none),
                filter,
                &mut problems,
            ),
            ..Zone::default()
        })
        .collect();
    (zones, problems)
}

/// Returns by resource the amounts without a NUMA node: how many are allocatable, and how many are held. No zone shows them. Claims of
/// dynamic resources are counted as `claims`.
pub fn unzoned(
    allocatable: &v1::AllocatableResourcesResponse,
    pods: &[&v1::PodResources],
) -> BTreeMap<String, (i64, i64)> {
    let has_no_node = |item: &&v1::ContainerDevices| {
        item.topology
            .as_ref()
            .is_none_or(|topology| topology.nodes.iter().all(|node| node.id < 0))
    };
    let amount = |item: &v1::ContainerDevices| i64::try_from(item.device_ids.len()).unwrap_or(0);
    let mut found: BTreeMap<String, (i64, i64)> = BTreeMap::new();
    for item in allocatable.devices.iter().filter(has_no_node) {
        found.entry(item.resource_name.clone()).or_default().0 += amount(item);
    }
    for container in pods.iter().flat_map(|pod| &pod.containers) {
        for item in container.devices.iter().filter(has_no_node) {
            found.entry(item.resource_name.clone()).or_default().1 += amount(item);
        }
        if !container.dynamic_resources.is_empty() {
            let claims = i64::try_from(container.dynamic_resources.len()).unwrap_or(0);
            found.entry("claims".to_owned()).or_default().1 += claims;
        }
    }
    found
}

fn is_spanning(block: &v1::ContainerMemory) -> bool {
    block
        .topology
        .as_ref()
        .is_some_and(|topology| topology.nodes.len() > 1)
}

/// Charges memory of several NUMA nodes like the memory manager: each node in order of its id gives what it has left.
fn charge_spanning(total: &Counters, used: &mut Counters, block: &v1::ContainerMemory) {
    let resource = &block.memory_type;
    let mut rest = i64::try_from(block.size).unwrap_or(i64::MAX);
    let nodes = block.topology.iter().flat_map(|topology| &topology.nodes);
    let mut ids: Vec<u32> = nodes
        .filter_map(|node| u32::try_from(node.id).ok())
        .collect();
    ids.sort_unstable();
    let of = |counters: &Counters, id: u32| -> i64 {
        let amounts = counters.get(&id);
        amounts
            .and_then(|amounts| amounts.get(resource).copied())
            .unwrap_or(0)
    };
    for &id in &ids {
        let part = rest.min(of(total, id) - of(used, id)).max(0);
        add(used, id, resource, part);
        rest -= part;
    }
    // more than all nodes have: nothing is left on any, and the excess on the last one is reported as a problem
    if let (Some(&last), true) = (ids.last(), rest > 0) {
        add(used, last, resource, rest);
    }
}

/// Returns `node-<id>`.
pub fn zone_name(id: u32) -> String {
    format!("node-{id}")
}

fn costs(node: &NumaNode) -> Vec<CostInfo> {
    node.distances
        .iter()
        .map(|(id, distance)| CostInfo {
            name: zone_name(*id),
            value: *distance,
        })
        .collect()
}

fn count(
    machine: &Machine,
    counters: &mut Counters,
    (cpus, memory, devices): (&[i64], &[v1::ContainerMemory], &[v1::ContainerDevices]),
    problems: &mut BTreeSet<Problem>,
) {
    for &cpu in cpus {
        match machine.node_of_cpu(cpu) {
            Some(node) => add(counters, node, CPU, 1),
            None => drop(problems.insert(Problem::UnknownCpu(cpu))),
        }
    }
    let mut spread = |resource: &str, amount: i64, topology: Option<&v1::TopologyInfo>| {
        // counted in full on every listed NUMA node, because the kubelet does not say how much is on which
        for node in topology
            .map(|topology| topology.nodes.as_slice())
            .unwrap_or_default()
        {
            match u32::try_from(node.id)
                .ok()
                .filter(|id| machine.nodes.contains_key(id))
            {
                Some(id) => add(counters, id, resource, amount),
                None => drop(problems.insert(Problem::UnknownNode {
                    resource: resource.to_owned(),
                    node: node.id,
                })),
            }
        }
    };
    for block in memory.iter().filter(|block| block.size > 0) {
        let size = i64::try_from(block.size).unwrap_or(i64::MAX);
        spread(&block.memory_type, size, block.topology.as_ref());
    }
    for item in devices {
        let amount = i64::try_from(item.device_ids.len()).unwrap_or(i64::MAX);
        spread(&item.resource_name, amount, item.topology.as_ref());
    }
}

fn add(counters: &mut Counters, node: u32, resource: &str, amount: i64) {
    let counter = counters
        .entry(node)
        .or_default()
        .entry(resource.to_owned())
        .or_default();
    *counter = counter.saturating_add(amount);
}

fn resources(
    id: u32,
    node: &NumaNode,
    total: &BTreeMap<String, i64>,
    used: &BTreeMap<String, i64>,
    filter: &Filter,
    problems: &mut BTreeSet<Problem>,
) -> Vec<ResourceInfo> {
    if total.is_empty() {
        // everything is reserved: the zone shows its CPUs, none of them allocatable
        let cpus = i64::try_from(node.cpus.len()).unwrap_or(i64::MAX);
        return vec![resource(CPU, cpus, 0, 0)];
    }
    let shown = total
        .iter()
        .filter(|(name, _)| !filter.hidden_resources.contains(*name));
    shown
        .map(|(name, &allocatable)| {
            let mut capacity = match capacity(node, name) {
                None | Some(0) => allocatable,
                Some(capacity) => capacity,
            };
            if allocatable > capacity {
                problems.insert(Problem::AboveCapacity {
                    resource: name.clone(),
                    node: id,
                });
                capacity = allocatable;
            }
            let mut available = allocatable - used.get(name).copied().unwrap_or(0);
            if available < 0 {
                problems.insert(Problem::Overused {
                    resource: name.clone(),
                    node: id,
                });
                available = 0;
            }
            resource(name, capacity, allocatable, available)
        })
        .collect()
}

/// Returns the capacity of a resource from sysfs; `None` for resources that sysfs does not know.
fn capacity(node: &NumaNode, resource: &str) -> Option<i64> {
    let amount = match resource {
        CPU => node.cpus.len() as u64,
        MEMORY => node.memory,
        "hugepages-2Mi" => *node.hugepages.get(&(2 << 20))?,
        "hugepages-1Gi" => *node.hugepages.get(&(1 << 30))?,
        _ => return None,
    };
    Some(i64::try_from(amount).unwrap_or(i64::MAX))
}

fn resource(name: &str, capacity: i64, allocatable: i64, available: i64) -> ResourceInfo {
    ResourceInfo {
        name: name.to_owned(),
        capacity: decimal(capacity),
        allocatable: decimal(allocatable),
        available: decimal(available),
    }
}

/// Writes a whole number as a canonical decimal quantity: factors of 1000 become a suffix.
fn decimal(mut value: i64) -> Quantity {
    let mut suffixes = ["", "k", "M", "G", "T", "P", "E"].iter();
    let mut suffix = suffixes.next().copied().unwrap_or_default();
    while value != 0 && value % 1000 == 0 {
        let Some(next) = suffixes.next() else { break };
        value /= 1000;
        suffix = next;
    }
    Quantity(format!("{value}{suffix}"))
}

#[cfg(test)]
pub(crate) mod tests;
