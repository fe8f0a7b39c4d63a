//! Pods that wait for a node (scheduler.md 7.6).
//!
//! A pod is ready, or it sleeps after a failed attempt. It wakes when its backoff ends, at the latest after the longest backoff, or when
//! something changed that may help it. Such a pod does not wait for the end of its backoff if no other pod is ready. The attempt itself
//! is synchronous, so no event is lost between the attempt and the sleep.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use tokio::time::Instant;

use crate::plugins::plugin::Plugins;
use crate::state::pod::PodKey;

mod moves;

pub use moves::{Cause, Lengths, Part};

/// Shortest time between two changes that start the backoff of a pod over. Where changes come every few seconds, thousands of pods that fit
/// nowhere would otherwise be ready again a second after each attempt, and a new pod would wait for one turn of them all.
const RESTART: Duration = Duration::from_mins(1);

/// Limits of the backoff.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// Backoff after the first failed attempt.
    pub initial: Duration,
    /// Longest backoff.
    pub maximum: Duration,
}

impl Backoff {
    /// Returns the backoff after the n-th failed attempt in a row, n from 1. It doubles each time.
    fn after(self, attempts: u32) -> Duration {
        let doublings = attempts.saturating_sub(1).min(20);
        (self.initial * 2_u32.pow(doublings)).min(self.maximum)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// In `ready`.
    Ready,
    /// In `asleep`; events that these plugins wait for wake it.
    Asleep { rejected_by: Plugins },
    /// In `asleep` and in `woken`: something changed that may help it.
    Woken,
    /// Held back by its scheduling gates.
    Gated,
    /// Popped: an attempt or its binding is in progress.
    InFlight,
}

#[derive(Debug)]
struct Item {
    uid: String,
    priority: i32,
    /// Number of the last failed attempt, or of the addition: those of one priority have their turns in this order.
    order: u64,
    state: State,
    wake: Instant,
    /// Failed attempts since the backoff last started over.
    failures: u32,
    /// When a change last started the backoff over.
    restarted: Option<Instant>,
    /// All attempts.
    attempts: u32,
    since: Instant,
}

/// A pod to try now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Popped {
    /// The pod.
    pub key: PodKey,
    /// Attempts so far, including this one.
    pub attempts: u32,
    /// When it was first queued.
    pub since: Instant,
}

/// The queue.
#[derive(Debug)]
pub struct Queue {
    backoff: Backoff,
    items: HashMap<PodKey, Item>,
    ready: BTreeSet<(Reverse<i32>, u64, PodKey)>,
    asleep: BTreeSet<(Instant, PodKey)>,
    woken: BTreeSet<(Instant, PodKey)>,
    last_order: u64,
    /// Number of moves by part and cause since the last call of [`Queue::take_moves`].
    moves: BTreeMap<(Part, Cause), u64>,
}

impl Queue {
    /// Creates an empty queue.
    pub fn new(backoff: Backoff) -> Self {
        Self {
            backoff,
            items: HashMap::new(),
            ready: BTreeSet::new(),
            asleep: BTreeSet::new(),
            woken: BTreeSet::new(),
            last_order: 0,
            moves: BTreeMap::new(),
        }
    }

    /// Adds a pod or applies its change: gates may have been removed, the priority may differ. A pod with another uid starts anew.
    pub fn upsert(&mut self, key: &PodKey, uid: &str, priority: i32, gated: bool, now: Instant) {
        if self.items.get(key).is_some_and(|item| item.uid != uid) {
            self.remove(key);
        }
        match self.items.get_mut(key) {
            Some(item) if item.state == State::InFlight => item.priority = priority,
            Some(item) if (item.state == State::Gated) == gated && item.priority == priority => {}
            Some(item) => {
                let was_gated = item.state == State::Gated;
                self.unlist(key);
                let Some(item) = self.items.get_mut(key) else {
                    return;
                };
                item.priority = priority;
                if gated {
                    item.state = State::Gated;
                    self.note(Part::Gated, Cause::PodUpdated);
                } else if was_gated {
                    self.list_ready(key);
                    self.note(Part::Active, Cause::PodUpdated);
                } else {
                    self.relist(key);
                }
            }
            None => {
                self.last_order += 1;
                let item = Item {
                    uid: uid.to_owned(),
                    priority,
                    order: self.last_order,
                    state: State::Gated,
                    wake: now,
                    failures: 0,
                    restarted: None,
                    attempts: 0,
                    since: now,
                };
                self.items.insert(key.clone(), item);
                if gated {
                    self.note(Part::Gated, Cause::PodAdded);
                } else {
                    self.list_ready(key);
                    self.note(Part::Active, Cause::PodAdded);
                }
            }
        }
    }

    /// Removes a pod. Returns whether it was in the queue.
    pub fn remove(&mut self, key: &PodKey) -> bool {
        self.unlist(key);
        self.items.remove(key).is_some()
    }

    /// Returns whether the pod of that uid is in the queue, and not another of its name.
    pub fn holds(&self, key: &PodKey, uid: &str) -> bool {
        self.items.get(key).is_some_and(|item| item.uid == uid)
    }

    /// Wakes a sleeping pod, because something changed that may make it fit.
    pub fn wake(&mut self, key: &PodKey, cause: Cause, now: Instant) {
        if self
            .items
            .get(key)
            .is_some_and(|item| matches!(item.state, State::Asleep { .. }))
        {
            self.wake_one(key, cause, now);
        }
    }

