//! What filters and scores may read of a node's zones.

use topology::fit::FreeZone;
use topology::policy::ManagerConfig;
use topology::zone::Zone;

use super::charge::Unadmitted;

/// What filters and scores may read of a node.
#[derive(Clone, Debug, PartialEq)]
pub enum View {
    /// The node has no NRT.
    Absent,
    /// The amounts cannot be trusted at the moment.
    Stale,
    /// The amounts, after all charges.
    Fresh(Fresh),
}

/// Usable amounts.
#[derive(Clone, Debug, PartialEq)]
pub struct Fresh {
    /// The kubelet's settings.
    pub config: ManagerConfig,
    /// What is left, in the order of the NRT.
    pub free: Vec<FreeZone>,
    /// The zones with their distances, in the same order.
    pub zones: Vec<Zone>,
    /// Pods that may be admitted after the next one, if there are any.
    pub(super) unadmitted: Option<Unadmitted>,
}

impl Fresh {
    /// Creates the amounts of a node to which no pod is on its way.
    pub fn new(config: ManagerConfig, free: Vec<FreeZone>, zones: Vec<Zone>) -> Self {
        Self {
            config,
            free,
            zones,
            unadmitted: None,
        }
    }
}
