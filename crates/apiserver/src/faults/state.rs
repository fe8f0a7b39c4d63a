//! The faults that are set, and who they concern: rules, open watches, and whether the server is down.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;

use super::rule::{Entry, RequestAttributes, WatchEnd};
use super::ticket::Ticket;

/// The faults of a server.
#[derive(Debug)]
pub(crate) struct State {
    pub(super) rules: Mutex<Rules>,
    /// Number of rules, so that requests need no lock when there are no rules.
    pub(super) count: AtomicUsize,
    pub(super) tickets: Mutex<Tickets>,
    /// Counts changes of rules and tickets. Open watches and hanging requests check again when it rises.
    pub(super) generation: watch::Sender<u64>,
    /// Counts struck requests.
    pub(super) strikes: watch::Sender<u64>,
    /// Whether the server is to be down.
    pub(super) down: watch::Sender<bool>,
    /// Whether it listens.
    pub(super) listening: watch::Sender<bool>,
}

/// The rules, in the order in which they apply.
#[derive(Debug, Default)]
pub(super) struct Rules {
    pub(super) newest: u64,
    pub(super) entries: Vec<Entry>,
}

/// The tickets of open watches.
#[derive(Debug, Default)]
pub(super) struct Tickets {
    pub(super) newest: u64,
    pub(super) open: BTreeMap<u64, Arc<Ticket>>,
}

impl Default for State {
    fn default() -> Self {
        Self {
            rules: Mutex::default(),
            count: AtomicUsize::new(0),
            tickets: Mutex::default(),
            generation: watch::Sender::new(0),
            strikes: watch::Sender::new(0),
            down: watch::Sender::new(false),
            listening: watch::Sender::new(true),
        }
    }
}

impl State {
    /// Returns the rules, locked.
    pub(super) fn rules(&self) -> MutexGuard<'_, Rules> {
        // entries are replaced as whole values, so a panic elsewhere leaves nothing half-done
        self.rules.lock()
    }

    /// Returns the open watches, locked.
    pub(super) fn tickets(&self) -> MutexGuard<'_, Tickets> {
        self.tickets.lock()
    }

    /// Tells open watches and hanging requests to look again.
    pub(super) fn changed(&self) {
        self.generation.send_modify(|generation| *generation += 1);
    }

    /// Returns whether there is any rule.
    pub(super) fn any(&self) -> bool {
        self.count.load(Ordering::Acquire) > 0
    }

    /// Opens a ticket; it stays open until its watch ends.
    pub(super) fn open_ticket(
        &self,
        attributes: RequestAttributes,
        limit: Option<(u64, WatchEnd)>,
    ) -> Arc<Ticket> {
        let mut tickets = self.tickets();
        tickets.newest += 1;
        let ticket = Arc::new(Ticket::new(tickets.newest, attributes, limit));
        tickets.open.insert(ticket.id, Arc::clone(&ticket));
        ticket
    }

    /// Waits until the server is to be down.
    pub(crate) async fn wait_until_down(&self) {
        // the sender is a field of `self`, so it still exists
        let _ = self.down.subscribe().wait_for(|down| *down).await;
    }

    /// Waits until the server is to be up.
    pub(crate) async fn wait_until_up(&self) {
        let _ = self.down.subscribe().wait_for(|down| !*down).await;
    }

    /// Sets whether the server listens.
    pub(crate) fn set_listening(&self, listening: bool) {
        self.listening.send_replace(listening);
    }
}