    /// Wakes the sleeping pods rejected by any of `plugins`, because something changed that they wait for.
    pub fn wake_rejected_by(&mut self, plugins: Plugins, cause: Cause, now: Instant) {
        let woken: Vec<PodKey> = self
            .asleep
            .iter()
            .map(|(_, key)| key)
            .filter(|key| {
                self.items.get(*key).is_some_and(
                    |item| matches!(item.state, State::Asleep { rejected_by } if rejected_by.intersects(plugins)),
                )
            })
            .cloned()
            .collect();
        for key in &woken {
            self.wake_one(key, cause, now);
        }
    }

    /// Returns the pod to try now, if any: of the ready pods the one with the highest priority whose last attempt, or creation, was first
    /// (scheduler.md 7.6). So a new pod has its turn however many old ones fail again and again. If none is ready, a sleeping pod for which
    /// something changed.
    pub fn pop(&mut self, now: Instant) -> Option<Popped> {
        while let Some((wake, key)) = self.asleep.first().cloned() {
            if wake > now {
                break;
            }
            self.unlist(&key);
            self.list_ready(&key);
            self.note(Part::Active, Cause::BackoffEnded);
        }
        let ready = self.ready.first().map(|(_, _, key)| key.clone());
        let key = ready.or_else(|| self.woken.first().map(|(_, key)| key.clone()))?;
        self.unlist(&key);
        let item = self.items.get_mut(&key)?;
        item.state = State::InFlight;
        item.attempts += 1;
        Some(Popped {
            attempts: item.attempts,
            since: item.since,
            key,
        })
    }

    /// Records a failed attempt: the pod sleeps until its backoff ends or something changes for one of `rejected_by`.
    pub fn failed(&mut self, key: &PodKey, rejected_by: Plugins, now: Instant) {
        let Some(item) = self.items.get_mut(key) else {
            return;
        };
        if item.state != State::InFlight {
            return;
        }
        // it had its turn: those that wait for theirs go first
        self.last_order += 1;
        item.order = self.last_order;
        item.failures += 1;
        item.wake = now + self.backoff.after(item.failures);
        item.state = State::Asleep { rejected_by };
        self.asleep.insert((item.wake, key.clone()));
        self.note(Part::Unschedulable, Cause::AttemptFailed);
    }

    /// Returns whether [`Queue::pop`] has a pod now, without waiting for a sleeping one.
    pub fn is_ready(&self) -> bool {
        !self.ready.is_empty() || !self.woken.is_empty()
    }

    /// Returns when the next sleeping pod wakes.
    pub fn next_wake(&self) -> Option<Instant> {
        self.asleep.first().map(|(wake, _)| *wake)
    }

    /// Returns the lengths for the metrics.
    pub fn lengths(&self) -> Lengths {
        let gated = self
            .items
            .values()
            .filter(|item| item.state == State::Gated)
            .count();
        Lengths {
            active: self.ready.len(),
            backoff: self.woken.len(),
            unschedulable: self.asleep.len() - self.woken.len(),
            gated,
        }
    }

    /// Returns the number of moves by part and cause since the last call.
    pub fn take_moves(&mut self) -> BTreeMap<(Part, Cause), u64> {
        std::mem::take(&mut self.moves)
    }

    /// Iterates over the sleeping pods with the plugins that ruled out nodes for them.
    pub fn rejected(&self) -> impl Iterator<Item = (&PodKey, Plugins)> {
        self.asleep
            .iter()
            .filter_map(|(_, key)| match self.items.get(key)?.state {
                State::Asleep { rejected_by } => Some((key, rejected_by)),
                _ => None,
            })
    }

    fn note(&mut self, part: Part, cause: Cause) {
        *self.moves.entry((part, cause)).or_default() += 1;
    }

    fn wake_one(&mut self, key: &PodKey, cause: Cause, now: Instant) {
        let Some(item) = self.items.get_mut(key) else {
            return;
        };
        item.state = State::Woken;
        // Earlier failures say nothing about the new situation, unless it changes all the time.
        if item
            .restarted
            .is_none_or(|restarted| now >= restarted + RESTART)
        {
            item.failures = 0;
            item.restarted = Some(now);
        }
        self.woken.insert((item.wake, key.clone()));
        self.note(Part::Backoff, cause);
    }

    fn list_ready(&mut self, key: &PodKey) {
        let Some(item) = self.items.get_mut(key) else {
            return;
        };
        item.state = State::Ready;
        self.ready
            .insert((Reverse(item.priority), item.order, key.clone()));
    }

    /// Puts a pod back into the lists of its state after its priority changed.
    fn relist(&mut self, key: &PodKey) {
        let Some(item) = self.items.get(key) else {
            return;
        };
        match item.state {
            State::Ready => drop(self.ready.insert((
                Reverse(item.priority),
                item.order,
                key.clone(),
            ))),
            State::Asleep { .. } => drop(self.asleep.insert((item.wake, key.clone()))),
            State::Woken => {
                self.asleep.insert((item.wake, key.clone()));
                self.woken.insert((item.wake, key.clone()));
            }
            State::Gated | State::InFlight => {}
        }
    }

    fn unlist(&mut self, key: &PodKey) {
        let Some(item) = self.items.get(key) else {
            return;
        };
        self.ready
            .remove(&(Reverse(item.priority), item.order, key.clone()));
        self.asleep.remove(&(item.wake, key.clone()));
        self.woken.remove(&(item.wake, key.clone()));
    }
}

#[cfg(test)]
mod tests;
