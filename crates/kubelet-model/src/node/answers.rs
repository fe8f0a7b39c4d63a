//! The kubelet's answers about resources (kubelet-node.md 10).

use std::collections::BTreeSet;

use podresources::v1;
use topology::mask::ZoneId;

use super::{Node, NotFound};
use crate::device::Device;
use crate::workload::{ContainerKind, ContainerRequest, Workload};

impl Node {
    /// Returns the answer of `List`, pods sorted by UID. As in the kubelet, the device manager forgets pods that are not active any more.
    pub fn list(&mut self) -> v1::ListPodResourcesResponse {
        let active_uids: BTreeSet<String> = self.active.keys().cloned().collect();
        self.devices.remove_stale(&active_uids);
        v1::ListPodResourcesResponse {
            pod_resources: self
                .active
                .values()
                .map(|pod| self.resources(pod))
                .collect(),
        }
    }

    /// Returns the answer of `Get`.
    pub fn get(&self, namespace: &str, name: &str) -> Result<v1::PodResources, NotFound> {
        self.active
            .values()
            .find(|pod| pod.namespace == namespace && pod.name == name)
            .map(|pod| self.resources(pod))
            .ok_or_else(|| NotFound {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
            })
    }

    fn resources(&self, pod: &Workload) -> v1::PodResources {
        let of_kind = |kind: ContainerKind| {
            pod.containers
                .iter()
                .filter(move |container| container.kind == kind)
        };
        let containers = of_kind(ContainerKind::Sidecar).chain(of_kind(ContainerKind::App));
        v1::PodResources {
            name: pod.name.clone(),
            namespace: pod.namespace.clone(),
            containers: containers
                .map(|container| self.container(pod, container))
                .collect(),
        }
    }

    fn container(&self, pod: &Workload, container: &ContainerRequest) -> v1::ContainerResources {
        let cpus = self.state.cpu.exclusive(&pod.uid, &container.name);
        let blocks = self.state.memory.blocks(&pod.uid, &container.name);
        let mut devices = Vec::new();
        for (resource, ids) in self
            .devices
            .held(&pod.uid, &container.name)
            .into_iter()
            .flatten()
        {
            let known = self.devices.plugins().get(resource);
            for id in ids {
                let device = known.and_then(|devices| devices.get(id));
                devices.extend(device_entries(resource, id, device));
            }
        }
        v1::ContainerResources {
            name: container.name.clone(),
            devices,
            cpu_ids: cpus.into_iter().flatten().copied().map(i64::from).collect(),
            memory: blocks
                .iter()
                .map(|block| v1::ContainerMemory {
                    memory_type: block.kind.clone(),
                    size: block.size,
                    topology: Some(nodes(block.affinity.iter())),
                })
                .collect(),
            dynamic_resources: Vec::new(),
        }
    }

    /// Returns the answer of `GetAllocatableResources`.
    pub fn allocatable_resources(&self) -> v1::AllocatableResourcesResponse {
        let devices = self
            .devices
            .plugins()
            .iter()
            .flat_map(|(resource, devices)| {
                devices
                    .iter()
                    .filter(|(_, device)| device.healthy)
                    .flat_map(|(id, device)| device_entries(resource, id, Some(device)))
            })
            .collect();
        let cpus = self.state.cpu.allocatable();
        v1::AllocatableResourcesResponse {
            devices,
            cpu_ids: cpus.into_iter().map(i64::from).collect(),
            memory: self
                .state
                .memory
                .allocatable()
                .into_iter()
                .map(|(kind, size, zone)| v1::ContainerMemory {
                    memory_type: kind,
                    size,
                    topology: Some(nodes(ZoneId::new(u64::from(zone)).into_iter())),
                })
                .collect(),
        }
    }
}

fn nodes(zones: impl Iterator<Item = ZoneId>) -> v1::TopologyInfo {
    v1::TopologyInfo {
        nodes: zones
            .map(|zone| v1::NumaNode {
                id: i64::from(zone.get()),
            })
            .collect(),
    }
}

/// Returns one entry for each zone of a device; one without topology if the device has no list of zones; none if its list of zones is
/// empty.
fn device_entries(resource: &str, id: &str, device: Option<&Device>) -> Vec<v1::ContainerDevices> {
    let entry = |topology| v1::ContainerDevices {
        resource_name: resource.to_owned(),
        device_ids: vec![id.to_owned()],
        topology,
    };
    match device.and_then(|device| device.zones.as_ref()) {
        None => vec![entry(None)],
        Some(zones) => zones
            .iter()
            .map(|zone| entry(Some(nodes([*zone].into_iter()))))
            .collect(),
    }
}
