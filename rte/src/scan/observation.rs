//! Combines the result of one scan of the node: zones, attributes, fingerprint (rte.md 5, 6, 7). Pure.

use std::collections::{BTreeMap, BTreeSet};

use api::attributes as names;
use api::nrt::{AttributeInfo, Zone};
use nrt::encode::{self, attribute};
use nrt::fingerprint::Method;
use nrt::placement::{self, Encoded};
use podresources::v1;
use topology::policy::Policy;

use super::accounting::{self, Problem};
use super::filter::Filter;
use super::fingerprint::{self, Fingerprinted};
use super::locality;
use crate::config::ResourceManagers;
use crate::hardware::Machine;
use crate::kubelet::configuration::TopologyManager;

/// Inputs of an observation besides the node.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What is left out.
    pub filter: Filter,
    /// Which pods the fingerprint covers; `None`: no fingerprint.
    pub fingerprint: Option<Method>,
    /// Settings of the kubelet that are published.
    pub topology_manager: TopologyManager,
}

/// The result of one scan.
#[derive(Clone, Debug, PartialEq)]
pub struct Observation {
    /// The zones, with the placement in their attributes.
    pub zones: Vec<Zone>,
    /// Attributes of the object, in the order in which they are published.
    pub attributes: Vec<AttributeInfo>,
    /// The fingerprint, if enabled.
    pub fingerprint: Option<Fingerprinted>,
    /// Parts of the answers that do not fit the machine.
    pub problems: BTreeSet<Problem>,
    /// Resources without a NUMA node, which no zone can show: how many are allocatable, and how many are held.
    pub unzoned: BTreeMap<String, (i64, i64)>,
    /// Why the placement is missing, if it should be published.
    pub placement_problem: Option<String>,
}

/// Computes an observation from the kubelet's answers.
pub fn observe(
    settings: &Settings,
    machine: &Machine,
    allocatable: &v1::AllocatableResourcesResponse,
    mut pods: Vec<v1::PodResources>,
) -> Observation {
    let filter = &settings.filter;
    filter.remove_shared_cpus(&mut pods);
    let hidden = filter.remove_hidden_pods(&mut pods);
    let accounted: Vec<&v1::PodResources> = if filter.exact {
        pods.iter().chain(&hidden).collect()
    } else {
        pods.iter().filter(|pod| filter.is_watched(pod)).collect()
    };
    let (zones, problems) = accounting::zones(machine, allocatable, &accounted, filter);
    let unzoned = accounting::unzoned(allocatable, &accounted);
    if filter.exact {
        pods.retain(|pod| filter.is_watched(pod));
    }
    let fingerprint = settings
        .fingerprint
        .map(|method| fingerprint::compute(method, &pods));
    let (placement, placement_problem) = match placement(settings, machine, &pods) {
        None => (None, None),
        Some(Ok(encoded)) => (Some(encoded), None),
        Some(Err(problem)) => (None, Some(problem)),
    };
    let mut attributes = Vec::new();
    if let Some(Fingerprinted { text, method, .. }) = &fingerprint {
        attributes.extend(encode::fingerprint(text, *method));
    }
    attributes.extend(placement.as_ref().map(encode::placement));
    attributes.extend(of_kubelet(&settings.topology_manager, machine));
    Observation {
        zones: encode::zones(&zones, placement.as_ref()),
        attributes,
        fingerprint,
        problems,
        unzoned,
        placement_problem,
    }
}

/// Returns the placement of the pods, or why it cannot be told. `None` if none should be published: only with the policy `single-numa-node`
/// is each container on one NUMA node, and without a fingerprint a reader does not know which containers it covers.
fn placement(
    settings: &Settings,
    machine: &Machine,
    pods: &[v1::PodResources],
) -> Option<Result<Encoded, String>> {
    settings.fingerprint?;
    let is_single = settings.topology_manager.policy.parse() == Ok(Policy::SingleNumaNode);
    is_single.then(|| {
        let containers = locality::placed(machine, pods).map_err(|error| error.to_string())?;
        placement::encode(containers, machine.nodes.len()).map_err(|error| error.to_string())
    })
}

/// Returns the attributes with the settings of the kubelet.
fn of_kubelet(settings: &TopologyManager, machine: &Machine) -> Vec<AttributeInfo> {
    let TopologyManager {
        policy,
        scope,
        max_numa_nodes,
        managers,
    } = settings;
    let mut attributes = vec![
        attribute(names::TOPOLOGY_MANAGER_SCOPE, scope),
        attribute(names::TOPOLOGY_MANAGER_POLICY, policy),
    ];
    if let Some(most) = max_numa_nodes {
        attributes.push(attribute(names::TOPOLOGY_MANAGER_MAX_NUMA_NODES, most));
    }
    if let Some(managers) = managers {
        attributes.extend(of_managers(managers, machine));
    }
    attributes
}

/// Returns the attributes of the CPU and memory managers. Returns none if containers get whole cores and the core size is unknown, because
/// a scheduler with only part of the information would decide wrongly.
fn of_managers(managers: &ResourceManagers, machine: &Machine) -> Vec<AttributeInfo> {
    let mut attributes = vec![
        attribute(names::CPU_MANAGER_POLICY, &managers.cpu),
        attribute(names::MEMORY_MANAGER_POLICY, &managers.memory),
    ];
    if managers.full_cores() {
        let Some(threads) = machine.threads_per_core else {
            return Vec::new();
        };
        attributes.push(attribute(names::CPU_MANAGER_FULL_PCPUS_ONLY, threads));
    }
    if managers.packs_cores()
        && machine.nodes_are_within_sockets
        && let Some(threads) = machine.threads_per_core
    {
        attributes.push(attribute(names::CPU_MANAGER_PACKED_CORES, threads));
    }
    attributes
}

#[cfg(test)]
mod tests;
