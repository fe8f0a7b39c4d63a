//! The kubelet's answers as JSON. Names are those of the interface definition or of protobuf's JSON; 64-bit numbers may also be texts.

use podresources::v1;
use serde::{Deserialize, Deserializer};

/// Answer of `List`.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct List {
    #[serde(alias = "podResources")]
    pod_resources: Vec<Pod>,
}

/// Answer of `GetAllocatableResources`.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Allocatable {
    devices: Vec<Devices>,
    #[serde(alias = "cpuIds")]
    cpu_ids: Vec<Number>,
    memory: Vec<Memory>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Pod {
    name: String,
    namespace: String,
    containers: Vec<Container>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Container {
    name: String,
    devices: Vec<Devices>,
    #[serde(alias = "cpuIds")]
    cpu_ids: Vec<Number>,
    memory: Vec<Memory>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Devices {
    #[serde(alias = "resourceName")]
    resource_name: String,
    #[serde(alias = "deviceIds")]
    device_ids: Vec<String>,
    topology: Option<Topology>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Memory {
    #[serde(rename = "memory_type", alias = "memoryType")]
    kind: String,
    size: Number,
    topology: Option<Topology>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Topology {
    nodes: Vec<Node>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Node {
    #[serde(alias = "ID")]
    id: Number,
}

/// A number, possibly written as a text.
#[derive(Clone, Copy, Default)]
struct Number(i64);

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = serde_json::Value::deserialize(deserializer)?;
        let number = value
            .as_i64()
            .or_else(|| value.as_str().and_then(|text| text.parse().ok()));
        number
            .map(Self)
            .ok_or_else(|| serde::de::Error::custom(format!("{value} is not a 64-bit number")))
    }
}

fn all<T, U: From<T>>(items: Vec<T>) -> Vec<U> {
    items.into_iter().map(Into::into).collect()
}

impl From<Number> for i64 {
    fn from(number: Number) -> Self {
        number.0
    }
}

impl From<List> for v1::ListPodResourcesResponse {
    fn from(list: List) -> Self {
        Self {
            pod_resources: all(list.pod_resources),
        }
    }
}

impl From<Allocatable> for v1::AllocatableResourcesResponse {
    fn from(answer: Allocatable) -> Self {
        Self {
            devices: all(answer.devices),
            cpu_ids: all(answer.cpu_ids),
            memory: all(answer.memory),
        }
    }
}

impl From<Pod> for v1::PodResources {
    fn from(pod: Pod) -> Self {
        Self {
            name: pod.name,
            namespace: pod.namespace,
            containers: all(pod.containers),
        }
    }
}

impl From<Container> for v1::ContainerResources {
    fn from(container: Container) -> Self {
        Self {
            name: container.name,
            devices: all(container.devices),
            cpu_ids: all(container.cpu_ids),
            memory: all(container.memory),
            ..Self::default()
        }
    }
}

impl From<Devices> for v1::ContainerDevices {
    fn from(devices: Devices) -> Self {
        Self {
            resource_name: devices.resource_name,
            device_ids: devices.device_ids,
            topology: devices.topology.map(Into::into),
        }
    }
}

impl From<Memory> for v1::ContainerMemory {
    fn from(memory: Memory) -> Self {
        Self {
            memory_type: memory.kind,
            size: u64::try_from(memory.size.0).unwrap_or(0),
            topology: memory.topology.map(Into::into),
        }
    }
}

impl From<Topology> for v1::TopologyInfo {
    fn from(topology: Topology) -> Self {
        let nodes = topology.nodes.into_iter();
        Self {
            nodes: nodes.map(|node| v1::NumaNode { id: node.id.0 }).collect(),
        }
    }
}
