//! Pods without a node: ready for an attempt, in backoff after an error, or unschedulable until something changes.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use tokio::time::Instant;

use crate::controllers::mirror::ObjectKey;

/// Backoff after the first error; it doubles with each further one.
const FIRST_BACKOFF: Duration = Duration::from_secs(1);
/// Longest backoff after an error.
const LONGEST_BACKOFF: Duration = Duration::from_secs(10);
/// Time after which an unschedulable pod is tried again even if nothing changed.
const MAX_UNSCHEDULABLE: Duration = Duration::from_mins(5);

type Rank = (Reverse<i32>, u64);

/// What changed in the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// There may be more room, or another node may fit.
    Room,
    /// Only properties of other pods changed, or what selects them.
    OtherPods,
}

struct Waiting {
    until: Instant,
    /// Whether the rejection depends on the properties of other pods.
    depends_on_other_pods: bool,
    priority: i32,
}

/// All waiting pods.
#[derive(Default)]
pub(super) struct Pending {
    ready: BTreeMap<Rank, ObjectKey>,
    rank: HashMap<ObjectKey, Rank>,
    /// Pods in backoff after an error.
    backoff: BTreeSet<(Instant, ObjectKey)>,
    backoff_of: HashMap<ObjectKey, (Instant, i32)>,
    refused: HashMap<ObjectKey, Waiting>,
    errors: HashMap<ObjectKey, u32>,
    arrivals: u64,
    /// Number of changes; it shows whether one happened during an attempt.
    changes: u64,
}

impl Pending {
    /// Makes a pod ready for an attempt.
    pub(super) fn add(&mut self, key: &ObjectKey, priority: i32) {
        self.leave(key);
        self.arrivals += 1;
        let rank = (Reverse(priority), self.arrivals);
        self.rank.insert(key.clone(), rank);
        self.ready.insert(rank, key.clone());
    }

    /// Returns whether a pod is in any of the queues.
    pub(super) fn has(&self, key: &ObjectKey) -> bool {
        self.rank.contains_key(key)
            || self.refused.contains_key(key)
            || self.backoff_of.contains_key(key)
    }

    fn leave(&mut self, key: &ObjectKey) {
        if let Some(rank) = self.rank.remove(key) {
            self.ready.remove(&rank);
        }
        if let Some((at, _)) = self.backoff_of.remove(key) {
            self.backoff.remove(&(at, key.clone()));
        }
        self.refused.remove(key);
    }

    /// Removes a pod that needs no node any more.
    pub(super) fn forget(&mut self, key: &ObjectKey) {
        self.leave(key);
        self.errors.remove(key);
    }

    /// Returns the next pod to try: the one with the highest priority, and among equals the one that was queued first.
    pub(super) fn pop(&mut self) -> Option<ObjectKey> {
        let now = Instant::now();
        while let Some((at, key)) = self.backoff.first().cloned()
            && at <= now
        {
            let priority = self
                .backoff_of
                .get(&key)
                .map_or(0, |(_, priority)| *priority);
            self.add(&key, priority);
        }
        let (_, key) = self.ready.pop_first()?;
        self.rank.remove(&key);
        Some(key)
    }

    /// Returns the number of changes so far.
    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    /// Records that no node fits. If something changed since the attempt began, the pod is ready again at once.
    pub(super) fn refuse(
        &mut self,
        key: &ObjectKey,
        priority: i32,
        depends_on_other_pods: bool,
        since: u64,
    ) {
        if self.changes != since {
            self.add(key, priority);
            return;
        }
        let waiting = Waiting {
            until: Instant::now() + MAX_UNSCHEDULABLE,
            depends_on_other_pods,
            priority,
        };
        self.refused.insert(key.clone(), waiting);
    }

    /// Records that an attempt failed with an error.
    pub(super) fn fail(&mut self, key: &ObjectKey, priority: i32) {
        // The pod may have been queued again while the result of the first attempt was being written.
        self.leave(key);
        let errors = self.errors.entry(key.clone()).or_default();
        let wait = (FIRST_BACKOFF * 2u32.saturating_pow(*errors)).min(LONGEST_BACKOFF);
        *errors = (*errors + 1).min(10);
        let at = Instant::now() + wait;
        self.backoff_of.insert(key.clone(), (at, priority));
        self.backoff.insert((at, key.clone()));
    }

    /// Records a change of the cluster; returns whether some pod became ready because of it.
    pub(super) fn changed(&mut self, change: Change) -> bool {
        if change == Change::Room {
            self.changes += 1;
        }
        let again: Vec<(ObjectKey, i32)> = self
            .refused
            .iter()
            .filter(|(_, waiting)| change == Change::Room || waiting.depends_on_other_pods)
            .map(|(key, waiting)| (key.clone(), waiting.priority))
            .collect();
        for (key, priority) in &again {
            self.add(key, *priority);
        }
        !again.is_empty()
    }

    /// Makes pods ready again that have been unschedulable for [`MAX_UNSCHEDULABLE`].
    pub(super) fn flush(&mut self) {
        let now = Instant::now();
        let due: Vec<(ObjectKey, i32)> = self
            .refused
            .iter()
            .filter(|(_, waiting)| waiting.until <= now)
            .map(|(key, waiting)| (key.clone(), waiting.priority))
            .collect();
        for (key, priority) in due {
            self.add(&key, priority);
        }
    }

    /// Returns when the next pod becomes due without any event.
    pub(super) fn next(&self) -> Option<Instant> {
        let refused = self.refused.values().map(|waiting| waiting.until).min();
        let backoff = self.backoff.first().map(|(at, _)| *at);
        [refused, backoff].into_iter().flatten().min()
    }
}
