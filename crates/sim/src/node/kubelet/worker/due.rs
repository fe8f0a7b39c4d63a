//! Which containers of a pod are due to start, and when.

use std::time::Instant;

use super::Worker;
use crate::node::events::Kind;
use crate::node::status::facts::{Role, Run, restarts};

impl Worker {
    /// Starts the containers that are due, in order; returns when the next one is due.
    pub(super) async fn start_due(&mut self) -> Option<Instant> {
        let spec = self.pod.spec.clone().unwrap_or_default();
        let mut wake: Option<Instant> = None;
        let is_ephemeral = |index: &usize| self.slots[*index].facts.role == Role::Ephemeral;
        // Ephemeral containers wait for no other container.
        let (first, then): (Vec<_>, Vec<_>) = (0..self.slots.len()).partition(is_ephemeral);
        for index in first.into_iter().chain(then) {
            let facts = &self.slots[index].facts;
            let role = facts.role;
            if role == Role::App && !self.was_initialized {
                self.was_initialized = true;
            }
            if role == Role::Init && self.was_initialized {
                continue;
            }
            let is_due = match &facts.run {
                Run::Running { .. } => false,
                Run::Waiting { .. } => true,
                Run::Exited(end) => {
                    self.slots[index].must_restart || restarts(&spec, role, end.exit_code)
                }
            };
            if is_due {
                let later = self.start_or_wait(index).await;
                wake = match (wake, later) {
                    (Some(one), Some(other)) => Some(one.min(other)),
                    (one, other) => one.or(other),
                };
            }
            let facts = &self.slots[index].facts;
            let may_continue = match role {
                Role::Init => facts.exit_code() == Some(0),
                Role::Sidecar => self.was_initialized || (facts.is_running() && facts.started),
                Role::App | Role::Ephemeral => true,
            };
            if !may_continue {
                break;
            }
        }
        wake
    }

    /// Starts a container, unless it is in backoff; returns when to try again.
    async fn start_or_wait(&mut self, index: usize) -> Option<Instant> {
        let slot = &mut self.slots[index];
        if let Some(at) = slot.not_before
            && at > Instant::now()
        {
            if let Run::Exited(end) = &slot.facts.run {
                slot.facts.last = Some(end.clone());
                let text = format!(
                    "back-off {}s restarting failed container={} pod={}_{}({})",
                    slot.delay.as_secs(),
                    slot.facts.container.name,
                    self.pod.metadata.name.as_deref().unwrap_or_default(),
                    self.pod.metadata.namespace.as_deref().unwrap_or_default(),
                    self.uid,
                );
                slot.facts.run = Run::Waiting {
                    reason: "CrashLoopBackOff".to_owned(),
                    message: Some(text),
                };
                let text = format!(
                    "Back-off restarting failed container {} in pod {}_{}({})",
                    slot.facts.container.name,
                    self.pod.metadata.name.as_deref().unwrap_or_default(),
                    self.pod.metadata.namespace.as_deref().unwrap_or_default(),
                    self.uid,
                );
                self.record_event(index, Kind::Warning, "BackOff", text);
            }
            return Some(at);
        }
        self.start(index).await
    }

    /// Returns whether no app container will run again.
    pub(super) fn has_ended(&self) -> bool {
        let Some(spec) = self.spec() else {
            return false;
        };
        let mut apps = self
            .slots
            .iter()
            .filter(|slot| slot.facts.role == Role::App);
        let init_failed = self.slots.iter().any(|slot| {
            slot.facts.role == Role::Init
                && slot
                    .facts
                    .exit_code()
                    .is_some_and(|code| code != 0 && !restarts(spec, slot.facts.role, code))
        });
        init_failed
            || apps.all(|slot| {
                let code = slot.facts.exit_code();
                code.is_some_and(|code| !restarts(spec, slot.facts.role, code))
            })
    }
}
