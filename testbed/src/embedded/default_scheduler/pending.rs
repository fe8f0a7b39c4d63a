//! Pods that wait for a node: ready to be tried, waiting after an error, or until something changes.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use tokio::time::Instant;

use crate::embedded::controllers::mirror::ObjectKey;

/// Wait after a first error; it doubles with each further one.
const FIRST_BACKOFF: Duration = Duration::from_secs(1);
/// Longest wait after an error.
const LONGEST_BACKOFF: Duration = Duration::from_secs(10);
/// After so long a pod is tried again even if nothing changed.
const LEFTOVER: Duration = Duration::from_mins(5);

type Rank = (Reverse<i32>, u64);

/// What about the cluster changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// There may be more room, or another node fits.
    Room,
    /// Only what pods have beside them is different.
    Neighbours,
}

struct Waiting {
    until: Instant,
    /// Whether it hangs on what other pods are like.
    social: bool,
    priority: i32,
}

/// All waiting pods.
#[derive(Default)]
pub(super) struct Pending {
    ready: BTreeMap<Rank, ObjectKey>,
    rank: HashMap<ObjectKey, Rank>,
    /// After an error.
    backoff: BTreeSet<(Instant, ObjectKey)>,
    backoff_of: HashMap<ObjectKey, (Instant, i32)>,
    refused: HashMap<ObjectKey, Waiting>,
    errors: HashMap<ObjectKey, u32>,
    arrivals: u64,
    /// Counts changes, so that one during an attempt is not missed.
    changes: u64,
}

impl Pending {
    /// A pod is to be tried.
    pub(super) fn add(&mut self, key: &ObjectKey, priority: i32) {
        self.leave(key);
        self.arrivals += 1;
        let rank = (Reverse(priority), self.arrivals);
        self.rank.insert(key.clone(), rank);
        self.ready.insert(rank, key.clone());
    }

    /// Whether a pod waits in any way.
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

    /// A pod needs no node any more.
    pub(super) fn forget(&mut self, key: &ObjectKey) {
        self.leave(key);
        self.errors.remove(key);
    }

    /// The pod to try now: the most important, of these the one that came first.
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

    /// The number of changes so far.
    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    /// No node fits. If something changed since the attempt began it is tried again at once.
    pub(super) fn refuse(&mut self, key: &ObjectKey, priority: i32, social: bool, since: u64) {
        if self.changes != since {
            self.add(key, priority);
            return;
        }
        let waiting = Waiting {
            until: Instant::now() + LEFTOVER,
            social,
            priority,
        };
        self.refused.insert(key.clone(), waiting);
    }

    /// An attempt failed for another reason.
    pub(super) fn fail(&mut self, key: &ObjectKey, priority: i32) {
        // it may have been tried again while the first attempt was written
        self.leave(key);
        let errors = self.errors.entry(key.clone()).or_default();
        let wait = (FIRST_BACKOFF * 2u32.saturating_pow(*errors)).min(LONGEST_BACKOFF);
        *errors = (*errors + 1).min(10);
        let at = Instant::now() + wait;
        self.backoff_of.insert(key.clone(), (at, priority));
        self.backoff.insert((at, key.clone()));
    }

    /// The cluster changed: tells whether some pod is worth another try.
    pub(super) fn changed(&mut self, change: Change) -> bool {
        if change == Change::Room {
            self.changes += 1;
        }
        let again: Vec<(ObjectKey, i32)> = self
            .refused
            .iter()
            .filter(|(_, waiting)| change == Change::Room || waiting.social)
            .map(|(key, waiting)| (key.clone(), waiting.priority))
            .collect();
        for (key, priority) in &again {
            self.add(key, *priority);
        }
        !again.is_empty()
    }

    /// Tries pods again that were refused long ago.
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

    /// When there is something to do even if nothing happens.
    pub(super) fn next(&self) -> Option<Instant> {
        let refused = self.refused.values().map(|waiting| waiting.until).min();
        let backoff = self.backoff.first().map(|(at, _)| *at);
        [refused, backoff].into_iter().flatten().min()
    }
}
