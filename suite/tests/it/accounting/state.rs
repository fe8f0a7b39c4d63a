//! The kubelet's state files, as far as accounting needs them (kubelet-node.md 11).

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

/// The file of the CPU manager.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CpuState {
    /// CPUs that no container has exclusively.
    pub(crate) default_cpu_set: CpuList,
    /// Exclusive CPUs by pod UID and container.
    #[serde(default)]
    pub(crate) entries: BTreeMap<String, BTreeMap<String, CpuList>>,
}

/// The file of the memory manager.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct MemoryState {
    /// The manager's own sums, by NUMA node; Go writes an empty map as null.
    #[serde(default)]
    pub(crate) machine_state: Option<BTreeMap<usize, NodeMemory>>,
    /// Pinned memory by pod UID and container.
    #[serde(default)]
    pub(crate) entries: BTreeMap<String, BTreeMap<String, Vec<Block>>>,
}

/// The memory manager's sums of one NUMA node.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NodeMemory {
    /// By resource.
    pub(crate) memory_map: BTreeMap<String, MemorySums>,
}

/// The memory manager's sums of one resource of one NUMA node, in bytes.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct MemorySums {
    /// What pods may use.
    pub(crate) allocatable: i64,
    /// What is left of it.
    pub(crate) free: i64,
}

/// Memory of one container.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Block {
    /// NUMA nodes that it is on.
    pub(crate) numa_affinity: Vec<usize>,
    /// Resource: `memory` or `hugepages-<size>`.
    #[serde(rename = "type")]
    pub(crate) resource: String,
    /// Bytes.
    pub(crate) size: i64,
}

/// The file of the device manager.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Checkpoint {
    data: DeviceState,
}

/// Allocated devices.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct DeviceState {
    /// One entry for each container and resource; Go writes an empty list as null.
    #[serde(default)]
    pub(crate) pod_device_entries: Option<Vec<DeviceEntry>>,
}

/// Devices of one resource that a container has.
#[derive(Debug, Deserialize)]
pub(crate) struct DeviceEntry {
    /// UID of the pod.
    #[serde(rename = "PodUID")]
    pub(crate) pod: String,
    /// Name of the container.
    #[serde(rename = "ContainerName")]
    pub(crate) container: String,
    /// Name of the resource.
    #[serde(rename = "ResourceName")]
    pub(crate) resource: String,
    /// Ids by NUMA node; -1 has the ids of devices without a NUMA node.
    #[serde(rename = "DeviceIDs")]
    pub(crate) ids: BTreeMap<i64, Vec<String>>,
}

/// The three files of a node, as they were read, for messages.
#[derive(Clone, Debug)]
pub(crate) struct Texts {
    /// `cpu_manager_state`.
    pub(crate) cpus: String,
    /// `memory_manager_state`.
    pub(crate) memory: String,
    /// `device-plugins/kubelet_internal_checkpoint`.
    pub(crate) devices: String,
}

/// The three files of a node.
#[derive(Debug)]
pub(crate) struct NodeState {
    /// Exclusive CPUs.
    pub(crate) cpus: CpuState,
    /// Pinned memory.
    pub(crate) memory: MemoryState,
    /// Devices.
    pub(crate) devices: Vec<DeviceEntry>,
}

impl NodeState {
    /// Parses all three. The error names the file that is invalid.
    pub(crate) fn parse(texts: &Texts) -> Result<Self, String> {
        fn read<'a, T: Deserialize<'a>>(name: &str, text: &'a str) -> Result<T, String> {
            serde_json::from_str(text).map_err(|error| format!("{name}: {error}: {text:?}"))
        }
        let checkpoint: Checkpoint = read("kubelet_internal_checkpoint", &texts.devices)?;
        Ok(Self {
            cpus: read("cpu_manager_state", &texts.cpus)?,
            memory: read("memory_manager_state", &texts.memory)?,
            devices: checkpoint.data.pod_device_entries.unwrap_or_default(),
        })
    }
}

/// CPU ids, written as Linux does: ascending ranges, comma separated.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct CpuList(pub BTreeSet<u32>);

