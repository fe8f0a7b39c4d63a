//! What the memory manager takes back from pods that are not active any more, and in which order (kubelet-node.md 7.4).
//!
//! The kubelet keeps its entries in hash tables and forgets them in their order of iteration. As a rule the order does not matter. It does
//! if blocks of different groups of zones share a zone, which a best-effort Topology Manager allows: the zone returns what it holds to the
//! block that is released first, and the part that is then missing for another block stays reserved in the rest of that block's group
//! forever.

use std::collections::BTreeSet;

use topology::mask::NumaMask;

use super::{Block, Manager, Zones};

/// Maximum number of pods, or of containers of a pod, whose orders are all tried: n items have 2^n subsets.
const MAX_ITEMS: usize = 12;

/// The chosen one of the states that different orders lead to.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ReleaseOrder {
    nth: Option<usize>,
    used: bool,
}

impl Manager {
    /// Makes the next release choose the state with this number among those that different orders lead to, if there are so many. Without
    /// it, pods are released by UID and containers by name.
    pub fn set_release_order(&mut self, nth: usize) {
        self.release_order = ReleaseOrder {
            nth: Some(nth),
            used: false,
        };
    }

    /// Returns whether a release had so many different states.
    pub fn used_release_order(&self) -> bool {
        self.release_order.used
    }

    /// Drops the entries of pods that are not active.
    pub fn remove_stale(&mut self, active: &BTreeSet<String>) {
        let stale: Vec<String> = self.entries.keys().cloned().collect();
        let stale = stale.into_iter().filter(|pod| !active.contains(pod));
        let gone: Vec<Vec<Vec<Block>>> = stale
            .filter_map(|pod| self.entries.remove(&pod))
            .map(|containers| containers.into_values().collect())
            .collect();
        if let Some(state) = self.chosen_state(&gone) {
            self.zones = state;
            self.release_order = ReleaseOrder {
                nth: None,
                used: true,
            };
            return;
        }
        for container in gone.iter().flatten() {
            free_blocks(&mut self.zones, container);
        }
    }

    fn chosen_state(&self, gone: &[Vec<Vec<Block>>]) -> Option<Zones> {
        let nth = self.release_order.nth?;
        let too_many = gone.len() > MAX_ITEMS || gone.iter().any(|pod| pod.len() > MAX_ITEMS);
        if too_many || !depends_on_order(gone) {
            return None;
        }
        let states = in_every_order(&self.zones, gone, |zones, pod: &Vec<Vec<Block>>| {
            in_every_order(zones, pod, |zones, container: &Vec<Block>| {
                let mut zones = zones.clone();
                free_blocks(&mut zones, container);
                BTreeSet::from([zones])
            })
        });
        states.into_iter().nth(nth)
    }
}

/// Returns whether different groups of zones overlap.
fn depends_on_order(gone: &[Vec<Vec<Block>>]) -> bool {
    let groups = gone.iter().flatten().flatten().map(|block| block.affinity);
    let groups: Vec<NumaMask> = groups.collect();
    groups.iter().any(|group| {
        let mut others = groups.iter();
        others.any(|other| other != group && !(*other & *group).is_empty())
    })
}

/// Returns all different states to which taking the items in any order leads.
fn in_every_order<T>(
    zones: &Zones,
    items: &[T],
    take: impl Fn(&Zones, &T) -> BTreeSet<Zones>,
) -> BTreeSet<Zones> {
    // Indexed by the set of items taken so far, as bits.
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

/// Returns to the zones what a container held.
pub(super) fn free_blocks(zones: &mut Zones, blocks: &[Block]) {
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

    /// Returns a manager with 100 bytes in each of three zones. One pod holds 30 in zone 0; a later one holds 120 in `wide`.
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

    /// Returns what is reserved in each zone after all pods were released, in the chosen order if there is one, and whether that was
    /// used.
    fn left(mut manager: Manager, nth: Option<usize>) -> (Vec<u64>, bool) {
        if let Some(nth) = nth {
            manager.set_release_order(nth);
        }
        manager.remove_stale(&BTreeSet::new());
        let tables = manager.zones.values().flat_map(|zone| zone.tables.values());
        let reserved = tables.map(|table| table.reserved).collect();
        (reserved, manager.used_release_order())
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
