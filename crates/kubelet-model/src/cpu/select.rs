//! Selects which CPUs are taken out of a set (kubelet-node.md 6.4, 6.5).

use std::collections::BTreeMap;

use topology::hint::for_each_subset;

use super::Options;
use super::topology::{Cpus, Level, Topology};

/// Why CPUs cannot be taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Shortage {
    /// Fewer CPUs are free than requested.
    #[error(
        "not enough cpus available to satisfy request: requested={requested}, available={available}"
    )]
    Short {
        /// Requested number.
        requested: usize,
        /// Number of free CPUs.
        available: usize,
    },
    /// Enough CPUs are free, but the algorithm does not find them.
    #[error("failed to allocate cpus")]
    Failed,
}

/// State of one selection: the free CPUs, the number still needed, and the CPUs taken.
struct CpuAccumulator<'a> {
    topology: &'a Topology,
    options: &'a Options,
    free: Cpus,
    need: usize,
    taken: Cpus,
}

/// Takes CPUs by the algorithm that the options choose.
pub fn take(
    topology: &Topology,
    options: &Options,
    from: &Cpus,
    count: usize,
) -> Result<Cpus, Shortage> {
    if options.across_zones {
        distributed(topology, options, from, count)
    } else {
        packed(topology, options, from, count, options.by_cache)
    }
}

/// Takes CPUs from as few groups as possible: whole groups first, then those with the fewest free CPUs.
pub fn packed(
    topology: &Topology,
    options: &Options,
    from: &Cpus,
    count: usize,
    by_cache: bool,
) -> Result<Cpus, Shortage> {
    if count == 0 {
        return Ok(Cpus::new());
    }
    if count > from.len() {
        return Err(Shortage::Short {
            requested: count,
            available: from.len(),
        });
    }
    let mut accumulator = CpuAccumulator {
        topology,
        options,
        free: from.clone(),
        need: count,
        taken: Cpus::new(),
    };
    let (first, second) = accumulator.levels();
    accumulator.whole_groups(first, accumulator.upper());
    accumulator.whole_groups(second, accumulator.middle());
    if by_cache {
        accumulator.caches();
    }
    if !options.across_cores {
        accumulator.whole_groups(Level::Core, accumulator.cores());
    }
    accumulator.singles();
    if accumulator.need == 0 {
        Ok(accumulator.taken)
    } else {
        Err(Shortage::Failed)
    }
}

