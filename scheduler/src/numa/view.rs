//! What filters and scores may read of a node's zones.

use std::sync::Arc;

use topology::fit::FreeZone;
use topology::mask::{NumaMask, ZoneId};
use topology::policy::ManagerConfig;
use topology::request::Pod as Request;
use topology::resource::Resources;
use topology::zone::Zone;

use crate::state::pod::PodKey;

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

/// The zones of a node before any charge, and all charges, if some belong to pods that may be admitted after the next one.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Unadmitted {
    pub(super) before: Vec<(ZoneId, Resources)>,
    pub(super) charges: Vec<(Resources, NumaMask)>,
    /// The charges whose pods may not be admitted yet.
    pub(super) pods: Vec<(usize, PodKey, Arc<Request>)>,
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
