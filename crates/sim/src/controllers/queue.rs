//! Work queues. Each key has at most one worker at a time, any number of events meanwhile cause one more run, and a failure causes a retry.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::fmt::{Debug, Display};
use std::future::Future;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::objects;

/// Backoff after the first failure; it doubles with each further one.
const FIRST_BACKOFF: Duration = Duration::from_millis(5);
/// Longest backoff.
const LONGEST_BACKOFF: Duration = Duration::from_secs(30);

struct State<K> {
    ready: VecDeque<K>,
    dirty: HashSet<K>,
    busy: HashSet<K>,
    due: BTreeSet<(Instant, K)>,
    due_of: HashMap<K, Instant>,
    failures: HashMap<K, u32>,
}

/// Keys that wait for work.
pub(crate) struct Queue<K> {
    state: Mutex<State<K>>,
    wake: Notify,
}

impl<K> Default for Queue<K> {
    fn default() -> Self {
        Self {
            state: Mutex::new(State {
                ready: VecDeque::new(),
                dirty: HashSet::new(),
                busy: HashSet::new(),
                due: BTreeSet::new(),
                due_of: HashMap::new(),
                failures: HashMap::new(),
            }),
            wake: Notify::new(),
        }
    }
}

impl<K: Clone + Ord + Hash + Debug + Display> Queue<K> {
    fn lock(&self) -> MutexGuard<'_, State<K>> {
        self.state.lock()
    }

    /// Queues a key.
    pub(crate) fn add(&self, key: K) {
        let mut state = self.lock();
        if state.dirty.insert(key.clone()) && !state.busy.contains(&key) {
            state.ready.push_back(key);
            drop(state);
            self.wake.notify_one();
        }
    }

    /// Queues a key for later; the earliest of several times counts.
    pub(crate) fn add_after(&self, key: K, wait: Duration) {
        let at = Instant::now() + wait;
        let mut state = self.lock();
        if let Some(known) = state.due_of.get(&key).copied() {
            if known <= at {
                return;
            }
            state.due.remove(&(known, key.clone()));
        }
        state.due_of.insert(key.clone(), at);
        state.due.insert((at, key));
        drop(state);
        self.wake.notify_one();
    }

    fn take(&self) -> Option<K> {
        let mut state = self.lock();
        let now = Instant::now();
        while let Some((at, _)) = state.due.first()
            && *at <= now
        {
            let Some((_, key)) = state.due.pop_first() else {
                break;
            };
            state.due_of.remove(&key);
            if state.dirty.insert(key.clone()) && !state.busy.contains(&key) {
                state.ready.push_back(key);
            }
        }
        let key = state.ready.pop_front()?;
        state.dirty.remove(&key);
        state.busy.insert(key.clone());
        Some(key)
    }

    fn done(&self, key: K, failed: bool) {
        let mut state = self.lock();
        state.busy.remove(&key);
        if state.dirty.contains(&key) {
            state.ready.push_back(key.clone());
        }
        if failed {
            let failures = state.failures.entry(key.clone()).or_default();
            let wait = FIRST_BACKOFF * 2u32.saturating_pow(*failures);
            *failures = (*failures + 1).min(20);
            drop(state);
            self.add_after(key, wait.min(LONGEST_BACKOFF));
        } else {
            state.failures.remove(&key);
        }
    }

    fn next_due(&self) -> Option<Instant> {
        self.lock().due.first().map(|(at, _)| *at)
    }

    /// Works on up to `parallel` keys at a time; never returns by itself.
    pub(crate) async fn work<F, W>(
        self: Arc<Self>,
        name: &'static str,
        parallel: usize,
        reconcile: F,
    ) where
        F: Fn(K) -> W,
        W: Future<Output = Result<(), kube::Error>>,
    {
        let mut running = FuturesUnordered::new();
        loop {
            while running.len() < parallel {
                let Some(key) = self.take() else { break };
                let work = reconcile(key.clone());
                running.push(async move { (key, work.await) });
            }
            let due = self.next_due();
            let free = running.len() < parallel;
            tokio::select! {
                Some((key, result)) = running.next(), if !running.is_empty() => {
                    if let Err(error) = &result {
                        if matches!(objects::code(error), 404 | 409) {
                            tracing::debug!(controller = name, %key, %error, "Object changed meanwhile; trying again");
                        } else {
                            tracing::warn!(controller = name, %key, %error, "Reconciliation failed; trying again");
                        }
                    }
                    self.done(key, result.is_err());
                }
                () = self.wake.notified(), if free => {}
                () = tokio::time::sleep_until(due.unwrap_or_else(Instant::now)), if free && due.is_some() => {}
            }
        }
    }
}