impl CpuAccumulator<'_> {
    fn zones_first(&self) -> bool {
        self.topology.groups(Level::Socket).len() >= self.topology.groups(Level::Zone).len()
    }

    fn levels(&self) -> (Level, Level) {
        if self.zones_first() {
            (Level::Zone, Level::Socket)
        } else {
            (Level::Socket, Level::Zone)
        }
    }

    /// Returns the groups of a level that have CPUs among `within`: those with the fewest free CPUs first, then by ID.
    fn sorted(&self, level: Level, within: &Cpus) -> Vec<u32> {
        let mut groups: Vec<u32> = within
            .iter()
            .filter_map(|cpu| self.topology.group(*cpu, level))
            .collect();
        groups.sort_unstable();
        groups.dedup();
        groups.sort_by_key(|group| {
            (
                self.topology.members(&self.free, level, *group).len(),
                *group,
            )
        });
        groups
    }

    fn below(&self, outer: Level, groups: &[u32], inner: Level) -> Vec<u32> {
        groups
            .iter()
            .flat_map(|group| {
                let within = self.topology.members(&self.free, outer, *group);
                self.sorted(inner, &within)
            })
            .collect()
    }

    fn upper(&self) -> Vec<u32> {
        self.sorted(self.levels().0, &self.free)
    }

    fn zones(&self) -> Vec<u32> {
        if self.zones_first() {
            self.upper()
        } else {
            self.middle()
        }
    }

    fn middle(&self) -> Vec<u32> {
        let (first, second) = self.levels();
        self.below(first, &self.upper(), second)
    }

    fn cores(&self) -> Vec<u32> {
        self.below(self.levels().1, &self.middle(), Level::Core)
    }

    fn is_free(&self, level: Level, group: u32) -> bool {
        let free = self.topology.members(&self.free, level, group).len();
        let whole = match level {
            Level::Zone => self.topology.cpus(level, group).len(),
            Level::Socket | Level::Core | Level::Cache => self.topology.average(level),
        };
        free == whole
    }

    fn take(&mut self, cpus: &Cpus) {
        self.need -= cpus.len().min(self.need);
        self.free.retain(|cpu| !cpus.contains(cpu));
        self.taken.extend(cpus);
    }

    /// Takes completely free groups in this order as long as a whole group is still needed.
    fn whole_groups(&mut self, level: Level, order: Vec<u32>) {
        let whole: Vec<u32> = order
            .into_iter()
            .filter(|group| self.is_free(level, *group))
            .collect();
        for group in whole {
            let cpus = self.topology.cpus(level, group);
            if self.need > 0 && self.need >= cpus.len() {
                self.take(&cpus);
            }
        }
    }

    fn caches(&mut self) {
        let zones = self.zones();
        let order = self.below(Level::Zone, &zones, Level::Cache);
        if self.need >= self.topology.average(Level::Cache) {
            self.whole_groups(Level::Cache, order.clone());
        }
        for cache in order {
            if self.need > 0 {
                self.part_of_cache(cache);
            }
        }
    }

    /// Takes everything that is needed from the first cores of one cache that have free CPUs, or nothing. A partly used core counts as a
    /// whole, so a cache may be skipped although it has enough free CPUs.
    fn part_of_cache(&mut self, cache: u32) {
        let per_core = self.topology.average(Level::Core);
        let free = self.topology.members(&self.free, Level::Cache, cache);
        let cores: Vec<u32> = {
            let mut cores: Vec<u32> = free
                .iter()
                .filter_map(|cpu| self.topology.group(*cpu, Level::Core))
                .collect();
            cores.sort_unstable();
            cores.dedup();
            cores
        };
        let mut cpus: Cpus = cores
            .into_iter()
            .take(self.need.div_ceil(per_core))
            .flat_map(|core| self.topology.members(&free, Level::Core, core))
            .collect();
        if per_core > 1 && !self.need.is_multiple_of(2) && cpus.len() > self.need {
            cpus.pop_last();
        }
        if cpus.len() == self.need {
            self.take(&cpus);
        }
    }

    fn singles(&mut self) {
        let order: Vec<u32> = if self.options.across_cores {
            let sockets = self.sorted(Level::Socket, &self.free);
            sockets
                .iter()
                .flat_map(|socket| self.topology.members(&self.free, Level::Socket, *socket))
                .collect()
        } else {
            self.cores()
                .iter()
                .flat_map(|core| self.topology.members(&self.free, Level::Core, *core))
                .collect()
        };
        for cpu in order {
            if self.need > 0 {
                self.take(&Cpus::from([cpu]));
            }
        }
    }
}

/// A way to spread CPUs over zones.
struct Spread {
    balance: f64,
    zones: Vec<u32>,
    each: usize,
    rest: Vec<u32>,
}

/// Takes equally many CPUs from as few zones as possible, so that the remaining CPUs are balanced.
pub fn distributed(
    topology: &Topology,
    options: &Options,
    from: &Cpus,
    count: usize,
) -> Result<Cpus, Shortage> {
    let group = if options.full_cores {
        topology.average(Level::Core)
    } else {
        1
    };
    if !count.is_multiple_of(group) {
        return packed(topology, options, from, count, false);
    }
    if count == 0 {
        return Ok(Cpus::new());
    }
    if count > from.len() {
        return Err(Shortage::Short {
            requested: count,
            available: from.len(),
        });
    }
    let sorter = CpuAccumulator {
        topology,
        options,
        free: from.clone(),
        need: 0,
        taken: Cpus::new(),
    };
    let order = sorter.zones();
    let free: BTreeMap<u32, usize> = order
        .iter()
        .map(|zone| (*zone, topology.members(from, Level::Zone, *zone).len()))
        .collect();
    let all_zones = topology.groups(Level::Zone).len();
    let per_zone = topology.all().len().div_ceil(group).div_ceil(all_zones);
    let needed = count.div_ceil(group);
    for width in needed.div_ceil(per_zone)..=needed.min(order.len()) {
        let mut best: Option<Spread> = None;
        for_each_subset(&order, width, &mut |zones| {
            if best.as_ref().is_some_and(|best| best.balance == 0.0) {
                return;
            }
            if let Some(spread) = spread(zones, &free, count, group)
                && best
                    .as_ref()
                    .is_none_or(|best| spread.balance < best.balance)
            {
                best = Some(spread);
            }
        });
        if let Some(best) = best {
            return take_spread(topology, options, from, count, group, &best);
        }
    }
    packed(topology, options, from, count, false)
}

