//! The memory manager (kubelet-node.md 7).

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use topology::hint::{Hint, ProviderHints, is_narrower, masks};
use topology::mask::{NumaMask, ZoneId};
use topology::request::Qos;

use super::workload::{Amounts, ContainerKind, ContainerRequest, Workload};

mod release;

/// Amounts in bytes of one type of memory in one zone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Table {
    /// Total of the hardware.
    pub total: u64,
    /// Reserved for the system.
    pub system: u64,
    /// Available to containers, whether held or not.
    pub allocatable: u64,
    /// Held by containers.
    pub reserved: u64,
    /// Not held.
    pub free: u64,
}

/// The state of one zone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Zone {
    /// Number of blocks that use it.
    pub assignments: usize,
    /// The group of zones that those blocks use.
    pub cells: NumaMask,
    /// Amounts by type.
    pub tables: BTreeMap<String, Table>,
}

/// A block of memory that a container holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// The zones that it may come from.
    pub affinity: NumaMask,
    /// Type.
    pub kind: String,
    /// Bytes.
    pub size: u64,
}

/// Why a container gets no memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// No placement exists.
    #[error(
        "[memorymanager] failed to get the default NUMA affinity, no NUMA nodes with enough memory is available"
    )]
    NoDefault,
    /// The default placement is not preferred, although the hint is.
    #[error("[memorymanager] failed to find the default preferred hint")]
    NoPreferredDefault,
    /// The placement is too small, and no wider one fits.
    #[error("[memorymanager] failed to find NUMA nodes to extend the current topology hint")]
    NoExtension,
    /// The wider placement is not preferred, although the hint is.
    #[error("[memorymanager] failed to find the extended preferred hint")]
    NoPreferredExtension,
    /// The placement would mix single and grouped zones.
    #[error("[memorymanager] preferred hint violates NUMA node allocation")]
    Violation,
}

type Zones = BTreeMap<ZoneId, Zone>;

/// Memory that finished init containers leave: (mask number, type) → bytes.
type Reusable = BTreeMap<(Vec<u8>, String), u64>;

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

/// The memory manager with its state.
#[derive(Clone, Debug)]
pub struct Manager {
    is_static: bool,
    zones: Zones,
    /// The state at start, which `GetAllocatableResources` reports.
    initial: Zones,
    entries: BTreeMap<String, BTreeMap<String, Vec<Block>>>,
    /// The UID of one pod and its reusable memory.
    reuse: Option<(String, Reusable)>,
    release_order: release::ReleaseOrder,
}

fn key(mask: NumaMask) -> Vec<u8> {
    mask.iter().map(ZoneId::get).collect()
}

impl Manager {
    /// Creates the manager of an empty node; `machine` maps zone → type → (total, reserved for the system, allocatable).
    pub fn new(
        is_static: bool,
        machine: BTreeMap<ZoneId, BTreeMap<String, (u64, u64, u64)>>,
    ) -> Self {
        let zones: Zones = machine
            .into_iter()
            .map(|(id, tables)| {
                let tables = tables
                    .into_iter()
                    .map(|(kind, (total, system, allocatable))| {
                        let table = Table {
                            total,
                            system,
                            allocatable,
                            reserved: 0,
                            free: allocatable,
                        };
                        (kind, table)
                    })
                    .collect();
                let zone = Zone {
                    assignments: 0,
                    cells: [id].into_iter().collect(),
                    tables,
                };
                (id, zone)
            })
            .collect();
        Self {
            is_static,
            initial: zones.clone(),
            zones,
            entries: BTreeMap::new(),
            reuse: None,
            release_order: release::ReleaseOrder::default(),
        }
    }

    /// Returns (type, bytes, zone) of all memory that containers can have.
    pub fn allocatable(&self) -> Vec<(String, u64, u8)> {
        if !self.is_static {
            return Vec::new();
        }
        self.initial
            .iter()
            .flat_map(|(id, zone)| {
                zone.tables
                    .iter()
                    .filter(|(_, table)| table.allocatable > 0)
                    .map(|(kind, table)| (kind.clone(), table.allocatable, id.get()))
            })
            .collect()
    }

    /// Returns the blocks that a container holds.
    pub fn blocks(&self, pod: &str, container: &str) -> &[Block] {
        let blocks = self.entries.get(pod).and_then(|pod| pod.get(container));
        blocks.map_or(&[], Vec::as_slice)
    }

    fn request(
        &self,
        pod: &Workload,
        container: &ContainerRequest,
    ) -> Option<BTreeMap<String, u64>> {
        (self.is_static && pod.qos == Qos::Guaranteed && !pod.has_pod_level_resources)
            .then(|| memory_of(&container.requests))
    }

    /// Returns the hints for one container.
    pub fn hints(&self, pod: &Workload, container: &ContainerRequest) -> ProviderHints {
        let Some(request) = self.request(pod, container) else {
            return ProviderHints::new();
        };
        let blocks = self.blocks(&pod.uid, &container.name);
        if blocks.is_empty() {
            self.provider_hints(&pod.uid, &request)
        } else {
            regenerated(blocks, &request)
        }
    }

