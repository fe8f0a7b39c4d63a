//! What is left of the zones while the containers of one pod are placed in order, and what its init containers leave behind.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use super::FreeZone;
use super::rules::Rules;
use crate::mask::ZoneId;
use crate::request::{Container, ContainerKind};
use crate::resource::{CPU, ResourceName, Resources};

/// Whether a zone has enough of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    /// The zone has enough.
    Enough,
    /// The zone has enough, but it is uncertain whether the kubelet considers it.
    Uncertain,
    /// The zone has too little.
    None,
}

/// The zones, and the resources that finished init containers pass on.
#[derive(Clone, Debug)]
pub(super) struct State<'a> {
    /// What is left, including CPUs that finished init containers of this pod hold, because its other containers may reuse them.
    pub(super) left: Cow<'a, [FreeZone]>,
    cpus: Option<CpuReuse>,
    /// Memory and devices that finished init containers hold. They are not part of `left`.
    others: BTreeMap<(ResourceName, ZoneId), i64>,
}

impl<'a> State<'a> {
    pub(super) fn new(zones: &'a [FreeZone]) -> Self {
        Self {
            left: Cow::Borrowed(zones),
            cpus: None,
            others: BTreeMap::new(),
        }
    }

    /// Returns the zone that a resource has to come from, because init containers hold some of it there.
    pub(super) fn tied_zone(&self, name: &ResourceName) -> Option<ZoneId> {
        if name.is_cpu() {
            let cpus = self.cpus.as_ref().filter(|cpus| cpus.most() > 0);
            return cpus.map(|cpus| cpus.zone);
        }
        if name.is_memory_like() {
            return None;
        }
        let held = self.others.iter().filter(|(_, amount)| **amount > 0);
        held.map(|((other, zone), _)| (other, *zone))
            .find(|(other, _)| *other == name)
            .map(|(_, zone)| zone)
    }

    /// Returns the zone that any of these resources has to come from.
    pub(super) fn tied_zone_of(&self, request: &Resources) -> Option<ZoneId> {
        let mut requested = request.iter().filter(|(_, amount)| *amount != 0);
        requested.find_map(|(name, _)| self.tied_zone(name))
    }

    /// Returns the CPUs of the whole node that are certainly free, in thousandths.
    pub(super) fn untouched_cpus(&self) -> i64 {
        let free = self.left.iter().map(|zone| zone.available.amount(CPU));
        free.sum::<i64>() - self.cpus.as_ref().map_or(0, CpuReuse::most)
    }

    /// Returns whether a zone of [`left`](Self::left) has room.
    pub(super) fn room(&self, zone: &FreeZone, name: &ResourceName, wanted: i64) -> Room {
        let mut reusable = 0;
        let mut is_certain = true;
        if name.is_cpu() {
            if let Some(cpus) = self.cpus.as_ref().filter(|cpus| cpus.zone != zone.id) {
                if cpus.least() > 0 {
                    return Room::None;
                }
                is_certain = cpus.most() == 0;
            }
        } else if !self.others.is_empty() {
            if self.tied_zone(name).is_some_and(|tied| tied != zone.id) {
                return Room::None;
            }
            let held = self.others.get(&(name.clone(), zone.id));
            reusable = held.copied().unwrap_or_default();
        }
        let enough = |left: Option<i64>| left.is_some_and(|left| left + reusable >= wanted);
        if !enough(zone.most().get(name.as_str())) {
            Room::None
        } else if is_certain && enough(zone.available.get(name.as_str())) {
            Room::Enough
        } else {
            Room::Uncertain
        }
    }

    /// Records that a container is placed on a zone.
    pub(super) fn take(&mut self, container: &Container, zone: ZoneId, rules: Rules) {
        let keeps = container.kind != ContainerKind::Init;
        // the original filter forgets init containers when they have finished
        if !keeps && !rules.are_exact() {
            return;
        }
        for (name, amount) in rules.held(&container.requests) {
            if amount <= 0 {
                continue;
            }
            if name.is_cpu() {
                self.take_cpus(zone, amount, keeps, rules.packed_cores());
            } else {
                self.take_others(zone, name, amount, keeps);
            }
        }
    }

