//! What a node's ledger records of a pod.

use std::sync::Arc;

use topology::request::Pod as Request;

use crate::state::pod::{Phase, Pod, PodKey};

/// Position of an NRT in the order in which NRTs arrived; the first is 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NrtNumber(u64);

impl NrtNumber {
    /// Returns the number of the NRT that arrives next.
    pub(crate) fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// Which NRTs can account for a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AccountedBy {
    /// Any NRT.
    Any,
    /// Those with at least this number: the pod has the name of a recent one, which earlier NRTs may mean.
    From(NrtNumber),
    /// None, until the next update of the pod: it has the name of a recent one and does not run yet, or it ended.
    None,
}

impl AccountedBy {
    /// Returns which NRTs can account for a pod with the name of a recent one, if `received` is the newest NRT. Those that arrive
    /// after it was seen running can.
    pub(super) fn for_namesake(phase: Phase, received: NrtNumber) -> Self {
        if phase == Phase::Pending {
            Self::None
        } else {
            Self::From(received.next())
        }
    }

    /// Returns whether the NRT of that number can account for the pod.
    pub(super) fn includes(self, number: NrtNumber) -> bool {
        match self {
            Self::Any => true,
            Self::From(first) => first <= number,
            Self::None => false,
        }
    }

    /// Returns whether the NRT of that number means this pod and no longer a predecessor of the same name.
    pub(super) fn excludes_predecessors(self, number: NrtNumber) -> bool {
        self != Self::Any && self.includes(number)
    }
}

/// Whether the binding of a pod is in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Binding {
    /// It is: the pod is reserved and its binding has not ended.
    InProgress,
    /// It is not, or not ours.
    Settled,
}

/// A pod of the node.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is an independent fact")]
pub(super) struct Tracked {
    pub(super) uid: String,
    pub(super) hash: u64,
    pub(super) foreign: bool,
    pub(super) phase: Phase,
    /// The kubelet is known to have admitted or refused the pod.
    pub(super) seen_by_kubelet: bool,
    pub(super) deleting: bool,
    pub(super) request: Arc<Request>,
    /// The base contains what this pod holds.
    pub(super) accounted: bool,
    pub(super) accounted_by: AccountedBy,
    pub(super) binding: Binding,
}

impl Tracked {
    /// Returns whether the pod may hold resources.
    pub(super) fn lives(&self) -> bool {
        self.phase != Phase::Terminal
    }

    /// Returns whether the pod is charged, because it lives and is not in the base.
    pub(super) fn is_charged(&self) -> bool {
        !self.accounted && self.lives()
    }
}

/// A pod that is gone but may still be in an NRT.
#[derive(Debug)]
pub(super) struct DepartedPod {
    pub(super) key: PodKey,
    pub(super) hash: u64,
    pub(super) request: Arc<Request>,
    /// Its kubelet reported before the deletion that it ended, so what it held is free.
    pub(super) ended: bool,
    /// The base contains what it held, and it is unknown when or where that becomes free.
    pub(super) is_held: bool,
}

/// Returns whether the kubelet has seen a pod: the kubelet's first status sets the start time.
pub(super) fn is_seen_by_kubelet(pod: &Pod) -> bool {
    pod.started.is_some() || pod.phase != Phase::Pending
}
