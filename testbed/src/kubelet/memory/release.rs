//! What the memory manager takes back from pods that are gone, and in which order (kubelet-node.md 7.4).
//!
//! The kubelet keeps its entries in hash tables and forgets them as it walks these. As a rule the order does not matter. It does where
//! blocks of different groups of zones have one in common, as a Topology Manager that is only best-effort lets happen: the zone gives what
//! it holds to the block that goes first, and what is missing for another stays reserved in the rest of its group, for ever.

use std::collections::BTreeSet;

use topology::mask::NumaMask;

use super::{Block, Manager, Zones};

/// Pods, or containers of a pod, whose orders are all tried at most: there are 2^n sets of them.
const MOST: usize = 12;

/// Which of the states to choose that different orders lead to.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Favoured {
    nth: Option<usize>,
    taken: bool,
}

impl Manager {
    /// Of the different states that orders of forgetting pods lead to, the next release takes the one with this number, if there are so
    /// many. Without it, pods are forgotten by UID and containers by name.
    pub fn favour_release(&mut self, nth: usize) {
        self.favoured = Favoured {
            nth: Some(nth),
            taken: false,
        };
    }

    /// Whether there was a release with so many different states.
    pub fn took_favoured_release(&self) -> bool {
        self.favoured.taken
    }

    /// Drops the entries of pods that are not active.
    pub fn remove_stale(&mut self, active: &BTreeSet<String>) {
        let stale: Vec<String> = self.entries.keys().cloned().collect();
        let stale = stale.into_iter().filter(|pod| !active.contains(pod));
        let gone: Vec<Vec<Vec<Block>>> = stale
            .filter_map(|pod| self.entries.remove(&pod))
            .map(|containers| containers.into_values().collect())
            .collect();
        if let Some(state) = self.favoured_state(&gone) {
            self.zones = state;
            self.favoured = Favoured {
                nth: None,
                taken: true,
            };
            return;
        }
        for container in gone.iter().flatten() {
            blocks(&mut self.zones, container);
        }
    }

    fn favoured_state(&self, gone: &[Vec<Vec<Block>>]) -> Option<Zones> {
        let nth = self.favoured.nth?;
        let too_many = gone.len() > MOST || gone.iter().any(|pod| pod.len() > MOST);
        if too_many || !depends_on_order(gone) {
            return None;
        }
        let states = in_every_order(&self.zones, gone, |zones, pod: &Vec<Vec<Block>>| {
            in_every_order(zones, pod, |zones, container: &Vec<Block>| {
                let mut zones = zones.clone();
                blocks(&mut zones, container);
                BTreeSet::from([zones])
            })
        });
        states.into_iter().nth(nth)
    }
}

/// Whether groups of zones overlap that are not the same.
fn depends_on_order(gone: &[Vec<Vec<Block>>]) -> bool {
    let groups = gone.iter().flatten().flatten().map(|block| block.affinity);
    let groups: Vec<NumaMask> = groups.collect();
    groups.iter().any(|group| {
        let mut others = groups.iter();
        others.any(|other| other != group && !(*other & *group).is_empty())
    })
}

/// All states to which taking every item leads, each once, whatever the order.
fn in_every_order<T>(
    zones: &Zones,
    items: &[T],
    take: impl Fn(&Zones, &T) -> BTreeSet<Zones>,
) -> BTreeSet<Zones> {
    // By the set of what has been taken, as bits.
    let mut reached = vec![BTreeSet::new(); 1 << items.len()];
    reached[0].insert(zones.clone());
    for taken in 0..reached.len() {
        let states = std::mem::take(&mut reached[taken]);
        for (index, item) in items.iter().enumerate() {
            if taken & (1 << index) == 0 {
                let next = states.iter().flat_map(|zones| take(zones, item));
                reached[taken | (1 << index)].extend(next);
            }
        }
        if taken + 1 == reached.len() {
            return states;
        }
    }
    BTreeSet::new()
}

/// The zones get back what a container held.
pub(super) fn blocks(zones: &mut Zones, blocks: &[Block]) {
    for block in blocks {
        let mut left = block.size;
        for id in block.affinity.iter() {
            let Some(zone) = zones.get_mut(&id) else {
                continue;
            };
            zone.assignments = zone.assignments.saturating_sub(1);
            if zone.assignments == 0 {
                zone.cells = [id].into_iter().collect();
            }
            if let Some(table) = zone.tables.get_mut(&block.kind) {
                let part = table.reserved.min(left);
                table.reserved -= part;
                table.free += part;
                left -= part;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use topology::mask::ZoneId;

    use super::*;

    fn zone(id: u64) -> ZoneId {
        ZoneId::new(id).unwrap()
    }

    fn block(zones: &[u64], size: u64) -> Vec<Block> {
        vec![Block {
            affinity: zones.iter().map(|id| zone(*id)).collect(),
            kind: "memory".to_owned(),
            size,
        }]
    }

    /// 100 bytes in each of two zones; a pod has 30 in the first of them, one that came later 120 in `wide`.
    fn holding(wide: &[u64]) -> Manager {
        let tables = || BTreeMap::from([("memory".to_owned(), (100, 0, 100))]);
        let machine = (0..3).map(|id| (zone(id), tables())).collect();
        let mut manager = Manager::new(true, machine);
        for (pod, zones, size) in [("narrow", &[0][..], 30), ("wide", wide, 120)] {
            let blocks = block(zones, size);
            manager.occupy(blocks[0].affinity, "memory", size);
            let containers = BTreeMap::from([("c".to_owned(), blocks)]);
            manager.entries.insert(pod.to_owned(), containers);
        }
        manager
    }

    /// What is reserved in each zone after all pods were forgotten, in the favoured order if there is one.
    fn left(mut manager: Manager, nth: Option<usize>) -> (Vec<u64>, bool) {
        if let Some(nth) = nth {
            manager.favour_release(nth);
        }
        manager.remove_stale(&BTreeSet::new());
        let tables = manager.zones.values().flat_map(|zone| zone.tables.values());
        let reserved = tables.map(|table| table.reserved).collect();
        (reserved, manager.took_favoured_release())
    }

    #[test]
    fn memory_of_mixed_groups_stays_reserved_in_some_orders() {
        let mixed = holding(&[0, 1]);
        assert_eq!(left(mixed.clone(), Some(0)), (vec![0, 0, 0], true));
        assert_eq!(left(mixed.clone(), Some(1)), (vec![0, 30, 0], true));
        assert_eq!(
            left(mixed.clone(), Some(2)),
            (vec![0, 0, 0], false),
            "no more"
        );
        assert_eq!(left(mixed, None), (vec![0, 0, 0], false));
    }

    #[test]
    fn groups_that_share_no_zone_leave_no_choice() {
        assert_eq!(left(holding(&[1, 2]), Some(0)), (vec![0, 0, 0], false));
    }
}