/// Returns the best way to take from exactly these zones, if there is one.
fn spread(
    zones: &[u32],
    free: &BTreeMap<u32, usize>,
    count: usize,
    group: usize,
) -> Option<Spread> {
    let each = count / zones.len() / group * group;
    let usable: usize = zones.iter().map(|zone| free[zone] / group * group).sum();
    if usable < count || zones.iter().any(|zone| free[zone] < each) {
        return None;
    }
    let mut after = free.clone();
    for zone in zones {
        after.entry(*zone).and_modify(|left| *left -= each);
    }
    let rest = count - each * zones.len();
    if rest == 0 {
        return Some(Spread {
            balance: deviation(&after),
            zones: zones.to_vec(),
            each,
            rest: Vec::new(),
        });
    }
    let candidates: Vec<u32> = zones
        .iter()
        .copied()
        .filter(|zone| after[zone] >= group)
        .collect();
    let mut best: Option<Spread> = None;
    for width in (1..=candidates.len()).rev() {
        for_each_subset(&candidates, width, &mut |subset| {
            if subset.iter().map(|zone| after[zone]).sum::<usize>() < rest {
                return;
            }
            let Some(balance) = hand_out(subset, after.clone(), rest, group) else {
                return;
            };
            if best.as_ref().is_none_or(|best| balance < best.balance) {
                best = Some(Spread {
                    balance,
                    zones: zones.to_vec(),
                    each,
                    rest: subset.to_vec(),
                });
            }
        });
    }
    best
}

/// Returns the balance after the rest was taken from these zones in turns; none if they do not have enough.
fn hand_out(
    zones: &[u32],
    mut after: BTreeMap<u32, usize>,
    mut rest: usize,
    group: usize,
) -> Option<f64> {
    while rest > 0 {
        let before = rest;
        for zone in zones {
            if let Some(left) = after.get_mut(zone)
                && rest > 0
                && *left >= group
            {
                *left -= group;
                rest -= group;
            }
        }
        if rest == before {
            return None;
        }
    }
    Some(deviation(&after))
}

/// Returns the standard deviation of the free CPUs, rounded as the kubelet does: mean and result to three decimals.
fn deviation(left: &BTreeMap<u32, usize>) -> f64 {
    let round = |value: f64| (value * 1000.0).round() / 1000.0;
    let count = left.len() as f64;
    let mean = round(left.values().map(|value| *value as f64).sum::<f64>() / count);
    let sum: f64 = left
        .values()
        .map(|value| (*value as f64 - mean).powi(2))
        .sum();
    round((sum / count).sqrt())
}

fn take_spread(
    topology: &Topology,
    options: &Options,
    from: &Cpus,
    count: usize,
    group: usize,
    spread: &Spread,
) -> Result<Cpus, Shortage> {
    let mut free = from.clone();
    let mut taken = Cpus::new();
    let mut take_from = |zone: u32, amount: usize, taken: &mut Cpus| -> Result<(), Shortage> {
        let within = topology.members(&free, Level::Zone, zone);
        let cpus = packed(topology, options, &within, amount, false)?;
        free.retain(|cpu| !cpus.contains(cpu));
        taken.extend(cpus);
        Ok(())
    };
    for zone in &spread.zones {
        take_from(*zone, spread.each, &mut taken)?;
    }
    while taken.len() < count {
        let before = taken.len();
        for zone in &spread.rest {
            if taken.len() < count {
                // A zone without a whole group left is skipped.
                match take_from(*zone, group, &mut taken) {
                    Ok(()) | Err(Shortage::Short { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        if taken.len() == before {
            return Err(Shortage::Failed);
        }
    }
    Ok(taken)
}
