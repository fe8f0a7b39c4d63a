//! The format of what was recorded on real kubelets: one compressed file of JSON lines for each configuration, the configuration first,
//! then the sequences that its kubelet saw one after another without a restart between them.
//!
//! Pod UIDs are replaced by pod names. Checksums and the plugins' answers are left out, except in [`Files`]. Everything else is as the
//! kubelet wrote or answered it.

use std::collections::BTreeMap;
use std::path::Path;

use cluster_spec::kubelet::KubeletSettings;
use fixtures::machines::{Machine, format_cpu_list};
use kubelet_model::device::DeviceEntry;
use kubelet_model::node::Refusal;
use podresources::v1;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::recipe::PodRecipe;

/// Extension of the files.
pub const EXTENSION: &str = "jsonl.z";
/// Strongest compression, because files are written once.
const LEVEL: u8 = 9;
/// Limit of the decompressed size; no file reaches it.
const MAX_BYTES: usize = 256 << 20;

/// A kubelet and its machine, and its answers before any pod.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Configuration {
    /// Name, also of the file.
    pub name: String,
    /// Simulated hardware.
    pub machine: Machine,
    /// Settings of the kubelet.
    pub settings: KubeletSettings,
    /// `capacity` of the node status, without storage.
    pub capacity: BTreeMap<String, String>,
    /// `allocatable` of the node status, without storage.
    pub allocatable: BTreeMap<String, String>,
    /// Answer of `GetAllocatableResources`.
    pub resources: ContainerView,
}

/// What one kubelet saw from one moment without pods to the next.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Sequence {
    /// Seed that it was generated from.
    pub seed: u64,
    /// Steps, in order.
    pub steps: Vec<Step>,
    /// State files before all pods were deleted, byte for byte; only of some sequences.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<Files>,
}

/// State files as the kubelet wrote them; empty where a file did not exist.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Files {
    /// `cpu_manager_state`.
    pub cpu: String,
    /// `memory_manager_state`.
    pub memory: String,
    /// The device manager's checkpoint.
    pub devices: String,
}

/// One operation and everything that can be observed of the kubelet afterwards.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Step {
    /// The operation.
    pub operation: Operation,
    /// What was observed afterwards.
    #[serde(rename = "seen")]
    pub observed: Observation,
}

/// An operation on the node.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Operation {
    /// A pod was bound to the node; the recorder waited until the kubelet admitted or refused it.
    Create {
        /// Name.
        name: String,
        /// What the pod asks for.
        pod: PodRecipe,
    },
    /// A pod was deleted; the recorder waited for the end of its containers.
    Delete {
        /// Name.
        name: String,
    },
    /// The kubelet was restarted with its state. Then a BestEffort pod without requests was created and deleted, because the kubelet has
    /// by then admitted again what it found at its start.
    Restart {
        /// Name of the BestEffort pod.
        probe: String,
    },
    /// All pods were deleted.
    Drain,
}

/// Everything that can be observed of a kubelet's resource managers.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct Observation {
    /// Why the created pod was refused; none if it was admitted or the operation creates none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<Refusal>,
    /// Other pods that ended because of the operation: preempted, or refused after a restart.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub failed: BTreeMap<String, Refusal>,
    /// `cpu_manager_state` without the checksum.
    pub cpu: Value,
    /// `memory_manager_state` without the checksum.
    pub memory: Value,
    /// Entries of the device manager's checkpoint, sorted.
    pub devices: Vec<DeviceEntry>,
    /// `List`: pod → containers in order.
    pub list: BTreeMap<String, Vec<ContainerView>>,
    /// `Get` of the created pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub get: Option<Vec<ContainerView>>,
}

/// What a container holds according to `PodResources`. Where the order is unspecified there, it is sorted here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct ContainerView {
    /// Container name; empty for allocatable resources.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Exclusive CPUs as a list of ranges.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cpus: String,
    /// (type, bytes, NUMA nodes) of each block, sorted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub memory: Vec<(String, u64, Vec<i64>)>,
    /// (resource, device IDs, NUMA nodes) of each entry, sorted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<(String, Vec<String>, Option<Vec<i64>>)>,
}

fn nodes(topology: &v1::TopologyInfo) -> Vec<i64> {
    topology.nodes.iter().map(|node| node.id).collect()
}

impl ContainerView {
    fn new(
        name: &str,
        cpus: &[i64],
        memory: &[v1::ContainerMemory],
        devices: &[v1::ContainerDevices],
    ) -> Self {
        let cpus: Vec<u32> = cpus
            .iter()
            .filter_map(|cpu| u32::try_from(*cpu).ok())
            .collect();
        let mut view = Self {
            name: name.to_owned(),
            cpus: format_cpu_list(&cpus),
            memory: memory
                .iter()
                .map(|block| {
                    let nodes = block.topology.as_ref().map(nodes).unwrap_or_default();
                    (block.memory_type.clone(), block.size, nodes)
                })
                .collect(),
            devices: devices
                .iter()
                .map(|entry| {
                    (
                        entry.resource_name.clone(),
                        entry.device_ids.clone(),
                        entry.topology.as_ref().map(nodes),
                    )
                })
                .collect(),
        };
        view.memory.sort();
        view.devices.sort();
        view
    }

    /// Returns the containers of a pod.
    pub fn of_pod(pod: &v1::PodResources) -> Vec<Self> {
        pod.containers
            .iter()
            .map(|container| {
                Self::new(
                    &container.name,
                    &container.cpu_ids,
                    &container.memory,
                    &container.devices,
                )
            })
            .collect()
    }

    /// Returns everything that is allocatable.
    pub fn of_allocatable(answer: &v1::AllocatableResourcesResponse) -> Self {
        Self::new("", &answer.cpu_ids, &answer.memory, &answer.devices)
    }
}

/// Why a corpus file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be read or written.
    #[error("cannot use the corpus file")]
    File(#[from] std::io::Error),
    /// The file does not decompress.
    #[error("the corpus file is damaged: {0}")]
    Damaged(String),
    /// A line is not the JSON that [`write()`] produces.
    #[error("a line of the corpus file is damaged")]
    Line(#[from] serde_json::Error),
}

/// Writes a file.
pub fn write(
    path: &Path,
    configuration: &Configuration,
    sequences: &[Sequence],
) -> Result<(), Error> {
    let mut text = serde_json::to_vec(configuration)?;
    for sequence in sequences {
        text.push(b'\n');
        serde_json::to_writer(&mut text, sequence)?;
    }
    fs_err::write(
        path,
        miniz_oxide::deflate::compress_to_vec_zlib(&text, LEVEL),
    )?;
    Ok(())
}

/// Reads a file.
pub fn read(path: &Path) -> Result<(Configuration, Vec<Sequence>), Error> {
    let bytes = fs_err::read(path)?;
    let text = miniz_oxide::inflate::decompress_to_vec_zlib_with_limit(&bytes, MAX_BYTES)
        .map_err(|error| Error::Damaged(error.to_string()))?;
    let mut lines = text.split(|byte| *byte == b'\n');
    let first = lines.next().unwrap_or_default();
    let configuration = serde_json::from_slice(first)?;
    let sequences = lines
        .map(serde_json::from_slice)
        .collect::<Result<Vec<_>, _>>()?;
    Ok((configuration, sequences))
}
