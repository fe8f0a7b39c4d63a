//! The zones of every node: what is left, from NRTs and from what was placed since.
//!
//! Each node has a ledger ([`crate::numa`]). Every NRT or pod event recomputes the node's view at once: nothing polls.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use foldhash::fast::RandomState;
use nrt::decode::NodeTopology;
use tokio::time::Instant;
use topology::request::Pod as Request;
use topology::resource::ResourceName;

use crate::numa::settings::Settings;
use crate::numa::view::View;
use crate::numa::{Check, Ledger, NrtNumber, is_zoned, simulate};
use crate::state::pod::{Pod, PodKey};
use crate::state::touched::Touched;

/// The longest time for which a pod that was deleted without waiting for its kubelet still holds its resources.
const MAX_CHARGE_AFTER_DELETION: Duration = Duration::from_secs(3);

/// Numbers for the metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Number of nodes with an NRT.
    pub nodes: usize,
    /// Number of these nodes that are closed.
    pub stale: usize,
    /// Number of these nodes whose newest NRT has a pod set that is not understood.
    pub unmatched: usize,
    /// Number of pods charged to zones in addition to what NRTs contain.
    pub charged: usize,
}

/// The topology of every node.
#[derive(Debug)]
pub struct Cache {
    settings: Settings,
    /// Looked up for every node at every attempt. Attackers cannot choose node names, and the hash has a seed.
    ledgers: HashMap<String, Ledger, RandomState>,
    /// The newest NRT. Its number orders events.
    received: NrtNumber,
    checks: Vec<Check>,
    next_expiry: Option<Instant>,
    touched: Touched,
}

