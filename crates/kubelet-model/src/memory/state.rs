//! The memory manager's state file: how it is written, and when a kubelet with other settings takes it over.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use topology::mask::{NumaMask, ZoneId};

use super::{Block, Manager, key};

/// Why a kubelet does not start with the memory state that it finds, in the kubelet's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StateMismatch {
    /// It was written under another policy.
    #[error(
        "could not restore state from checkpoint: [memorymanager] configured policy \"{configured}\" differs from state checkpoint policy \"{found}\", please drain this node and delete the memory manager checkpoint file \"/var/lib/kubelet/memory_manager_state\" before restarting Kubelet"
    )]
    Policy {
        /// Policy of the settings.
        configured: &'static str,
        /// Policy in the file.
        found: &'static str,
    },
    /// It describes other memory, or other reservations.
    #[error("[memorymanager] the expected machine state is different from the real one")]
    Machine,
}

fn policy(is_static: bool) -> &'static str {
    if is_static { "Static" } else { "None" }
}

impl Manager {
    /// Takes over the state file of a kubelet with other settings, or returns why the kubelet ends instead (kubelet-node.md 11).
    pub fn restore(&mut self, before: &Self) -> Result<(), StateMismatch> {
        if self.is_static != before.is_static {
            return Err(StateMismatch::Policy {
                configured: policy(self.is_static),
                found: policy(before.is_static),
            });
        }
        let sizes = |manager: &Self| -> Vec<(ZoneId, String, [u64; 3])> {
            let zones = manager.zones.iter();
            let tables = zones.flat_map(|(id, zone)| {
                let tables = zone.tables.iter();
                tables.map(|(kind, table)| {
                    let sizes = [table.total, table.system, table.allocatable];
                    (*id, kind.clone(), sizes)
                })
            });
            tables.collect()
        };
        if self.is_static && sizes(self) != sizes(before) {
            return Err(StateMismatch::Machine);
        }
        self.zones.clone_from(&before.zones);
        self.entries.clone_from(&before.entries);
        Ok(())
    }

    /// Returns `memory_manager_state` without its checksum ([`checkpoint`](crate::checkpoint) makes the file).
    pub fn state(&self) -> Value {
        if !self.is_static {
            return json!({ "policyName": "None", "machineState": {} });
        }
        let ids = |mask: NumaMask| key(mask);
        let zones: serde_json::Map<String, Value> = self
            .zones
            .iter()
            .map(|(id, zone)| {
                let tables: serde_json::Map<String, Value> = zone
                    .tables
                    .iter()
                    .map(|(kind, table)| {
                        let fields = json!({
                            "total": table.total,
                            "systemReserved": table.system,
                            "allocatable": table.allocatable,
                            "reserved": table.reserved,
                            "free": table.free,
                        });
                        (kind.clone(), fields)
                    })
                    .collect();
                let fields = json!({
                    "numberOfAssignments": zone.assignments,
                    "memoryMap": tables,
                    "cells": ids(zone.cells),
                });
                (id.to_string(), fields)
            })
            .collect();
        let mut state = json!({ "policyName": "Static", "machineState": zones });
        if !self.entries.is_empty() {
            let block = |block: &Block| json!({ "numaAffinity": ids(block.affinity), "type": block.kind, "size": block.size });
            let entries: BTreeMap<&String, BTreeMap<&String, Vec<Value>>> = self
                .entries
                .iter()
                .map(|(pod, containers)| {
                    let containers = containers
                        .iter()
                        .map(|(name, blocks)| (name, blocks.iter().map(block).collect()))
                        .collect();
                    (pod, containers)
                })
                .collect();
            state["entries"] = json!(entries);
        }
        state
    }
}
