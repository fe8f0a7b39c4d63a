//! The ticket as its watch holds it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::watch;

use super::rule::{Entry, WatchEnd};
use super::state::State;
use super::ticket::Ticket;

/// The ticket as its watch holds it.
#[derive(Debug)]
pub(crate) struct OpenWatch {
    faults: Arc<State>,
    ticket: Arc<Ticket>,
    generation: watch::Receiver<u64>,
}

impl Drop for OpenWatch {
    fn drop(&mut self) {
        self.faults.tickets().open.remove(&self.ticket.id);
    }
}

impl OpenWatch {
    pub(crate) fn new(faults: &Arc<State>, ticket: Arc<Ticket>) -> Self {
        Self {
            faults: Arc::clone(faults),
            ticket,
            generation: faults.generation.subscribe(),
        }
    }

    /// Returns how the watch has to end now, even if events are left.
    pub(crate) fn end(&self) -> Option<WatchEnd> {
        self.ticket.end()
    }

    /// Counts an event that is about to be sent; `Some` when it may no longer be sent.
    pub(crate) fn count(&self) -> Option<WatchEnd> {
        let (left, how) = self.ticket.limit.as_ref()?;
        left.fetch_update(Ordering::AcqRel, Ordering::Acquire, |left| {
            left.checked_sub(1)
        })
        .err()
        .map(|_| *how)
    }

    /// Returns how the watch has to end because it has sent all allowed events, even without a further event.
    pub(crate) fn exhausted(&self) -> Option<WatchEnd> {
        let (left, how) = self.ticket.limit.as_ref()?;
        (left.load(Ordering::Acquire) == 0).then_some(*how)
    }

    /// Returns the newest version that the watch may see at present.
    pub(crate) fn version_limit(&mut self) -> Option<u64> {
        self.generation.borrow_and_update();
        let faults = &self.faults;
        if !faults.any() {
            return None;
        }
        let version_limit = |entry: &Entry| entry.version_limit(self.ticket.attributes());
        faults
            .rules()
            .entries
            .iter()
            .filter_map(version_limit)
            .min()
    }

    /// Waits until rules or tickets change.
    pub(crate) async fn changed(&mut self) {
        // the sender is part of the faults, which `self` holds
        let _ = self.generation.changed().await;
    }
}
