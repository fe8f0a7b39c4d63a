//! Determines which pods and containers hold resources of a NUMA node exclusively (rte.md 6.2, 7.1). Pure.

use nrt::placement::Container;
use podresources::v1;

use crate::hardware::Machine;

/// Returns whether the fingerprint method `with-exclusive-resources` covers a pod.
pub(crate) fn is_exclusive(pod: &v1::PodResources) -> bool {
    pod.containers.iter().any(|container| {
        !container.cpu_ids.is_empty()
            || container
                .memory
                .iter()
                .any(|block| first_node(block.topology.as_ref()).is_some())
            || container.devices.iter().any(|item| {
                !item.device_ids.is_empty() && first_node(item.topology.as_ref()).is_some()
            })
    })
}

/// The NUMA node of a container cannot be determined.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Error {
    /// One of the container's CPUs belongs to no NUMA node.
    #[error("cannot find the NUMA node for CPU {0}")]
    UnknownCpu(i64),
    /// The container holds a resource on more than one NUMA node.
    #[error("container {0} holds a resource on more than one NUMA node")]
    Several(String),
}

/// Returns the NUMA nodes of the containers that hold exclusive resources. CPUs decide, then devices, then memory.
pub(crate) fn placed<'a>(
    machine: &Machine,
    pods: &'a [v1::PodResources],
) -> Result<Vec<(Container<'a>, usize)>, Error> {
    let mut found = Vec::new();
    for pod in pods.iter().filter(|pod| is_exclusive(pod)) {
        for container in &pod.containers {
            if let Some(node) = node_of(machine, container)? {
                let container = Container {
                    namespace: &pod.namespace,
                    pod: &pod.name,
                    container: &container.name,
                };
                found.push((container, node as usize));
            }
        }
    }
    Ok(found)
}

fn node_of(machine: &Machine, container: &v1::ContainerResources) -> Result<Option<u32>, Error> {
    if let Some(&cpu) = container.cpu_ids.first() {
        let node = machine.node_of_cpu(cpu).ok_or(Error::UnknownCpu(cpu))?;
        return Ok(Some(node));
    }
    let devices = container
        .devices
        .iter()
        .filter(|item| !item.device_ids.is_empty())
        .map(|item| item.topology.as_ref());
    let memory = container.memory.iter().map(|block| block.topology.as_ref());
    let Some(topology) = devices
        .chain(memory)
        .find(|topology| first_node(*topology).is_some())
    else {
        return Ok(None);
    };
    if topology.is_some_and(|topology| topology.nodes.len() > 1) {
        return Err(Error::Several(container.name.clone()));
    }
    Ok(first_node(topology))
}

/// Returns the first valid NUMA node; -1 stands for none.
fn first_node(topology: Option<&v1::TopologyInfo>) -> Option<u32> {
    topology?
        .nodes
        .iter()
        .find_map(|node| u32::try_from(node.id).ok())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::testing::{device, machine, memory, on, pod};

    fn holding(
        cpus: &[i64],
        memory: Vec<v1::ContainerMemory>,
        devices: Vec<v1::ContainerDevices>,
    ) -> Vec<v1::PodResources> {
        let container = v1::ContainerResources {
            name: "c".to_owned(),
            cpu_ids: cpus.to_vec(),
            memory,
            devices,
            ..Default::default()
        };
        vec![pod("p", container)]
    }

    #[rstest]
    #[case::nothing(holding(&[], vec![], vec![]), false, Ok(None))]
    #[case::cpus(holding(&[5], vec![], vec![]), true, Ok(Some(1)))]
    #[case::memory_alone(holding(&[], vec![memory("memory", 1, &[1])], vec![]), true, Ok(Some(1)))]
    #[case::device(holding(&[], vec![], vec![device("d", on(&[0]))]), true, Ok(Some(0)))]
    #[case::cpus_before_devices(holding(&[5], vec![], vec![device("d", on(&[0]))]), true, Ok(Some(1)))]
    #[case::devices_before_memory(holding(&[], vec![memory("memory", 1, &[1])], vec![device("d", on(&[0]))]), true, Ok(Some(0)))]
    #[case::device_without_topology(holding(&[], vec![], vec![device("d", None)]), false, Ok(None))]
    #[case::device_on_no_node(holding(&[], vec![], vec![device("d", on(&[-1]))]), false, Ok(None))]
    #[case::unknown_cpu(holding(&[99], vec![], vec![]), true, Err(Error::UnknownCpu(99)))]
    #[case::memory_of_two_nodes(holding(&[], vec![memory("memory", 1, &[0, 1])], vec![]), true, Err(Error::Several("c".into())))]
    fn pod_counts_and_its_container_is_placed_by_what_it_holds(
        #[case] pods: Vec<v1::PodResources>,
        #[case] exclusive: bool,
        #[case] node: Result<Option<usize>, Error>,
    ) {
        assert_eq!(is_exclusive(&pods[0]), exclusive);
        let found = placed(&machine(), &pods).map(|placed| placed.first().map(|(_, node)| *node));
        assert_eq!(found, node);
    }
}
