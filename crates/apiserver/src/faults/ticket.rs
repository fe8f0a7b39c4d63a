//! Tickets of open watches, through which faults end watches or hold them back.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;

use super::rule::{Entry, RequestAttributes, WatchEnd};
use crate::Shared;

/// An open watch.
#[derive(Debug)]
pub(crate) struct Ticket {
    id: u64,
    attributes: RequestAttributes,
    /// How many events may still be sent, and how the watch ends then.
    limit: Option<(AtomicU64, WatchEnd)>,
    ended: Mutex<Option<WatchEnd>>,
}

impl Ticket {
    /// Opens a ticket; it stays open until its [`OpenWatch`] is dropped.
    pub(crate) fn open(
        shared: &Arc<Shared>,
        attributes: RequestAttributes,
        limit: Option<(u64, WatchEnd)>,
    ) -> Arc<Self> {
        let mut tickets = shared.faults.tickets();
        tickets.newest += 1;
        let ticket = Arc::new(Self {
            id: tickets.newest,
            attributes,
            limit: limit.map(|(events, how)| (AtomicU64::new(events), how)),
            ended: Mutex::default(),
        });
        tickets.open.insert(ticket.id, Arc::clone(&ticket));
        ticket
    }

    pub(crate) fn attributes(&self) -> &RequestAttributes {
        &self.attributes
    }

    /// Ends the watch; returns false when it was ended before.
    pub(crate) fn end_now(&self, how: WatchEnd) -> bool {
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        let first = ended.is_none();
        ended.get_or_insert(how);
        first
    }

    /// Returns how the watch was ended.
    fn end(&self) -> Option<WatchEnd> {
        *self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The ticket as its watch holds it.
#[derive(Debug)]
pub(crate) struct OpenWatch {
    shared: Arc<Shared>,
    ticket: Arc<Ticket>,
    generation: watch::Receiver<u64>,
}

impl Drop for OpenWatch {
    fn drop(&mut self) {
        self.shared.faults.tickets().open.remove(&self.ticket.id);
    }
}

impl OpenWatch {
    pub(crate) fn new(shared: &Arc<Shared>, ticket: Arc<Ticket>) -> Self {
        Self {
            shared: Arc::clone(shared),
            ticket,
            generation: shared.faults.generation.subscribe(),
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
        let faults = &self.shared.faults;
        if !faults.any() {
            return None;
        }
        let version_limit = |entry: &Entry| entry.version_limit(&self.ticket.attributes);
        faults
            .rules()
            .entries
            .iter()
            .filter_map(version_limit)
            .min()
    }

    /// Waits until rules or tickets change.
    pub(crate) async fn changed(&mut self) {
        // the sender is part of the shared state, which `self` holds
        let _ = self.generation.changed().await;
    }
}
