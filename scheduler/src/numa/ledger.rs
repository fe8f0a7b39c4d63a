//! The NRTs and the pods of a node.

use std::collections::BTreeMap;
use std::sync::Arc;

use nrt::decode::NodeTopology;
use tokio::time::Instant;
use topology::request::Pod as Request;

use super::Check;
use super::settings::Settings;
use super::tracked::{AccountedBy, Binding, DepartedPod, NrtNumber, Tracked, is_seen_by_kubelet};
use super::view::View;
use crate::numa::held::{HeldByPod, ZoneAmounts};
use crate::state::pod::{Pod, PodKey};

/// How many pods are remembered for a node that are gone but may still be in an NRT.
const MAX_DEPARTED: usize = 32;

/// An NRT with its number.
#[derive(Clone, Debug)]
pub(super) struct Numbered {
    pub(super) topology: Arc<NodeTopology>,
    pub(super) number: NrtNumber,
}

impl Numbered {
    /// Returns a copy to which the amounts held in these zones are added, at most up to what is allocatable.
    pub(super) fn with_amounts_added<'a>(
        &self,
        held: impl Iterator<Item = &'a ZoneAmounts>,
    ) -> Self {
        let mut more = self.clone();
        for (id, amounts) in held.flatten() {
            let zones = &mut Arc::make_mut(&mut more.topology).zones;
            let Some(zone) = zones.iter_mut().find(|zone| zone.id == *id) else {
                continue;
            };
            for (name, amount) in amounts.iter() {
                if let Some(resource) = zone.resources.get_mut(name) {
                    let left = resource.available.saturating_add(amount);
                    resource.available = left.min(resource.allocatable).max(resource.available);
                }
            }
        }
        more
    }
}

/// The NRT whose amounts are in use.
#[derive(Debug, Default)]
pub(super) enum Base {
    /// There is none.
    #[default]
    Absent,
    /// None was understood yet. The newest amounts are the best available; every pod is charged in addition.
    Unexplained(Numbered),
    /// The newest NRT of which it is known which pods it accounts for.
    Understood(Numbered),
}

impl Base {
    /// Returns the NRT, if there is one.
    pub(super) fn nrt(&self) -> Option<&Numbered> {
        match self {
            Self::Absent => None,
            Self::Unexplained(nrt) | Self::Understood(nrt) => Some(nrt),
        }
    }

    /// Returns whether it is known which pods it accounts for.
    pub(super) fn is_understood(&self) -> bool {
        matches!(self, Self::Understood(_))
    }
}

/// A request that stays charged although its pod was deleted.
#[derive(Debug)]
pub(super) struct Lingering {
    pub(super) request: Arc<Request>,
    /// Until when it is charged at most.
    until: Instant,
}

/// What is known of a node's zones and of the pods that may take from them.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    pub(super) latest: Option<Numbered>,
    pub(super) base: Base,
    pub(super) pods: BTreeMap<PodKey, Tracked>,
    /// What the pods that `base` accounts for hold in which zone, if the base publishes it.
    pub(super) held_by_pod: HeldByPod,
    /// What pods that ended and were deleted held by zone, as long as the base still contains it.
    pub(super) released_by_ended: Vec<ZoneAmounts>,
    /// Pods that are gone but may still be in an NRT, oldest first.
    pub(super) departed: Vec<DepartedPod>,
    /// Pods that were deleted while they were charged.
    pub(super) lingering: Vec<Lingering>,
    view: Option<View>,
}

impl Ledger {
    /// Returns the amounts, or why there are none to use.
    pub(crate) fn view(&self) -> &View {
        self.view.as_ref().unwrap_or(&View::Absent)
    }

    /// Returns the newest NRT.
    pub(crate) fn topology(&self) -> Option<&NodeTopology> {
        self.latest.as_ref().map(|latest| &*latest.topology)
    }

    /// Returns whether the newest NRT is in use and understood.
    pub(crate) fn is_settled(&self) -> bool {
        let latest = self.latest.as_ref().map(|latest| latest.number);
        matches!(&self.base, Base::Understood(base) if Some(base.number) == latest)
    }

    /// Returns whether nothing is known of the node.
    pub(crate) fn is_empty(&self) -> bool {
        self.latest.is_none() && self.pods.is_empty() && self.lingering.is_empty()
    }

    /// Brings base and view up to date after a change. Returns whether the view changed, and the comparison, if one was made and they are
    /// traced.
    pub(crate) fn update(&mut self, node: &str, settings: &Settings) -> (bool, Option<Check>) {
        let check = self.resync(node, settings);
        let view = self.compute(settings);
        let changed = *self.view() != view;
        self.view = Some(view);
        (changed, check)
    }

