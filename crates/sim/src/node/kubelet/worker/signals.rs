//! Signals to a worker, and what each changes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{ContainerStateTerminated, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

use super::probes::{self, Outcome};
use super::slot::{BACKOFF_RESET, ephemeral};
use super::{Worker, version};
use crate::node::events::Kind;
use crate::node::launcher::Exit;
use crate::node::status::facts::Run;

/// A signal to the worker of a pod.
#[derive(Debug)]
pub(crate) enum Signal {
    /// The pod's object changed.
    Changed(Box<Pod>),
    /// The pod's object was removed.
    Gone,
    /// The mirror pod of a static pod changed or was removed.
    Mirror(Option<Box<Pod>>),
    /// The file of a static pod was removed.
    Removed,
    /// The kubelet ends the pod: reason and message.
    Evicted(String, String),
    /// A container's process ended.
    Exited {
        index: usize,
        attempt: i32,
        exit: Exit,
    },
    /// A probe has a new outcome.
    Probed {
        index: usize,
        attempt: i32,
        kind: probes::Kind,
        outcome: Outcome,
    },
    /// The `postStart` hook failed.
    HookFailed { index: usize, attempt: i32 },
    /// The `preStop` hook failed.
    PreStopFailed { index: usize },
    /// The managers have decided again about a change of resources that found no room.
    ResizeDecided,
}

impl Worker {
    /// Applies a signal.
    pub(super) fn apply_signal(&mut self, signal: Signal) {
        match signal {
            Signal::Changed(pod) => {
                if version(&pod) >= version(&self.pod) {
                    self.pod = *pod;
                    self.add_ephemeral();
                }
            }
            // The next round asks for the decision.
            Signal::ResizeDecided => {}
            Signal::Gone => self.is_gone = true,
            Signal::Mirror(mirror) => {
                let uid = |pod: Option<&Pod>| pod.and_then(|pod| pod.metadata.uid.clone());
                let mirror = mirror.map(|mirror| *mirror);
                self.must_rewrite |= uid(mirror.as_ref()) != uid(self.mirror.as_ref());
                self.mirror = mirror;
            }
            Signal::Removed => {
                let metadata = &mut self.pod.metadata;
                let now = || Time(Timestamp::now());
                metadata.deletion_timestamp.get_or_insert_with(now);
            }
            Signal::Evicted(reason, message) => {
                self.verdict.get_or_insert((reason, message));
            }
            Signal::Exited {
                index,
                attempt,
                exit,
            } => self.exited(index, attempt, exit),
            Signal::Probed {
                index,
                attempt,
                kind,
                outcome,
            } => self.probed(index, attempt, kind, &outcome),
            Signal::PreStopFailed { index } => {
                self.record_event(
                    index,
                    Kind::Warning,
                    "FailedPreStopHook",
                    "PreStopHook failed",
                );
            }
            Signal::HookFailed { index, attempt } => {
                if self.is_current(index, attempt) {
                    // The output of the hook may contain secrets.
                    let text = "PostStartHook failed";
                    self.record_event(index, Kind::Warning, "FailedPostStartHook", text);
                    self.kill(index, "FailedPostStartHook");
                }
            }
        }
    }

    /// Adds the ephemeral containers that were added to the pod.
    fn add_ephemeral(&mut self) {
        let spec = self.pod.spec.clone().unwrap_or_default();
        for slot in ephemeral(&spec) {
            let name = &slot.facts.container.name;
            let mut known = self.slots.iter().map(|slot| &slot.facts.container.name);
            if !known.any(|known| known == name) {
                self.slots.push(slot);
                self.prepared.push(Arc::default());
            }
        }
    }

    fn is_current(&self, index: usize, attempt: i32) -> bool {
        self.slots
            .get(index)
            .is_some_and(|slot| slot.facts.restarts == attempt && slot.facts.is_running())
    }

    fn exited(&mut self, index: usize, attempt: i32, exit: Exit) {
        if !self.is_current(index, attempt) {
            return;
        }
        let message = self.termination_message(index, exit.code);
        let slot = &mut self.slots[index];
        let Run::Running { since } = slot.facts.run else {
            return;
        };
        for watcher in slot.watchers.drain(..) {
            watcher.abort();
        }
        slot.process = None;
        slot.facts.ready = false;
        slot.facts.started = false;
        let ran = slot.began.map_or(Duration::ZERO, |began| began.elapsed());
        if ran > BACKOFF_RESET {
            slot.delay = Duration::ZERO;
        }
        slot.not_before = (!slot.must_restart).then(|| Instant::now() + slot.delay);
        slot.facts.run = Run::Exited(ContainerStateTerminated {
            exit_code: exit.code,
            reason: Some(if exit.code == 0 { "Completed" } else { "Error" }.to_owned()),
            message,
            started_at: Some(Time(since)),
            finished_at: Some(Time(exit.at)),
            container_id: slot.facts.id.clone(),
            signal: None,
        });
    }

    fn probed(&mut self, index: usize, attempt: i32, kind: probes::Kind, outcome: &Outcome) {
        if !self.is_current(index, attempt) {
            return;
        }
        if let Some(problem) = &outcome.problem {
            let text = format!("{} probe failed: {problem}", kind.name());
            self.record_event(index, Kind::Warning, "Unhealthy", text);
        }
        let Some(verdict) = outcome.verdict else {
            return;
        };
        let slot = &mut self.slots[index];
        match (kind, verdict) {
            (probes::Kind::Readiness, ready) => slot.facts.ready = ready,
            (probes::Kind::Startup, true) => {
                slot.facts.started = true;
                let has_readiness = slot.facts.container.readiness_probe.is_some();
                slot.facts.ready = !has_readiness;
                self.watch(index, false);
            }
            (probes::Kind::Startup, false) => {
                self.kill(
                    index,
                    "Container {} failed startup probe, will be restarted",
                );
            }
            (probes::Kind::Liveness, false) => {
                self.kill(
                    index,
                    "Container {} failed liveness probe, will be restarted",
                );
            }
            (probes::Kind::Liveness, true) => {}
        }
    }
}
