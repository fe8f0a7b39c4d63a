//! A zone's amounts and distances, as an exporter publishes them.

use std::collections::BTreeMap;

use crate::mask::ZoneId;
use crate::resource::ResourceName;

/// Amounts of one resource of a zone. Units as in [`crate::resource`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amounts {
    /// Total of the zone.
    pub capacity: i64,
    /// What pods may use: capacity minus reservations.
    pub allocatable: i64,
    /// Allocatable minus what running pods hold.
    pub available: i64,
}

/// A NUMA zone of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zone {
    /// Its id on the node.
    pub id: ZoneId,
    /// What it holds.
    pub resources: BTreeMap<ResourceName, Amounts>,
    /// Distance to each known zone, including itself. By firmware convention, 10 is local.
    pub distances: BTreeMap<ZoneId, i64>,
}

impl Zone {
    /// Creates a zone without resources.
    pub fn new(id: ZoneId) -> Self {
        Self {
            id,
            resources: BTreeMap::new(),
            distances: BTreeMap::new(),
        }
    }
}
