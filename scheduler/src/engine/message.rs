//! What the loop is told: changes of watched objects, and how requests ended.

use std::time::Duration;

use tokio::time::Instant;

use crate::api_tasks::{bind, volume_bind};
use crate::framework::queue::Popped;
use crate::plugins::plugin::Plugins;
use crate::state::pod::{Pod, PodKey};
use crate::state::storage::Reservation;
use crate::watch::follow::Notice;

/// A message to the loop.
#[derive(Debug)]
pub enum Message {
    /// A watch delivered something.
    Watched(Notice),
    /// Volumes of a pod were written to the API server, or the write failed.
    VolumesWritten(Box<VolumesWritten>),
    /// A binding succeeded or failed.
    Bound(Box<Binding>),
    /// The evictions for a pod were attempted.
    Preempted(Box<Preemption>),
}

impl From<Notice> for Message {
    fn from(notice: Notice) -> Self {
        Self::Watched(notice)
    }
}

/// A pod with the chosen node.
#[derive(Debug)]
pub struct Placement {
    pub(super) pod: Pod,
    pub(super) node: String,
    pub(super) popped: Popped,
    /// When the attempt began.
    pub(super) started: Instant,
}

/// A pod whose volumes are being bound.
#[derive(Debug)]
pub struct Waiting {
    pub(super) placement: Placement,
    pub(super) reservation: Reservation,
    /// Resource versions of the written objects.
    pub(super) written: Vec<u64>,
    pub(super) timeout: Duration,
    pub(super) deadline: Instant,
}

/// Volumes and claims that were written, or an error.
#[derive(Debug)]
pub struct VolumesWritten {
    pub(super) waiting: Waiting,
    pub(super) result: Result<Vec<u64>, volume_bind::Error>,
}

/// A binding that was attempted.
#[derive(Debug)]
pub struct Binding {
    pub(super) placement: Placement,
    pub(super) result: Result<(), bind::Error>,
}

/// Evictions for a pod that were attempted.
#[derive(Debug)]
pub struct Preemption {
    pub(super) pod: PodKey,
    pub(super) uid: String,
    pub(super) rejected_by: Plugins,
}
