//! The handle with which tests set faults and take them away.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::rule::{Entry, Rule, RuleId, RuleStatus, Selector, WatchEnd};
use super::state::State;
use crate::storage::Store;

/// The faults of a running server.
#[derive(Clone, Debug)]
pub struct Faults {
    state: Arc<State>,
    store: Arc<Store>,
}

impl Faults {
    pub(crate) fn new(state: Arc<State>, store: Arc<Store>) -> Self {
        Self { state, store }
    }

    /// Adds a rule. A rule that freezes reads does so at the present version.
    pub fn add(&self, rule: Rule) -> RuleId {
        let version = self.store.lock().version();
        let id = {
            let mut rules = self.state.rules();
            rules.newest += 1;
            let id = RuleId(rules.newest);
            rules.entries.push(Entry::new(id, rule, version));
            self.state
                .count
                .store(rules.entries.len(), Ordering::Release);
            id
        };
        self.state.changed();
        id
    }

    /// Removes a rule and returns its status. Requests that it holds are answered, and reads that it froze see new state again.
    pub fn remove(&self, id: RuleId) -> Option<RuleStatus> {
        let removed = {
            let mut rules = self.state.rules();
            let place = rules.entries.iter().position(|entry| entry.id == id)?;
            let removed = rules.entries.remove(place);
            self.state
                .count
                .store(rules.entries.len(), Ordering::Release);
            removed
        };
        self.state.changed();
        Some(removed.status())
    }

    /// Removes all rules.
    pub fn clear(&self) {
        self.state.rules().entries.clear();
        self.state.count.store(0, Ordering::Release);
        self.state.changed();
    }

    /// Returns the rules with their status, in the order in which they apply.
    pub fn rules(&self) -> Vec<RuleStatus> {
        let rules = self.state.rules();
        rules.entries.iter().map(Entry::status).collect()
    }

    /// Returns how many requests a rule has struck; 0 for a rule that no longer exists.
    pub fn hits(&self, id: RuleId) -> u64 {
        let rules = self.state.rules();
        let entry = rules.entries.iter().find(|entry| entry.id == id);
        entry.map_or(0, |entry| entry.status().hits)
    }

    /// Waits until a rule has struck that many requests, or no longer exists.
    pub async fn wait_for_hits(&self, id: RuleId, hits: u64) {
        let there = || self.state.rules().entries.iter().any(|e| e.id == id);
        let mut strikes = self.state.strikes.subscribe();
        let mut generation = self.state.generation.subscribe();
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
            let tickets = self.state.tickets();
            let those = tickets.open.values();
            those
                .filter(|ticket| which.matches(ticket.attributes()) && ticket.end_now(how))
                .count()
        };
        self.state.changed();
        ended
    }

    /// Returns how many open watches match a selector.
    pub fn open_watches(&self, which: &Selector) -> usize {
        let tickets = self.state.tickets();
        let those = tickets.open.values();
        those
            .filter(|ticket| which.matches(ticket.attributes()))
            .count()
    }

    /// Drops the history: watches from earlier versions, and lists that continue from them, are refused as expired.
    pub fn compact(&self) {
        self.store.lock().compact();
    }

    /// Takes the server down: all connections end, and new ones are refused. Objects are kept. Returns when the server is down.
    pub async fn down(&self) {
        self.state.down.send_replace(true);
        let _ = self.state.listening.subscribe().wait_for(|on| !*on).await;
    }

    /// Lets the server come back on the same port, and does not wait for it.
    pub fn let_up(&self) {
        self.state.down.send_replace(false);
    }

    /// Brings the server back on the same port. Returns when it listens.
    pub async fn up(&self) {
        self.let_up();
        let _ = self.state.listening.subscribe().wait_for(|on| *on).await;
    }

    /// Returns whether the server listens.
    pub fn is_up(&self) -> bool {
        *self.state.listening.borrow()
    }

    /// Takes the server down for a time. Returns when it is back.
    pub async fn outage(&self, length: Duration) {
        self.down().await;
        tokio::time::sleep(length).await;
        self.up().await;
    }
}
