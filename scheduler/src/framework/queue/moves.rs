//! The parts of the queue and why pods move between them, in kube-scheduler's words.

/// Number of pods by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lengths {
    /// Ready.
    pub active: usize,
    /// Asleep, but something changed that may help them.
    pub backoff: usize,
    /// Asleep, and nothing changed that may help them.
    pub unschedulable: usize,
    /// Held back by scheduling gates.
    pub gated: usize,
}

/// A part of the queue to which pods move, as in [`Lengths`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "see `Lengths`")]
pub enum Part {
    Active,
    Backoff,
    Unschedulable,
    Gated,
}

impl Part {
    /// Returns kube-scheduler's label value.
    pub fn label(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Backoff => "backoff",
            Self::Unschedulable => "unschedulable",
            Self::Gated => "gated",
        }
    }
}

/// Why a pod moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// It is new.
    PodAdded,
    /// It changed.
    PodUpdated,
    /// No node fits, or the binding failed.
    AttemptFailed,
    /// Its backoff ended.
    BackoffEnded,
    /// A node was added.
    NodeAdded,
    /// A node changed.
    NodeUpdated,
    /// Another pod was placed.
    PodPlaced,
    /// Another pod ended or was deleted, or released what was reserved for it.
    PodGone,
    /// The zones of a node changed.
    TopologyUpdated,
    /// A volume, a claim or what they depend on changed.
    VolumeUpdated,
}

impl Cause {
    /// Returns kube-scheduler's label value for the event. An event that kube-scheduler lacks is named by its rule of resource and action.
    pub fn label(self) -> &'static str {
        match self {
            Self::PodAdded => "UnschedulablePodAdd",
            Self::PodUpdated => "UnschedulablePodUpdate",
            Self::AttemptFailed => "ScheduleAttemptFailure",
            Self::BackoffEnded => "BackoffComplete",
            Self::NodeAdded => "NodeAdd",
            Self::NodeUpdated => "NodeUpdate",
            Self::PodPlaced => "AssignedPodAdd",
            Self::PodGone => "AssignedPodDelete",
            Self::TopologyUpdated => "noderesourcetopologies.v1alpha2.topology.node.k8s.ioUpdate",
            Self::VolumeUpdated => "VolumeUpdate",
        }
    }
}
