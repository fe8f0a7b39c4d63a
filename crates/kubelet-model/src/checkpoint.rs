//! State files, byte for byte (kubelet-node.md 11). A kubelet puts a checksum into each: FNV-1a over the text that one of Go's printers
//! produces from the structure, including type names. This module produces the same text.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::device::DeviceEntry;

/// The value is not the state of that manager.
#[derive(Debug, thiserror::Error)]
#[error("not the state of a kubelet's {manager} manager")]
pub struct Error {
    manager: &'static str,
    #[source]
    source: serde_json::Error,
}

/// `cpu_manager_state`.
#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Cpu {
    policy_name: String,
    default_cpu_set: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    entries: BTreeMap<String, BTreeMap<String, String>>,
    #[serde(default)]
    checksum: u32,
}

/// `memory_manager_state`.
#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Memory {
    policy_name: String,
    machine_state: BTreeMap<String, Zone>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    entries: BTreeMap<String, BTreeMap<String, Vec<Block>>>,
    #[serde(default)]
    checksum: u32,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Zone {
    number_of_assignments: u64,
    memory_map: BTreeMap<String, Table>,
    cells: Vec<u64>,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Table {
    total: u64,
    system_reserved: u64,
    allocatable: u64,
    reserved: u64,
    free: u64,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Block {
    numa_affinity: Vec<u64>,
    r#type: String,
    size: u64,
}

/// `device-plugins/kubelet_internal_checkpoint`.
#[derive(Deserialize, Serialize)]
#[serde(rename_all = "PascalCase")]
struct Devices {
    data: DeviceData,
    #[serde(default)]
    checksum: u32,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "PascalCase")]
struct DeviceData {
    /// Null if there are no entries.
    pod_device_entries: Option<Vec<PodDevices>>,
    registered_devices: BTreeMap<String, Vec<String>>,
}

#[derive(Deserialize, Serialize)]
struct PodDevices {
    #[serde(rename = "PodUID")]
    pod: String,
    #[serde(rename = "ContainerName")]
    container: String,
    #[serde(rename = "ResourceName")]
    resource: String,
    #[serde(rename = "DeviceIDs")]
    ids: BTreeMap<String, Vec<String>>,
    /// The plugin's response in Base64.
    #[serde(rename = "AllocResp")]
    response: Option<String>,
}

/// Returns the file `cpu_manager_state` for a state like [`Node::cpu_state`](super::node::Node::cpu_state).
pub fn cpu_manager_state(state: &Value) -> Result<String, Error> {
    let wrong = |source| Error {
        manager: "CPU",
        source,
    };
    let mut file: Cpu = Deserialize::deserialize(state).map_err(wrong)?;
    file.checksum = checksum(&format!(
        "(*state.CPUManagerCheckpoint){{PolicyName:(string){} DefaultCPUSet:(string){} \
         Entries:(map[string]map[string]string){} Checksum:(checksum.Checksum)0}}",
        file.policy_name,
        file.default_cpu_set,
        map(&file.entries, |containers| map(containers, Clone::clone)),
    ));
    serde_json::to_string(&file).map_err(wrong)
}

/// Returns the file `memory_manager_state` for a state like [`Node::memory_state`](super::node::Node::memory_state).
pub fn memory_manager_state(state: &Value) -> Result<String, Error> {
    let wrong = |source| Error {
        manager: "memory",
        source,
    };
    let mut file: Memory = Deserialize::deserialize(state).map_err(wrong)?;
    file.checksum = checksum(&format!(
        "(*state.MemoryManagerCheckpoint){{PolicyName:(string){} MachineState:(state.NUMANodeMap){} \
         Entries:(state.ContainerMemoryAssignments){} Checksum:(checksum.Checksum)0}}",
        file.policy_name,
        map(&by_number(&file.machine_state), |zone| zone.show()),
        map(&file.entries, |containers| {
            map(containers, |blocks| list(blocks.iter().map(Block::show)))
        }),
    ));
    serde_json::to_string(&file).map_err(wrong)
}

impl Zone {
    fn show(&self) -> String {
        let tables = map(&self.memory_map, |table| {
            format!(
                "<*>{{TotalMemSize:(uint64){} SystemReserved:(uint64){} Allocatable:(uint64){} Reserved:(uint64){} \
                 Free:(uint64){}}}",
                table.total, table.system_reserved, table.allocatable, table.reserved, table.free
            )
        });
        format!(
            "<*>{{NumberOfAssignments:(int){} MemoryMap:(map[v1.ResourceName]*state.MemoryTable){tables} Cells:([]int){}}}",
            self.number_of_assignments,
            list(self.cells.iter()),
        )
    }
}

impl Block {
    fn show(&self) -> String {
        format!(
            "{{NUMAAffinity:([]int){} Type:(v1.ResourceName){} Size:(uint64){}}}",
            list(self.numa_affinity.iter()),
            self.r#type,
            self.size
        )
    }
}

/// Returns the device manager's checkpoint; `response` returns the plugin's answer for an entry in wire format. Where the kubelet's order
/// is unspecified, the entries are sorted.
pub fn device_checkpoint(
    entries: &[DeviceEntry],
    response: impl Fn(&DeviceEntry) -> Vec<u8>,
    registered: &BTreeMap<String, Vec<String>>,
) -> Result<String, Error> {
    let entries: Vec<PodDevices> = entries
        .iter()
        .map(|entry| PodDevices {
            pod: entry.pod.clone(),
            container: entry.container.clone(),
            resource: entry.resource.clone(),
            ids: entry
                .ids
                .iter()
                .map(|(zone, ids)| (zone.to_string(), ids.clone()))
                .collect(),
            response: Some(STANDARD.encode(response(entry))),
        })
        .collect();
    render_devices(DeviceData {
        pod_device_entries: Some(entries).filter(|entries| !entries.is_empty()),
        registered_devices: registered.clone(),
    })
}

/// Returns the file with its correct checksum, whatever checksum it contains.
pub fn device_checkpoint_of(file: &Value) -> Result<String, Error> {
    let file = Devices::deserialize(file).map_err(|source| Error {
        manager: "device",
        source,
    })?;
    render_devices(file.data)
}

fn render_devices(data: DeviceData) -> Result<String, Error> {
    let entries = data.pod_device_entries.as_ref();
    let entries = entries.map_or_else(
        || "<nil>".to_owned(),
        |entries| list(entries.iter().map(PodDevices::show)),
    );
    let checksum = checksum(&format!(
        "(checkpoint.checkpointData){{PodDeviceEntries:([]checkpoint.PodDevicesEntry){entries} \
         RegisteredDevices:(map[string][]string){}}}",
        map(&data.registered_devices, |ids| list(ids.iter())),
    ));
    serde_json::to_string(&Devices { data, checksum }).map_err(|source| Error {
        manager: "device",
        source,
    })
}

impl PodDevices {
    fn show(&self) -> String {
        let response = self.response.as_ref();
        let response = response.map_or_else(
            || "<nil>".to_owned(),
            |text| list(STANDARD.decode(text).unwrap_or_default().iter()),
        );
        format!(
            "{{PodUID:(string){} ContainerName:(string){} ResourceName:(string){} DeviceIDs:(checkpoint.DevicesPerNUMA){} \
             AllocResp:([]uint8){response}}}",
            self.pod,
            self.container,
            self.resource,
            map(&by_number(&self.ids), |ids| list(ids.iter())),
        )
    }
}

/// Sorts keys as numbers, as Go's text has them; JSON sorts them as text.
fn by_number<V>(entries: &BTreeMap<String, V>) -> BTreeMap<i64, &V> {
    entries
        .iter()
        .map(|(key, value)| (key.parse().unwrap_or_default(), value))
        .collect()
}

fn map<K: std::fmt::Display, V>(entries: &BTreeMap<K, V>, show: impl Fn(&V) -> String) -> String {
    let entries = entries
        .iter()
        .map(|(key, value)| format!("{key}:{}", show(value)));
    format!("map{}", list(entries))
}

fn list(items: impl Iterator<Item = impl std::fmt::Display>) -> String {
    let items: Vec<String> = items.map(|item| item.to_string()).collect();
    format!("[{}]", items.join(" "))
}

/// Computes 32-bit FNV-1a.
fn checksum(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash: u32, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    })
}

