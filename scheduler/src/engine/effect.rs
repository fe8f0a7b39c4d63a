//! What has to be done outside after a change or an attempt.

use super::message::{Placement, Waiting};
use crate::api_tasks::report::Report;
use crate::api_tasks::volume_bind::Changes;
use crate::framework::default_preemption::Victim;
use crate::plugins::plugin::Plugins;
use crate::state::pod::Pod;

/// Something to do outside.
#[derive(Debug)]
pub enum Effect {
    /// Start the watches of the kinds that volumes depend on.
    WatchVolumes,
    /// Write the choice of a pod's volumes to the API server.
    WriteVolumes(Box<Waiting>, Option<Changes>),
    /// Bind a pod to its node.
    Bind(Box<Placement>),
    /// Evict pods in favour of another one.
    Evict(Box<Eviction>),
    /// Tell users of a decision.
    Report(Box<Report>),
}

/// Evictions in favour of a pod.
#[derive(Debug)]
pub struct Eviction {
    pub(super) pod: Pod,
    pub(super) rejected_by: Plugins,
    pub(super) node: String,
    pub(super) victims: Vec<Victim>,
}
