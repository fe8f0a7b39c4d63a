//! For tests: a machine, and parts of a kubelet's answers.

use api::nrt::{ResourceInfo, Zone};
use podresources::v1;

use crate::hardware::{Machine, NumaNode};

pub(crate) const GIB: u64 = 1 << 30;

/// Two NUMA nodes with four CPUs and 8 GiB each.
pub(crate) fn machine() -> Machine {
    let node = |first: u32, distances: [i64; 2]| NumaNode {
        cpus: (first..first + 4).collect(),
        memory: 8 * GIB,
        hugepages: [(2 << 20, 64 << 20), (GIB, 0)].into(),
        distances: [(0, distances[0]), (1, distances[1])].into(),
    };
    Machine {
        nodes: [(0, node(0, [10, 21])), (1, node(4, [21, 10]))].into(),
        threads_per_core: None,
        nodes_are_within_sockets: false,
    }
}

#[expect(
    clippy::unnecessary_wraps,
    reason = "what it makes is optional in every message"
)]
pub(crate) fn on(nodes: &[i64]) -> Option<v1::TopologyInfo> {
    let nodes = nodes.iter().map(|&id| v1::NumaNode { id }).collect();
    Some(v1::TopologyInfo { nodes })
}

pub(crate) fn memory(kind: &str, size: u64, nodes: &[i64]) -> v1::ContainerMemory {
    v1::ContainerMemory {
        memory_type: kind.to_owned(),
        size,
        topology: on(nodes),
    }
}

pub(crate) fn device(id: &str, topology: Option<v1::TopologyInfo>) -> v1::ContainerDevices {
    v1::ContainerDevices {
        resource_name: "ex.com/dev".to_owned(),
        device_ids: vec![id.to_owned()],
        topology,
    }
}

pub(crate) fn pod(name: &str, container: v1::ContainerResources) -> v1::PodResources {
    v1::PodResources {
        name: name.to_owned(),
        namespace: "default".to_owned(),
        containers: vec![container],
    }
}

/// Formats each zone with its resources as `name capacity/allocatable/available`.
pub(crate) fn shown(zones: &[Zone]) -> Vec<String> {
    let resource = |r: &ResourceInfo| {
        format!(
            "{} {}/{}/{}",
            r.name, r.capacity.0, r.allocatable.0, r.available.0
        )
    };
    zones
        .iter()
        .map(|zone| {
            let resources: Vec<String> = zone.resources.iter().map(resource).collect();
            format!("{}: {}", zone.name, resources.join(", "))
        })
        .collect()
}
