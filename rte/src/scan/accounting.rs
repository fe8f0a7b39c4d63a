//! Adds up per zone what the kubelet's answers say, on top of what the machine has (rte.md 4.4). Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use nrt::encode::ObservedZone;
use podresources::v1;
use topology::resource::{CPU, MEMORY, ResourceName};
use topology::zone::Amounts;

use super::filter::Filter;
use crate::hardware::{Machine, NumaNode};

/// The amount of CPU that one logical CPU is.
const ONE_CPU: i64 = 1000;

/// Amounts by resource, in the units of [`topology::resource`].
type Totals = BTreeMap<ResourceName, i64>;
/// Amounts by NUMA node.
type Counters = BTreeMap<u32, Totals>;

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

/// Returns the zones and the problems.
pub(super) fn zones(
    machine: &Machine,
    allocatable: &v1::AllocatableResourcesResponse,
    pods: &[&v1::PodResources],
    filter: &Filter,
) -> (Vec<ObservedZone>, BTreeSet<Problem>) {
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
    let none = Totals::new();
    let zones = machine
        .nodes
        .iter()
        .map(|(&id, node)| ObservedZone {
            id,
            distances: node.distances.clone(),
            resources: resources(
                id,
                node,
                total.get(&id).unwrap_or(&none),
                used.get(&id).unwrap_or(&none),
                filter,
                &mut problems,
            ),
        })
        .collect();
    (zones, problems)
}

/// Returns by resource the amounts without a NUMA node: how many are allocatable, and how many are held. No zone shows them. Claims of
/// dynamic resources are counted as `claims`.
pub(super) fn unzoned(
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
            .and_then(|amounts| amounts.get(resource.as_str()).copied())
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

fn count(
    machine: &Machine,
    counters: &mut Counters,
    (cpus, memory, devices): (&[i64], &[v1::ContainerMemory], &[v1::ContainerDevices]),
    problems: &mut BTreeSet<Problem>,
) {
    for &cpu in cpus {
        match machine.node_of_cpu(cpu) {
            Some(node) => add(counters, node, CPU, ONE_CPU),
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
        .entry(resource.into())
        .or_default();
    *counter = counter.saturating_add(amount);
}

fn resources(
    id: u32,
    node: &NumaNode,
    total: &Totals,
    used: &Totals,
    filter: &Filter,
    problems: &mut BTreeSet<Problem>,
) -> BTreeMap<ResourceName, Amounts> {
    if total.is_empty() {
        // everything is reserved: the zone shows its CPUs, none of them allocatable
        let nothing_allocatable = Amounts {
            capacity: all_cpus(node),
            ..Amounts::default()
        };
        return BTreeMap::from([(CPU.into(), nothing_allocatable)]);
    }
    let shown = total
        .iter()
        .filter(|(name, _)| !filter.hidden_resources.contains(name.as_str()));
    shown
        .map(|(name, &allocatable)| {
            let mut capacity = match capacity(node, name) {
                None | Some(0) => allocatable,
                Some(capacity) => capacity,
            };
            if allocatable > capacity {
                problems.insert(Problem::AboveCapacity {
                    resource: name.to_string(),
                    node: id,
                });
                capacity = allocatable;
            }
            let mut available = allocatable - used.get(name).copied().unwrap_or(0);
            if available < 0 {
                problems.insert(Problem::Overused {
                    resource: name.to_string(),
                    node: id,
                });
                available = 0;
            }
            let amounts = Amounts {
                capacity,
                allocatable,
                available,
            };
            (name.clone(), amounts)
        })
        .collect()
}

/// Returns the capacity of a resource from sysfs; `None` for resources that sysfs does not know.
fn capacity(node: &NumaNode, resource: &ResourceName) -> Option<i64> {
    let bytes = match resource.as_str() {
        CPU => return Some(all_cpus(node)),
        MEMORY => node.memory,
        "hugepages-2Mi" => *node.hugepages.get(&(2 << 20))?,
        "hugepages-1Gi" => *node.hugepages.get(&(1 << 30))?,
        _ => return None,
    };
    Some(i64::try_from(bytes).unwrap_or(i64::MAX))
}

fn all_cpus(node: &NumaNode) -> i64 {
    i64::try_from(node.cpus.len()).map_or(i64::MAX, |cpus| cpus.saturating_mul(ONE_CPU))
}

#[cfg(test)]
mod tests;