    /// Returns the hints for a whole pod.
    pub fn pod_hints(&self, pod: &Workload) -> ProviderHints {
        if !self.is_static || pod.qos != Qos::Guaranteed || pod.has_pod_level_resources {
            return ProviderHints::new();
        }
        let wanted: BTreeSet<String> = pod
            .containers
            .iter()
            .filter(|container| container.kind == ContainerKind::App)
            .flat_map(|container| memory_of(&container.requests).into_keys())
            .collect();
        let total = pod.peak(|container| {
            memory_of(&container.requests)
                .into_iter()
                .map(|(kind, size)| (kind, size as i64))
                .collect()
        });
        let request: BTreeMap<String, u64> = total
            .into_iter()
            .filter(|(kind, _)| wanted.contains(kind))
            .map(|(kind, size)| (kind, size as u64))
            .collect();
        for container in &pod.containers {
            let blocks = self.blocks(&pod.uid, &container.name);
            if !blocks.is_empty() {
                return regenerated(blocks, &request);
            }
        }
        self.provider_hints(&pod.uid, &request)
    }

    fn provider_hints(&self, pod: &str, request: &BTreeMap<String, u64>) -> ProviderHints {
        let hints = self.generate(pod, request);
        if hints.is_empty() {
            return ProviderHints::new();
        }
        request
            .keys()
            .map(|kind| (kind.clone(), Some(hints.clone())))
            .collect()
    }

    fn sum(&self, mask: NumaMask, kind: &str, field: fn(&Table) -> u64) -> u64 {
        mask.iter()
            .filter_map(|zone| self.zones.get(&zone)?.tables.get(kind))
            .map(field)
            .sum()
    }

    fn reusable(&self, pod: &str, mask: NumaMask, kind: &str) -> u64 {
        match &self.reuse {
            Some((owner, reuse)) if owner == pod => reuse
                .get(&(key(mask), kind.to_owned()))
                .copied()
                .unwrap_or_default(),
            _ => 0,
        }
    }

    /// Returns whether a mask of several zones would share a zone with other placements.
    fn violates(&self, mask: NumaMask) -> bool {
        mask.len() > 1
            && mask.iter().any(|id| {
                self.zones.get(&id).is_some_and(|zone| {
                    zone.assignments > 0 && (zone.cells.len() == 1 || zone.cells != mask)
                })
            })
    }

    fn generate(&self, pod: &str, request: &BTreeMap<String, u64>) -> Vec<Hint> {
        let ids: Vec<ZoneId> = self.zones.keys().copied().collect();
        let mut fewest = ids.len() as u32;
        let mut found = Vec::new();
        for mask in masks(&ids) {
            let large = request
                .iter()
                .all(|(kind, size)| self.sum(mask, kind, |table| table.allocatable) >= *size);
            if !large {
                continue;
            }
            fewest = fewest.min(mask.len());
            let grouped = mask.len() == 1
                && mask
                    .lowest()
                    .and_then(|id| self.zones.get(&id))
                    .is_some_and(|zone| zone.cells.len() > 1);
            if grouped || self.violates(mask) {
                continue;
            }
            let free = request.iter().all(|(kind, size)| {
                self.sum(mask, kind, |table| table.free) + self.reusable(pod, mask, kind) >= *size
            });
            if free {
                found.push(mask);
            }
        }
        found
            .into_iter()
            .map(|mask| Hint::of(mask, mask.len() == fewest))
            .collect()
    }

    /// Allocates the memory of a container.
    pub fn allocate(
        &mut self,
        pod: &Workload,
        container: &ContainerRequest,
        stored: Hint,
    ) -> Result<(), Error> {
        let Some(request) = self.request(pod, container) else {
            return Ok(());
        };
        let held = self.blocks(&pod.uid, &container.name).to_vec();
        if !held.is_empty() {
            self.update_reuse(&pod.uid, container, &held);
            return Ok(());
        }
        let mask = self.placement(&pod.uid, &request, stored)?;
        let blocks: Vec<Block> = request
            .iter()
            .map(|(kind, size)| Block {
                affinity: mask,
                kind: kind.clone(),
                size: *size,
            })
            .collect();
        for block in &blocks {
            let reusable = self.reusable(&pod.uid, mask, &block.kind);
            self.occupy(mask, &block.kind, block.size.saturating_sub(reusable));
        }
        self.update_reuse(&pod.uid, container, &blocks);
        self.shrink_init_blocks(pod, container, &blocks);
        self.entries
            .entry(pod.uid.clone())
            .or_default()
            .insert(container.name.clone(), blocks);
        Ok(())
    }

