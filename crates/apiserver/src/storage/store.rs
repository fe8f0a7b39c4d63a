//! The lock around the state, and the signals to watches.

use std::collections::BTreeMap;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;

use super::state::State;

/// The store.
#[derive(Debug)]
pub(crate) struct Store {
    state: Mutex<State>,
    newest: watch::Sender<u64>,
    /// Like `newest`, for each watched resource: most writes concern only a few watches.
    newest_by_resource: Mutex<BTreeMap<String, watch::Sender<u64>>>,
}

impl Store {
    /// Makes an empty store that keeps the newest `max_changes` changes for watches.
    pub(crate) fn new(max_changes: usize) -> Self {
        Self {
            state: Mutex::new(State::new(max_changes)),
            newest: watch::Sender::new(1),
            newest_by_resource: Mutex::default(),
        }
    }

    /// Locks the state for one transaction. Watches are notified of its writes when the guard is dropped.
    pub(crate) fn lock(&self) -> Transaction<'_> {
        // a panic in a transaction ends its request; the state is replaced in whole values, so it stays consistent
        let state = self.state.lock();
        Transaction {
            since: state.version(),
            state,
            store: self,
        }
    }

    /// Returns a receiver of the version of each newest write.
    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.newest.subscribe()
    }

    /// Returns a receiver of the versions of writes to one resource.
    pub(crate) fn subscribe_to(&self, resource: &str) -> watch::Receiver<u64> {
        let mut newest_by_resource = self.newest_by_resource();
        if let Some(newest) = newest_by_resource.get(resource) {
            return newest.subscribe();
        }
        let newest = watch::Sender::new(1);
        let receiver = newest.subscribe();
        newest_by_resource.insert(resource.to_owned(), newest);
        receiver
    }

    fn newest_by_resource(&self) -> MutexGuard<'_, BTreeMap<String, watch::Sender<u64>>> {
        self.newest_by_resource.lock()
    }
}

/// The locked state.
pub(crate) struct Transaction<'a> {
    state: MutexGuard<'a, State>,
    store: &'a Store,
    /// The version at the time of locking.
    since: u64,
}

impl std::ops::Deref for Transaction<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        &self.state
    }
}

impl std::ops::DerefMut for Transaction<'_> {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.state
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        let version = self.state.version();
        if version == self.since {
            return;
        }
        self.store.newest.send_replace(version);
        let newest_by_resource = self.store.newest_by_resource();
        let last_changed = self.state.last_changed.iter();
        for (resource, at) in last_changed.filter(|(_, at)| **at > self.since) {
            if let Some(newest) = newest_by_resource.get(resource) {
                newest.send_replace(*at);
            }
        }
    }
}