    fn take_cpus(&mut self, zone: ZoneId, amount: i64, keeps: bool, packed_cores: Option<u16>) {
        if keeps {
            self.reduce(zone, CPU, amount);
        }
        let found = self.left.iter().find(|free| free.id == zone);
        let pool = found
            .and_then(|free| free.most().get(CPU))
            .unwrap_or_default();
        let held = self.cpus.take().filter(|cpus| cpus.zone == zone);
        if held.is_some() || !keeps {
            let held = held.unwrap_or_else(|| CpuReuse::new(zone, packed_cores));
            self.cpus = Some(held.after(amount, !keeps, pool));
        }
    }

    fn take_others(&mut self, zone: ZoneId, name: &ResourceName, amount: i64, keeps: bool) {
        let key = (name.clone(), zone);
        let reusable = self.others.get(&key).copied().unwrap_or_default();
        self.reduce(zone, name.as_str(), amount.saturating_sub(reusable).max(0));
        if keeps {
            if reusable > 0 {
                self.others.insert(key, (reusable - amount).max(0));
            }
        } else {
            self.others.insert(key, reusable.max(amount));
        }
    }

    fn reduce(&mut self, zone: ZoneId, name: &str, amount: i64) {
        if amount <= 0 {
            return;
        }
        let taken = Resources::from_iter([(name, amount)]);
        if let Some(free) = self.left.to_mut().iter_mut().find(|free| free.id == zone) {
            free.available.subtract_listed(&taken);
            if let Some(most) = &mut free.at_most {
                most.subtract_listed(&taken);
            }
        }
    }
}

/// CPUs of one zone that finished init containers hold, in thousandths. The kubelet selects the CPUs, so only bounds are known. Equal
/// requests to the same pool get the same CPUs. Of two requests for whole cores the larger one gets all CPUs of the smaller one, if the
/// kubelet takes them in one order. Other requests may or may not overlap.
#[derive(Clone, Debug)]
pub(super) struct CpuReuse {
    zone: ZoneId,
    /// CPUs of a core, if whole cores are taken in one order.
    core: Option<i64>,
    /// The most that an init container with whole cores took from the current pool.
    cores: i64,
    /// What the other init containers took from the current pool.
    taken: BTreeSet<i64>,
    /// Bounds of what they took before the pool last changed and still hold.
    before: (i64, i64),
    /// CPUs of the zone that are available to the pod's next container.
    pool: i64,
}

impl CpuReuse {
    pub(super) fn new(zone: ZoneId, packed_cores: Option<u16>) -> Self {
        Self {
            zone,
            core: packed_cores.map(|threads| 1000 * i64::from(threads.max(1))),
            cores: 0,
            taken: BTreeSet::new(),
            before: (0, 0),
            pool: 0,
        }
    }

    fn least(&self) -> i64 {
        let largest = self.taken.last().copied().unwrap_or_default();
        largest.max(self.cores).max(self.before.0)
    }

    /// Returns the most that they can hold.
    pub(super) fn most(&self) -> i64 {
        let taken = self.taken.iter().chain([&self.cores]);
        let all = taken.fold(self.before.1, |sum, amount| sum.saturating_add(*amount));
        all.min(self.pool)
    }

    /// Records that a container received `amount` CPUs, after which the pool is `pool`.
    pub(super) fn after(mut self, amount: i64, is_init: bool, pool: i64) -> Self {
        self.pool = pool;
        let is_whole = self.core.is_some_and(|core| amount % core == 0);
        if is_init {
            if is_whole {
                self.cores = self.cores.max(amount);
            } else {
                self.taken.insert(amount);
            }
            return self;
        }
        let least = (self.least() - amount).max(0);
        if is_whole {
            self.cores = (self.cores - amount).max(0);
        } else {
            // an equal request received the same CPUs, any other request may have received any CPUs
            self.taken.remove(&amount);
        }
        self.before = (least, self.most());
        self.cores = 0;
        self.taken.clear();
        self
    }
}
