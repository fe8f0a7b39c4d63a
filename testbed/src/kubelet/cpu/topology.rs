//! The machine as the CPU manager sees it (kubelet-node.md 1).

use std::collections::{BTreeMap, BTreeSet};

use fixtures::machines::Machine;

/// A set of CPU ids.
pub type Cpus = BTreeSet<u32>;

/// Where a CPU is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// NUMA zone.
    pub zone: u8,
    /// Socket.
    pub socket: u32,
    /// Core: the lowest id of its CPUs.
    pub core: u32,
    /// Last-level cache that is not a whole zone's, else the socket.
    pub cache: u32,
}

/// All CPUs with their places.
#[derive(Clone, Debug)]
pub struct Topology {
    places: BTreeMap<u32, Place>,
}

/// What CPUs are grouped by.
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
    /// The CPUs of a machine.
    pub fn new(machine: &Machine) -> Self {
        let places = (0..machine.total_cpus())
            .map(|cpu| {
                let zone = machine.zone_of(cpu);
                let core = machine.core_of(cpu);
                let (cache, sharing) = machine.cache_of(core);
                let whole = sharing.len() as u32 >= machine.zones()[zone].cores;
                let socket = machine.socket_of(zone) as u32;
                let place = Place {
                    zone: zone as u8,
                    socket,
                    core: machine.core_cpus(core).first().copied().unwrap_or(cpu),
                    cache: if whole { socket } else { cache },
                };
                (cpu, place)
            })
            .collect();
        Self { places }
    }

    /// Every CPU.
    pub fn all(&self) -> Cpus {
        self.places.keys().copied().collect()
    }

    /// The group of a CPU at a level.
    pub fn group(&self, cpu: u32, level: Level) -> Option<u32> {
        let place = self.places.get(&cpu)?;
        Some(match level {
            Level::Zone => u32::from(place.zone),
            Level::Socket => place.socket,
            Level::Core => place.core,
            Level::Cache => place.cache,
        })
    }

    /// The groups of a level.
    pub fn groups(&self, level: Level) -> BTreeSet<u32> {
        self.places
            .keys()
            .filter_map(|cpu| self.group(*cpu, level))
            .collect()
    }

    /// The CPUs of a group.
    pub fn cpus(&self, level: Level, group: u32) -> Cpus {
        self.members(&self.all(), level, group)
    }

    /// Those CPUs of a set that are in a group.
    pub fn members(&self, set: &Cpus, level: Level, group: u32) -> Cpus {
        set.iter()
            .copied()
            .filter(|cpu| self.group(*cpu, level) == Some(group))
            .collect()
    }

    /// CPUs of a group on the average of the machine, as the kubelet counts.
    pub fn average(&self, level: Level) -> usize {
        self.places.len() / self.groups(level).len().max(1)
    }
}
