//! What a kubelet answers and a node has: the exporter makes an observation of it, whatever it is.

use std::collections::{BTreeMap, BTreeSet};

use nrt::fingerprint::Method;
use podresources::v1;
use prost::Message as _;
use rte::hardware::{Machine, NumaNode};
use rte::kubelet::configuration::TopologyManager;
use rte::scan::filter::Filter;
use rte::scan::observation::{Settings, observe};

#[test]
fn no_answer_of_a_kubelet_stops_an_observation() {
    let settings = |exact| Settings {
        filter: Filter {
            exact,
            ..Filter::default()
        },
        fingerprint: Some(Method::All),
        topology_manager: TopologyManager {
            policy: "single-numa-node".to_owned(),
            scope: "pod".to_owned(),
            max_numa_nodes: None,
            managers: None,
        },
    };
    let (allocatable, pods) = (allocatable().encode_to_vec(), pods().encode_to_vec());
    ::fuzz::run(file!(), |input| {
        let mut machine = Machine::default();
        for id in [0, 2, 63] {
            if input.ratio(2, 3)? {
                machine.nodes.insert(id, numa_node(id));
            }
        }
        // bytes of the messages change, as a kubelet of another version or a broken proxy would send them
        let allocatable = changed(&allocatable, input)?;
        let pods = changed(&pods, input)?;
        let answer = v1::AllocatableResourcesResponse::decode(allocatable.as_slice());
        let listed = v1::ListPodResourcesResponse::decode(pods.as_slice());
        if let (Ok(answer), Ok(listed)) = (answer, listed) {
            let settings = settings(input.arbitrary()?);
            let seen = observe(&settings, &machine, &answer, listed.pod_resources);
            assert!(seen.zones.len() <= machine.nodes.len());
        }
        Ok(())
    });
}

/// Changes a few bytes of a message.
fn changed(message: &[u8], input: &mut ::fuzz::Unstructured<'_>) -> ::fuzz::Result<Vec<u8>> {
    let mut message = message.to_vec();
    for _ in 0..input.int_in_range(0..=8)? {
        let at = input.choose_index(message.len())?;
        message[at] = input.arbitrary()?;
    }
    Ok(message)
}

fn numa_node(id: u32) -> NumaNode {
    NumaNode {
        cpus: (id * 4..id * 4 + 4).collect::<BTreeSet<u32>>(),
        memory: 16 << 30,
        hugepages: BTreeMap::from([(1 << 30, 4 << 30)]),
        distances: BTreeMap::from([(id, 10)]),
    }
}

fn topology(id: i64) -> v1::TopologyInfo {
    v1::TopologyInfo {
        nodes: vec![v1::NumaNode { id }],
    }
}

fn device(ids: &[&str], node: i64) -> v1::ContainerDevices {
    v1::ContainerDevices {
        resource_name: "vendor.example/device".to_owned(),
        device_ids: ids.iter().map(|&id| id.to_owned()).collect(),
        topology: Some(topology(node)),
    }
}

fn memory(size: u64, node: i64) -> v1::ContainerMemory {
    v1::ContainerMemory {
        memory_type: "memory".to_owned(),
        size,
        topology: Some(topology(node)),
    }
}

fn allocatable() -> v1::AllocatableResourcesResponse {
    v1::AllocatableResourcesResponse {
        devices: vec![device(&["d0", "d1"], 0), device(&["d2"], 2)],
        cpu_ids: vec![0, 1, 2, 3, 8, 9, 252],
        memory: vec![memory(8 << 30, 0), memory(8 << 30, 2)],
    }
}

fn pods() -> v1::ListPodResourcesResponse {
    let container = v1::ContainerResources {
        name: "app".to_owned(),
        devices: vec![device(&["d0"], 0)],
        cpu_ids: vec![0, 1],
        memory: vec![memory(1 << 30, 0)],
        ..v1::ContainerResources::default()
    };
    v1::ListPodResourcesResponse {
        pod_resources: vec![v1::PodResources {
            name: "p".to_owned(),
            namespace: "ns".to_owned(),
            containers: vec![container],
        }],
    }
}