    fn placement(
        &self,
        pod: &str,
        request: &BTreeMap<String, u64>,
        stored: Hint,
    ) -> Result<NumaMask, Error> {
        let (mut mask, preferred) = if let Some(mask) = stored.affinity {
            (mask, stored.preferred)
        } else {
            let hint = best(self.generate(pod, request)).ok_or(Error::NoDefault)?;
            if stored.preferred && !hint.preferred {
                return Err(Error::NoPreferredDefault);
            }
            (hint.affinity.unwrap_or_default(), hint.preferred)
        };
        let enough = request
            .iter()
            .all(|(kind, size)| self.sum(mask, kind, |table| table.free) >= *size);
        if !enough {
            let mut wider = self.generate(pod, request);
            wider.retain(|hint| {
                hint.affinity
                    .is_some_and(|affinity| affinity & mask == mask)
            });
            let hint = best(wider).ok_or(Error::NoExtension)?;
            if preferred && !hint.preferred {
                return Err(Error::NoPreferredExtension);
            }
            mask = hint.affinity.unwrap_or_default();
        }
        if self.violates(mask) {
            return Err(Error::Violation);
        }
        Ok(mask)
    }

    fn occupy(&mut self, mask: NumaMask, kind: &str, mut amount: u64) {
        for id in mask.iter() {
            let Some(zone) = self.zones.get_mut(&id) else {
                continue;
            };
            zone.assignments += 1;
            zone.cells = mask;
            if let Some(table) = zone.tables.get_mut(kind) {
                let part = table.free.min(amount);
                table.free -= part;
                table.reserved += part;
                amount -= part;
            }
        }
    }

    fn update_reuse(&mut self, pod: &str, container: &ContainerRequest, blocks: &[Block]) {
        let mut reuse = match self.reuse.take() {
            Some((owner, reuse)) if owner == pod => reuse,
            _ => Reusable::new(),
        };
        for block in blocks {
            let place = (key(block.affinity), block.kind.clone());
            let held = reuse.entry(place).or_default();
            *held = if container.kind == ContainerKind::Init {
                block.size.max(*held)
            } else {
                held.saturating_sub(block.size)
            };
        }
        self.reuse = Some((pod.to_owned(), reuse));
    }

    /// Takes what a container reuses away from the blocks of earlier init containers.
    fn shrink_init_blocks(
        &mut self,
        pod: &Workload,
        container: &ContainerRequest,
        blocks: &[Block],
    ) {
        let Some(containers) = self.entries.get_mut(&pod.uid) else {
            return;
        };
        for block in blocks {
            let mut size = block.size;
            for earlier in &pod.containers {
                if earlier.name == container.name {
                    break;
                }
                if earlier.kind != ContainerKind::Init {
                    continue;
                }
                for held in containers.get_mut(&earlier.name).into_iter().flatten() {
                    if held.kind == block.kind && held.affinity == block.affinity && size > 0 {
                        let part = held.size.min(size);
                        held.size -= part;
                        size -= part;
                    }
                }
            }
        }
    }

    /// Frees the memory of the init containers before a container that has started.
    pub fn started(&mut self, pod: &Workload, container: &str) {
        for earlier in &pod.containers {
            if earlier.name == container {
                break;
            }
            if earlier.kind == ContainerKind::Init {
                self.remove(&pod.uid, &earlier.name);
            }
        }
    }

    fn remove(&mut self, pod: &str, container: &str) {
        let Some(containers) = self.entries.get_mut(pod) else {
            return;
        };
        let blocks = containers.remove(container).unwrap_or_default();
        if containers.is_empty() {
            self.entries.remove(pod);
        }
        release::free_blocks(&mut self.zones, &blocks);
    }

    /// Restarts the kubelet: only what is in the state file survives.
    pub fn restart(&mut self) {
        self.reuse = None;
    }

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

    /// Returns `memory_manager_state` without its checksum ([`checkpoint`](super::checkpoint) makes the file).
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

fn memory_of(requests: &Amounts) -> BTreeMap<String, u64> {
    requests
        .iter()
        .filter(|(name, _)| name.as_str() == "memory" || name.starts_with("hugepages-"))
        .map(|(name, amount)| (name.clone(), u64::try_from(*amount).unwrap_or_default()))
        .collect()
}

/// Returns the best hint: preferred before not preferred, then the narrowest.
fn best(hints: Vec<Hint>) -> Option<Hint> {
    let mut best: Option<Hint> = None;
    for hint in hints {
        let better = best.is_none_or(|held| match (held.preferred, hint.preferred) {
            (true, false) => false,
            (false, true) => true,
            _ => is_narrower(
                hint.affinity.unwrap_or_default(),
                held.affinity.unwrap_or_default(),
            ),
        });
        if better {
            best = Some(hint);
        }
    }
    best
}

/// Returns the hint of the blocks that a container already holds, if they match the request.
fn regenerated(blocks: &[Block], request: &BTreeMap<String, u64>) -> ProviderHints {
    let same = blocks.len() == request.len()
        && blocks
            .iter()
            .all(|block| request.get(&block.kind) == Some(&block.size));
    if !same {
        return ProviderHints::new();
    }
    blocks
        .iter()
        .map(|block| {
            let hint = Hint::of(block.affinity, true);
            (block.kind.clone(), Some(vec![hint]))
        })
        .collect()
}
