//! Zone ids and sets of them.

use std::fmt;
use std::ops::BitAnd;

/// Id of a NUMA zone, 0 to 63.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ZoneId(u8);

impl ZoneId {
    /// How many zones a [`NumaMask`] can distinguish.
    pub const LIMIT: u8 = 64;

    /// Creates a zone id. Returns `None` if it is too large for a [`NumaMask`].
    pub fn new(id: u64) -> Option<Self> {
        u8::try_from(id)
            .ok()
            .filter(|id| *id < Self::LIMIT)
            .map(Self)
    }

    /// Returns the number.
    pub fn get(self) -> u8 {
        self.0
    }

    /// Returns the number as an index.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

impl fmt::Display for ZoneId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A set of zones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NumaMask(u64);

impl NumaMask {
    /// Every possible zone.
    pub const ALL: Self = Self(u64::MAX);
    /// No zone.
    pub const NONE: Self = Self(0);

    /// Returns the set of all zones with a lower id.
    pub fn below(zone: ZoneId) -> Self {
        Self((1 << zone.0) - 1)
    }

    /// Adds a zone.
    pub fn insert(&mut self, zone: ZoneId) {
        self.0 |= 1 << zone.0;
    }

    /// Returns whether the zone is in the set.
    pub fn contains(self, zone: ZoneId) -> bool {
        self.0 & (1 << zone.0) != 0
    }

    /// Returns the number of zones.
    pub fn len(self) -> u32 {
        self.0.count_ones()
    }

    /// Returns whether the set is empty.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the zone with the lowest id.
    pub fn lowest(self) -> Option<ZoneId> {
        ZoneId::new(u64::from(self.0.trailing_zeros()))
    }

    /// Removes the zone with the lowest id and returns it.
    pub fn take_lowest(&mut self) -> Option<ZoneId> {
        let lowest = self.lowest()?;
        self.0 &= !(1 << lowest.0);
        Some(lowest)
    }

    /// Iterates over the zones, lowest id first.
    pub fn iter(self) -> impl Iterator<Item = ZoneId> {
        (0..ZoneId::LIMIT)
            .map(ZoneId)
            .filter(move |zone| self.contains(*zone))
    }
}

impl FromIterator<ZoneId> for NumaMask {
    fn from_iter<I: IntoIterator<Item = ZoneId>>(zones: I) -> Self {
        let mut mask = Self::NONE;
        for zone in zones {
            mask.insert(zone);
        }
        mask
    }
}

impl BitAnd for NumaMask {
    type Output = Self;

    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ids_stop_at_the_width_of_the_mask() {
        assert_eq!(ZoneId::new(63).map(ZoneId::get), Some(63));
        assert_eq!(ZoneId::new(64), None);
        assert_eq!(NumaMask::NONE.lowest(), None);
    }

    proptest! {
        #[test]
        fn a_mask_gives_back_what_was_put_in(ids in proptest::collection::btree_set(0_u64..64, 0..64)) {
            let mask: NumaMask = ids.iter().filter_map(|id| ZoneId::new(*id)).collect();
            prop_assert_eq!(mask.len() as usize, ids.len());
            prop_assert_eq!(mask.lowest().map(|zone| u64::from(zone.get())), ids.first().copied());
            prop_assert!(mask.iter().map(|zone| u64::from(zone.get())).eq(ids.iter().copied()));
            let mut rest = mask;
            let taken = std::iter::from_fn(|| rest.take_lowest());
            prop_assert!(taken.eq(mask.iter()));
            for zone in (0..64).filter_map(ZoneId::new) {
                let lower = ids.range(..u64::from(zone.get())).filter_map(|id| ZoneId::new(*id));
                prop_assert_eq!(mask & NumaMask::below(zone), lower.collect::<NumaMask>());
            }
        }

        #[test]
        fn intersection_is_commutative_and_narrower(a: u64, b: u64) {
            let both = NumaMask(a) & NumaMask(b);
            prop_assert_eq!(both, NumaMask(b) & NumaMask(a));
            prop_assert!(both.len() <= NumaMask(a).len().min(NumaMask(b).len()));
        }
    }
}
