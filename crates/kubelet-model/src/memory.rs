//! The memory manager (kubelet-node.md 7).

use std::collections::BTreeMap;

use topology::mask::{NumaMask, ZoneId};
use topology::request::Qos;

use super::workload::{Amounts, ContainerKind, ContainerRequest, Workload};

mod allocate;
mod hints;
mod release;
mod state;

pub use self::allocate::Error;
pub use self::state::StateMismatch;

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

type Zones = BTreeMap<ZoneId, Zone>;

/// Memory that finished init containers leave: (mask number, type) → bytes.
type Reusable = BTreeMap<(Vec<u8>, String), u64>;

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

    /// Returns whether the policy is `Static`.
    pub fn is_static(&self) -> bool {
        self.is_static
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
}

fn memory_of(requests: &Amounts) -> BTreeMap<String, u64> {
    requests
        .iter()
        .filter(|(name, _)| name.as_str() == "memory" || name.starts_with("hugepages-"))
        .map(|(name, amount)| (name.clone(), u64::try_from(*amount).unwrap_or_default()))
        .collect()
}
