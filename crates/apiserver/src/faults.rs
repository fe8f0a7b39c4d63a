//! Faults on demand, as a server, a load balancer or a network can cause them.
//!
//! A [`Rule`] says which requests it matches ([`Selector`]), which of those it strikes (it can skip the first ones, stop after a number,
//! and draw a share with a seed), and what happens to them ([`Fault`]). Rules apply in the order in which they were added: delays add up,
//! and the first fault that decides the outcome ends the search. Apart from rules, open watches can be ended and the server can be taken
//! down at any moment.
//!
//! Module `http` offers the same below `/testing`, for members of `system:masters`.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use super::Shared;

pub(crate) mod http;
mod outcome;
mod rule;
mod ticket;

pub(crate) use self::outcome::{Effects, Outcome, apply_rules};
use self::rule::Entry;
pub use self::rule::{Fault, Rule, RuleId, RuleStatus, Selector, WatchEnd};
pub(crate) use self::ticket::OpenWatch;
use self::ticket::Ticket;

/// The faults of a server.
#[derive(Debug)]
pub(crate) struct State {
    rules: Mutex<Rules>,
    /// Number of rules, so that requests need no lock when there are no rules.
    count: AtomicUsize,
    tickets: Mutex<Tickets>,
    /// Counts changes of rules and tickets. Open watches and hanging requests check again when it rises.
    generation: watch::Sender<u64>,
    /// Counts struck requests.
    strikes: watch::Sender<u64>,
    /// Whether the server is to be down.
    down: watch::Sender<bool>,
    /// Whether it listens.
    listening: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct Rules {
    newest: u64,
    entries: Vec<Entry>,
}

#[derive(Debug, Default)]
struct Tickets {
    newest: u64,
    open: BTreeMap<u64, Arc<Ticket>>,
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
    fn rules(&self) -> MutexGuard<'_, Rules> {
        // entries are replaced as whole values, so a panic elsewhere leaves nothing half-done
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tickets(&self) -> MutexGuard<'_, Tickets> {
        self.tickets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn changed(&self) {
        self.generation.send_modify(|generation| *generation += 1);
    }

    /// Returns whether there is any rule.
    fn any(&self) -> bool {
        self.count.load(Ordering::Acquire) > 0
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

/// The faults of a running server.
#[derive(Clone, Debug)]
pub struct Faults {
    shared: Arc<Shared>,
}

impl Faults {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    fn state(&self) -> &State {
        &self.shared.faults
    }

    /// Adds a rule. A rule that freezes reads does so at the present version.
    pub fn add(&self, rule: Rule) -> RuleId {
        let version = self.shared.store.lock().version();
        let id = {
            let mut rules = self.state().rules();
            rules.newest += 1;
            let id = RuleId(rules.newest);
            rules.entries.push(Entry::new(id, rule, version));
            self.state()
                .count
                .store(rules.entries.len(), Ordering::Release);
            id
        };
        self.state().changed();
        id
    }

    /// Removes a rule and returns its status. Requests that it holds are answered, and reads that it froze see new state again.
    pub fn remove(&self, id: RuleId) -> Option<RuleStatus> {
        let removed = {
            let mut rules = self.state().rules();
            let place = rules.entries.iter().position(|entry| entry.id == id)?;
            let removed = rules.entries.remove(place);
            self.state()
                .count
                .store(rules.entries.len(), Ordering::Release);
            removed
        };
        self.state().changed();
        Some(removed.status())
    }

    /// Removes all rules.
    pub fn clear(&self) {
        self.state().rules().entries.clear();
        self.state().count.store(0, Ordering::Release);
        self.state().changed();
    }

    /// Returns the rules with their status, in the order in which they apply.
    pub fn rules(&self) -> Vec<RuleStatus> {
        let rules = self.state().rules();
        rules.entries.iter().map(Entry::status).collect()
    }

    /// Returns how many requests a rule has struck; 0 for a rule that no longer exists.
    pub fn hits(&self, id: RuleId) -> u64 {
        let rules = self.state().rules();
        let entry = rules.entries.iter().find(|entry| entry.id == id);
        entry.map_or(0, |entry| entry.status().hits)
    }

    /// Waits until a rule has struck that many requests, or no longer exists.
    pub async fn wait_for_hits(&self, id: RuleId, hits: u64) {
        let there = || self.state().rules().entries.iter().any(|e| e.id == id);
        let mut strikes = self.state().strikes.subscribe();
        let mut generation = self.state().generation.subscribe();
        while there() && self.hits(id) < hits {
            tokio::select! {
                _ = strikes.changed() => {}
                _ = generation.changed() => {}
            }
        }
    }

    /// Ends the open watches that match a selector, and returns how many they are.
    pub fn end_watches(&self, which: &Selector, how: WatchEnd) -> usize {
        let ended = {
            let tickets = self.state().tickets();
            let those = tickets.open.values();
            those
                .filter(|ticket| which.matches(ticket.attributes()) && ticket.end_now(how))
                .count()
        };
        self.state().changed();
        ended
    }

    /// Returns how many open watches match a selector.
    pub fn open_watches(&self, which: &Selector) -> usize {
        let tickets = self.state().tickets();
        let those = tickets.open.values();
        those
            .filter(|ticket| which.matches(ticket.attributes()))
            .count()
    }

    /// Drops the history: watches from earlier versions, and lists that continue from them, are refused as expired.
    pub fn compact(&self) {
        self.shared.store.lock().compact();
    }

    /// Takes the server down: all connections end, and new ones are refused. Objects are kept. Returns when the server is down.
    pub async fn down(&self) {
        self.state().down.send_replace(true);
        let _ = self.state().listening.subscribe().wait_for(|on| !*on).await;
    }

    /// Brings the server back on the same port. Returns when it listens.
    pub async fn up(&self) {
        self.state().down.send_replace(false);
        let _ = self.state().listening.subscribe().wait_for(|on| *on).await;
    }

    /// Returns whether the server listens.
    pub fn is_up(&self) -> bool {
        *self.state().listening.borrow()
    }

    /// Takes the server down for a time. Returns when it is back.
    pub async fn outage(&self, length: Duration) {
        self.down().await;
        tokio::time::sleep(length).await;
        self.up().await;
    }
}
