//! The machine as the CPU manager sees it (kubelet-node.md 1).

use std::collections::{BTreeMap, BTreeSet};

use fixtures::machines::Machine;

/// A set of CPU IDs.
pub type Cpus = BTreeSet<u32>;

/// The location of a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuLocation {
    /// NUMA zone.
    pub zone: u8,
    /// Socket.
    pub socket: u32,
    /// Core: the lowest ID of its CPUs.
    pub core: u32,
    /// Last-level cache; the socket if the cache covers a whole zone.
    pub cache: u32,
}

/// All CPUs with their locations.
#[derive(Clone, Debug)]
pub struct Topology {
    locations: BTreeMap<u32, CpuLocation>,
}

/// A level by which CPUs are grouped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// NUMA zone.
    Zone,
    /// Socket.
    Socket,
    /// Core.
    Core,
    /// Last-level cache.
    Cache,
}

impl Topology {
    /// Creates the topology of a machine.
    pub fn new(machine: &Machine) -> Self {
        let locations = (0..machine.total_cpus())
            .map(|cpu| {
                let zone = machine.zone_of(cpu);
                let core = machine.core_of(cpu);
                let (cache, sharing) = machine.cache_of(core);
                let whole = sharing.len() as u32 >= machine.zones()[zone].cores;
                let socket = machine.socket_of(zone) as u32;
                let location = CpuLocation {
                    zone: zone as u8,
                    socket,
                    core: machine.core_cpus(core).first().copied().unwrap_or(cpu),
                    cache: if whole { socket } else { cache },
                };
                (cpu, location)
            })
            .collect();
        Self { locations }
    }

    /// Returns every CPU.
    pub fn all(&self) -> Cpus {
        self.locations.keys().copied().collect()
    }

    /// Returns the group of a CPU at a level.
    pub fn group(&self, cpu: u32, level: Level) -> Option<u32> {
        let location = self.locations.get(&cpu)?;
        Some(match level {
            Level::Zone => u32::from(location.zone),
            Level::Socket => location.socket,
            Level::Core => location.core,
            Level::Cache => location.cache,
        })
    }

    /// Returns the groups of a level.
    pub fn groups(&self, level: Level) -> BTreeSet<u32> {
        self.locations
            .keys()
            .filter_map(|cpu| self.group(*cpu, level))
            .collect()
    }

    /// Returns the CPUs of a group.
    pub fn cpus(&self, level: Level, group: u32) -> Cpus {
        self.members(&self.all(), level, group)
    }

    /// Returns those CPUs of a set that are in a group.
    pub fn members(&self, set: &Cpus, level: Level, group: u32) -> Cpus {
        set.iter()
            .copied()
            .filter(|cpu| self.group(*cpu, level) == Some(group))
            .collect()
    }

    /// Returns the machine's average number of CPUs in a group, computed as the kubelet does.
    pub fn average(&self, level: Level) -> usize {
        self.locations.len() / self.groups(level).len().max(1)
    }
}