#[cfg(test)]
mod tests {
    mod fuzz {
        use serde_json::{Value, json};

        use super::super::*;

        /// Changes a file and writes it. What is written must be written alike when it is read again, or its checksum would be wrong.
        fn no_file_stops_the_writer(seed: &Value, write: impl Fn(&Value) -> Result<String, Error>) {
            ::fuzz::run(file!(), |input| {
                let mut changed = seed.clone();
                ::fuzz::mutate::document(&mut changed, input)?;
                if let Ok(text) = write(&changed) {
                    let read = serde_json::from_str(&text).expect("JSON");
                    assert_eq!(write(&read).expect("a state"), text, "{changed}");
                }
                Ok(())
            });
        }

        #[test]
        fn no_state_of_a_cpu_manager_stops_its_writer() {
            let seed = json!({
                "policyName": "static", "defaultCpuSet": "0,4-7",
                "entries": {"uid": {"app": "1-3", "side": "8"}}, "checksum": 7,
            });
            no_file_stops_the_writer(&seed, cpu_manager_state);
        }

        #[test]
        fn no_state_of_a_memory_manager_stops_its_writer() {
            let table = json!({"total": 8, "systemReserved": 1, "allocatable": 7, "reserved": 2, "free": 5});
            let zone = json!({"numberOfAssignments": 1, "memoryMap": {"memory": table, "hugepages-1Gi": table}, "cells": [0, 1]});
            let seed = json!({
                "policyName": "Static", "machineState": {"0": zone, "1": zone},
                "entries": {"uid": {"app": [{"numaAffinity": [0], "type": "memory", "size": 2}]}}, "checksum": 7,
            });
            no_file_stops_the_writer(&seed, memory_manager_state);
        }

        #[test]
        fn no_state_of_a_device_manager_stops_its_writer() {
            let entry = json!({
                "PodUID": "uid", "ContainerName": "app", "ResourceName": "vendor.example/device",
                "DeviceIDs": {"0": ["d0", "d1"], "-1": ["d2"]}, "AllocResp": "CgA=",
            });
            let seed = json!({
                "Data": {"PodDeviceEntries": [entry], "RegisteredDevices": {"vendor.example/device": ["d0", "d1", "d2"]}},
                "Checksum": 7,
            });
            no_file_stops_the_writer(&seed, device_checkpoint_of);
        }
    }
}