impl Cache {
    /// Creates an empty cache.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            ledgers: HashMap::default(),
            received: NrtNumber::default(),
            checks: Vec::new(),
            next_expiry: None,
            touched: Touched::default(),
        }
    }

    /// Returns what is known of a node.
    pub fn view(&self, node: &str) -> &View {
        self.ledgers.get(node).map_or(&View::Absent, Ledger::view)
    }

    /// Returns the nodes whose view changed since the last call.
    pub fn take_touched(&mut self) -> Touched {
        self.touched.take()
    }

    /// Returns whether the newest NRT of a node is in use and understood. Nodes that the cache does not know are settled.
    pub fn is_settled(&self, node: &str) -> bool {
        self.ledgers.get(node).is_none_or(Ledger::is_settled)
    }

    /// Iterates over the names of the nodes that have an NRT.
    pub fn nodes_with_nrt(&self) -> impl Iterator<Item = &str> {
        let with_nrt = self.ledgers.iter();
        let with_nrt = with_nrt.filter(|(_, ledger)| ledger.topology().is_some());
        with_nrt.map(|(node, _)| node.as_str())
    }

    /// Adds or updates an NRT. Returns whether its content or the view changed.
    pub fn apply_nrt(&mut self, node: &str, topology: NodeTopology) -> bool {
        self.received = self.received.next();
        let number = self.received;
        let mut differs = true;
        let changed = self.change(node, |ledger| {
            differs = ledger.apply_nrt(topology, number);
        });
        changed || differs
    }

    /// Removes an NRT. Returns whether the view changed.
    pub fn delete_nrt(&mut self, node: &str) -> bool {
        self.change(node, Ledger::delete_nrt)
    }

    /// Adds or updates a pod that is on a node or assumed there. Returns whether the view changed.
    pub fn apply_pod(&mut self, node: &str, pod: &Pod) -> bool {
        let foreign = !self.settings.profiles.contains(&pod.scheduler);
        let received = self.received;
        self.change(node, |ledger| ledger.apply_pod(pod, foreign, received))
    }

    /// Removes a pod that was deleted at `now`. Returns whether the view changed.
    pub fn delete_pod(&mut self, node: &str, key: &PodKey, now: Instant) -> bool {
        let until = now + MAX_CHARGE_AFTER_DELETION;
        let mut stays_charged = false;
        let changed = self.change(node, |ledger| {
            stays_charged = ledger.delete_pod(key, until);
        });
        if stays_charged {
            self.next_expiry = Some(self.next_expiry.map_or(until, |next| next.min(until)));
        }
        changed
    }

    /// Stops charging deleted pods whose time is over. Returns whether any view changed.
    pub fn expire(&mut self, now: Instant) -> bool {
        if self.next_expiry.is_none_or(|next| now < next) {
            return false;
        }
        let due = |ledger: &Ledger| ledger.next_expiry().is_some_and(|until| until <= now);
        let nodes: Vec<String> = self
            .ledgers
            .iter()
            .filter(|(_, ledger)| due(ledger))
            .map(|(node, _)| node.clone())
            .collect();
        let mut changed = false;
        for node in nodes {
            changed |= self.change(&node, |ledger| ledger.expire(now));
        }
        self.next_expiry = self.ledgers.values().filter_map(Ledger::next_expiry).min();
        changed
    }

    /// Returns when [`Cache::expire`] has something to do next.
    pub fn next_expiry(&self) -> Option<Instant> {
        self.next_expiry
    }

    /// Returns the comparisons since the last call, oldest first. Empty unless they are traced.
    pub fn take_checks(&mut self) -> Vec<Check> {
        std::mem::take(&mut self.checks)
    }

    /// Records that a pod is about to be bound to a node (scheduler.md 5.2, 5.3).
    pub fn reserve(&mut self, node: &str, pod: &Pod) {
        let foreign = !self.settings.profiles.contains(&pod.scheduler);
        let received = self.received;
        self.change(node, |ledger| ledger.reserve(pod, foreign, received));
    }

    /// Records that binding succeeded: a node that was closed for it opens again. Returns whether the view changed.
    pub fn bound(&mut self, node: &str, key: &PodKey) -> bool {
        self.change(node, |ledger| ledger.bound(key))
    }

    /// Records that binding failed and removes the pod from the node. Returns whether the view changed.
    pub fn unreserve(&mut self, node: &str, key: &PodKey) -> bool {
        self.change(node, |ledger| ledger.unreserve(key))
    }

    /// Returns the numbers for the metrics.
    pub fn stats(&self) -> Stats {
        let mut stats = Stats::default();
        for ledger in self.ledgers.values() {
            let Some(latest) = ledger.topology() else {
                continue;
            };
            let zoned = |name: &ResourceName| is_zoned(&latest.zones, name);
            stats.nodes += 1;
            stats.stale += usize::from(*ledger.view() == View::Stale);
            stats.unmatched += usize::from(!ledger.is_settled());
            stats.charged += ledger
                .charged()
                .filter(|request| request.is_exclusive(zoned))
                .count();
        }
        stats
    }

    /// Returns whether pods of a node are gone or have ended, but no NRT has shown yet what they free.
    pub fn awaits_release(&self, node: &str) -> bool {
        self.ledgers.get(node).is_some_and(Ledger::awaits_release)
    }

    /// Returns the view of a node as if `victims` were gone and `nominated` were there. Without a placement the victims change nothing.
    ///
    /// # Errors
    /// When the placement does not say what the victims hold, when pods that are gone are still accounted for, or when more would be left
    /// than is allocatable.
    pub fn simulate(
        &self,
        node: &str,
        victims: &[&Pod],
        nominated: &[Arc<Request>],
    ) -> Result<View, simulate::Error> {
        match self.ledgers.get(node) {
            Some(ledger) => ledger.simulate(&self.settings, victims, nominated),
            None => Ok(View::Absent),
        }
    }

    fn change(&mut self, node: &str, change: impl FnOnce(&mut Ledger)) -> bool {
        let ledger = self.ledgers.entry(node.to_owned()).or_default();
        change(ledger);
        let (changed, check) = ledger.update(node, &self.settings);
        self.checks.extend(check);
        if changed {
            self.touched.note(node);
        }
        if ledger.is_empty() {
            self.ledgers.remove(node);
        }
        changed
    }
}

#[cfg(test)]
mod tests;
