//! A zone's amounts and distances, as an exporter publishes them.

use std::collections::BTreeMap;

use crate::mask::ZoneId;
use crate::resource::ResourceName;

/// One resource of a zone. Units as in [`crate::resource`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amounts {
    /// Total of the zone.
    pub capacity: i64,
    /// What pods may use: capacity less reservations.
    pub allocatable: i64,
    /// Allocatable less what running pods hold.
    pub available: i64,
}

/// A NUMA zone of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zone {
    /// Its id on the node.
    pub id: ZoneId,
    /// What it holds.
    pub resources: BTreeMap<ResourceName, Amounts>,
    /// Distance to each zone that is known, itself included; 10 is local by convention of the firmware.
    pub distances: BTreeMap<ZoneId, i64>,
}

impl Zone {
    /// A zone that holds nothing.
    pub fn new(id: ZoneId) -> Self {
        Self {
            id,
            resources: BTreeMap::new(),
            distances: BTreeMap::new(),
        }
    }
}