    /// Replaces the newest NRT. Returns whether it differs from the last one.
    pub(crate) fn apply_nrt(&mut self, topology: NodeTopology, number: NrtNumber) -> bool {
        let differs = self.topology() != Some(&topology);
        self.latest = Some(Numbered {
            topology: Arc::new(topology),
            number,
        });
        differs
    }

    /// Forgets all NRTs.
    pub(crate) fn delete_nrt(&mut self) {
        (self.latest, self.base) = (None, Base::Absent);
        self.held_by_pod = HeldByPod::default();
        self.released_by_ended.clear();
        for pod in self.pods.values_mut() {
            pod.accounted = false;
        }
    }

    /// Adds or updates a pod. `received` is the number of the newest NRT of any node.
    pub(crate) fn apply_pod(&mut self, pod: &Pod, foreign: bool, received: NrtNumber) {
        if let Some(known) = self.pods.get_mut(&pod.key)
            && known.uid == pod.uid
        {
            if known.accounted_by == AccountedBy::None {
                known.accounted_by = AccountedBy::for_namesake(pod.phase, received);
            }
            (known.phase, known.deleting, known.foreign) = (pod.phase, pod.deleting, foreign);
            known.seen_by_kubelet |= is_seen_by_kubelet(pod);
            known.request = Arc::clone(&pod.request);
            return;
        }
        let mut binding = Binding::Settled;
        if let Some(predecessor) = self.pods.remove(&pod.key) {
            binding = predecessor.binding;
            self.remember(&pod.key, predecessor);
        }
        let namesake = self
            .departed
            .iter()
            .any(|departed| departed.hash == pod.hash);
        self.pods.insert(
            pod.key.clone(),
            Tracked {
                uid: pod.uid.clone(),
                hash: pod.hash,
                foreign,
                phase: pod.phase,
                seen_by_kubelet: is_seen_by_kubelet(pod),
                deleting: pod.deleting,
                request: Arc::clone(&pod.request),
                accounted: false,
                accounted_by: if namesake {
                    AccountedBy::for_namesake(pod.phase, received)
                } else {
                    AccountedBy::Any
                },
                binding,
            },
        );
    }

    /// Adds a pod that is about to be bound.
    pub(crate) fn reserve(&mut self, pod: &Pod, foreign: bool, received: NrtNumber) {
        self.apply_pod(pod, foreign, received);
        if let Some(known) = self.pods.get_mut(&pod.key) {
            known.binding = Binding::InProgress;
        }
    }

    /// Records that the binding of a pod succeeded.
    pub(crate) fn bound(&mut self, key: &PodKey) {
        if let Some(known) = self.pods.get_mut(key) {
            known.binding = Binding::Settled;
        }
    }

    /// Removes a pod whose binding failed.
    pub(crate) fn unreserve(&mut self, key: &PodKey) {
        self.pods.remove(key);
    }

    /// Removes a pod that was deleted. If it was charged, it stays so until `until` at most; returns whether that is so.
    pub(crate) fn delete_pod(&mut self, key: &PodKey, until: Instant) -> bool {
        let Some(pod) = self.pods.remove(key) else {
            return false;
        };
        let stays_charged = pod.is_charged() && self.latest.is_some();
        if stays_charged {
            self.lingering.push(Lingering {
                request: Arc::clone(&pod.request),
                until,
            });
        }
        self.remember(key, pod);
        stays_charged
    }

    /// Stops charging deleted pods whose time is over.
    pub(crate) fn expire(&mut self, now: Instant) {
        self.lingering.retain(|pod| pod.until > now);
    }

    /// Returns when [`Ledger::expire`] has something to do next.
    pub(crate) fn next_expiry(&self) -> Option<Instant> {
        self.lingering.iter().map(|pod| pod.until).min()
    }

    /// Iterates over the requests of the pods that live and are not in the base.
    pub(crate) fn charged(&self) -> impl Iterator<Item = &Request> {
        let charged = self.pods.values().filter(|pod| pod.is_charged());
        charged.map(|pod| &*pod.request)
    }

    /// Remembers a pod that is gone, because NRTs may contain it for a while.
    fn remember(&mut self, key: &PodKey, pod: Tracked) {
        if self.latest.is_none() {
            return;
        }
        let ended = !pod.lives();
        let zones = if pod.accounted && ended {
            self.held_by_pod.0.remove(key)
        } else {
            None
        };
        let is_held = pod.accounted && zones.is_none();
        self.released_by_ended.extend(zones);
        if self.departed.len() == MAX_DEPARTED {
            self.departed.remove(0);
        }
        self.departed.push(DepartedPod {
            key: key.clone(),
            hash: pod.hash,
            request: pod.request,
            ended,
            is_held,
        });
    }
}