impl TryFrom<String> for CpuList {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let mut ids = BTreeSet::new();
        for part in text.split(',').filter(|_| !text.is_empty()) {
            let number = |digits: &str| {
                digits
                    .parse::<u32>()
                    .map_err(|_| format!("{text:?} is no list of CPUs: {part:?}"))
            };
            let (first, last) = match part.split_once('-') {
                None => (number(part)?, number(part)?),
                Some((first, last)) => (number(first)?, number(last)?),
            };
            if first > last {
                return Err(format!(
                    "{text:?} is no list of CPUs: {part:?} is backwards"
                ));
            }
            ids.extend(first..=last);
        }
        Ok(Self(ids))
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn list(text: &str) -> Result<CpuList, String> {
        CpuList::try_from(text.to_owned())
    }

    #[rstest]
    #[case::empty("", &[])]
    #[case::one("7", &[7])]
    #[case::range("2-4", &[2, 3, 4])]
    #[case::mixed("0,2-3,10,12-13", &[0, 2, 3, 10, 12, 13])]
    fn cpu_lists_are_sets_of_ids(#[case] text: &str, #[case] expected: &[u32]) {
        assert_eq!(list(text), Ok(CpuList(expected.iter().copied().collect())));
    }

    #[rstest]
    #[case::word("a")]
    #[case::open_range("1-")]
    #[case::negative("-1")]
    #[case::backwards("3-2")]
    #[case::blank_part("1,,2")]
    fn other_cpu_lists_are_refused(#[case] text: &str) {
        assert!(list(text).is_err());
    }

    fn texts(cpus: &str, memory: &str, devices: &str) -> Texts {
        Texts {
            cpus: cpus.to_owned(),
            memory: memory.to_owned(),
            devices: devices.to_owned(),
        }
    }

    /// Returns files as a kubelet writes them (kubelet-node.md 11).
    fn full() -> Texts {
        texts(
            r#"{"policyName":"static","defaultCpuSet":"0,3-8","entries":{"u":{"c":"1-2,9-10"}},"checksum":353318124}"#,
            r#"{"policyName":"Static","machineState":{"0":{"numberOfAssignments":1,"memoryMap":{"memory":{"total":64,
                "systemReserved":4,"allocatable":60,"reserved":10,"free":50}},"cells":[0]}},
                "entries":{"u":{"c":[{"numaAffinity":[0],"type":"memory","size":10}]}},"checksum":1}"#,
            r#"{"Data":{"PodDeviceEntries":[{"PodUID":"u","ContainerName":"c","ResourceName":"example.com/a",
                "DeviceIDs":{"0":["x"],"-1":["y"]},"AllocResp":"AA=="}],"RegisteredDevices":{"example.com/a":["x","y"]}},"Checksum":1}"#,
        )
    }

    #[test]
    fn state_files_are_read_as_the_kubelet_writes_them() {
        let state = NodeState::parse(&full()).expect("understood");
        assert_eq!(state.cpus.default_cpu_set, list("0,3-8").expect("a list"));
        assert_eq!(
            state.cpus.entries["u"]["c"],
            list("1-2,9-10").expect("a list")
        );
        let block = &state.memory.entries["u"]["c"][0];
        assert_eq!((block.resource.as_str(), block.size), ("memory", 10));
        assert_eq!(block.numa_affinity, [0]);
        let sums = state.memory.machine_state.as_ref().expect("sums");
        assert_eq!(sums[&0].memory_map["memory"].free, 50);
        let entry = &state.devices[0];
        assert_eq!((entry.pod.as_str(), entry.container.as_str()), ("u", "c"));
        assert_eq!(entry.ids[&0], ["x"]);
        assert_eq!(entry.ids[&-1], ["y"]);
    }

    #[test]
    fn a_node_without_pods_has_files_without_entries() {
        let state = NodeState::parse(&texts(
            r#"{"policyName":"static","defaultCpuSet":"0-47","checksum":1}"#,
            r#"{"policyName":"Static","machineState":{},"checksum":1}"#,
            r#"{"Data":{"PodDeviceEntries":null,"RegisteredDevices":{}},"Checksum":1}"#,
        ))
        .expect("understood");
        assert!(state.cpus.entries.is_empty());
        assert!(state.memory.entries.is_empty());
        assert!(state.devices.is_empty());
    }

    #[test]
    fn a_file_that_is_not_understood_is_named() {
        let error = NodeState::parse(&Texts {
            memory: "{".to_owned(),
            ..full()
        })
        .expect_err("half a file");
        assert!(error.starts_with("memory_manager_state: "), "{error}");
    }
}
