//! Start of a container.

mod prepare;
mod pull;

use std::sync::Arc;
use std::time::Instant;

use cri_runtime::logs::LogFile;
use k8s_openapi::api::core::v1::ContainerStateTerminated;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

use super::signals::Signal;
use super::slot::{FIRST_BACKOFF, LONGEST_BACKOFF};
use super::{Worker, hooks, probes};
use crate::node::events::Kind;
use crate::node::launcher::Input;
use crate::node::status::facts::{Role, Run};

impl Worker {
    /// Starts a container now; returns when to try again if that fails.
    pub(super) async fn start(&mut self, index: usize) -> Option<Instant> {
        let container = self.slots[index].facts.container.clone();
        let image = match self.pull(index, &container) {
            Ok(image) => image,
            Err(again) => return Some(again),
        };
        let argv = match self.prepare(index, &container, &image).await {
            Ok(argv) => argv,
            Err(problem) => {
                self.set_waiting(index, "CreateContainerConfigError", &problem);
                self.record_event(index, Kind::Warning, "Failed", format!("Error: {problem}"));
                return Some(Instant::now() + FIRST_BACKOFF);
            }
        };
        let slot = &mut self.slots[index];
        let is_restart = slot.facts.id.is_some();
        let is_resized = std::mem::take(&mut slot.must_restart);
        if is_restart {
            slot.facts.restarts += 1;
            slot.delay = if is_resized {
                slot.delay
            } else if slot.delay.is_zero() {
                FIRST_BACKOFF
            } else {
                (slot.delay * 2).min(LONGEST_BACKOFF)
            };
            if let Run::Exited(end) = &slot.facts.run {
                slot.facts.last = Some(end.clone());
            }
        }
        let name = format!(
            "{}{}",
            uuid::Uuid::new_v4().simple(),
            uuid::Uuid::new_v4().simple()
        );
        slot.facts.id = Some(format!("numaresources-testbed://{name}"));
        slot.facts.image_id = Some(image.digest_reference.clone());
        slot.not_before = None;
        let attempt = slot.facts.restarts;
        self.record_event(index, Kind::Normal, "Created", "Container created");
        match self.spawn(index, &argv, attempt).await {
            Ok(()) => {
                self.record_event(index, Kind::Normal, "Started", "Container started");
                if self.slots[index].facts.role != Role::Ephemeral {
                    self.kubelet.managers.started(&self.uid, &container.name);
                }
                self.hook(index, attempt);
                self.watch(index, true);
                None
            }
            Err(problem) => Some(self.record_start_failure(index, &problem)),
        }
    }

    fn set_waiting(&mut self, index: usize, reason: &str, message: &str) {
        self.slots[index].facts.run = Run::Waiting {
            reason: reason.to_owned(),
            message: Some(message.to_owned()),
        };
    }

    /// Starts the process.
    async fn spawn(&mut self, index: usize, argv: &[String], attempt: i32) -> Result<(), String> {
        let prepared = &self.prepared[index];
        let mut launch = prepared.launch(argv).map_err(|error| error.to_string())?;
        let container = &self.slots[index].facts.container;
        launch.input = match (container.stdin, container.stdin_once) {
            (Some(true), Some(true)) => Input::Once,
            (Some(true), _) => Input::Open,
            _ => Input::None,
        };
        // An earlier attempt may have left a message.
        let _ = std::fs::remove_file(&prepared.messages);
        let log = prepared.log.join(format!("{attempt}.log"));
        let log = LogFile::open(&log).map_err(|error| error.to_string())?;
        let process = self
            .kubelet
            .launcher
            .start_logged(&launch, Arc::new(log))
            .await
            .map_err(|error| error.to_string())?;
        let (ended, sender) = (process.clone(), self.sender.clone());
        tokio::spawn(async move {
            let exit = ended.ended().await;
            // The pod may be gone by now.
            let _ = sender.send(Signal::Exited {
                index,
                attempt,
                exit,
            });
        });
        let slot = &mut self.slots[index];
        let container = &slot.facts.container;
        slot.facts.started = container.startup_probe.is_none();
        slot.facts.ready = slot.facts.started && container.readiness_probe.is_none();
        slot.facts.run = Run::Running {
            since: Timestamp::now(),
        };
        slot.facts.actual = container.resources.clone().unwrap_or_default();
        slot.began = Some(Instant::now());
        slot.process = Some(process);
        Ok(())
    }

    /// Records that a container could not be started; returns when to try again.
    fn record_start_failure(&mut self, index: usize, problem: &str) -> Instant {
        self.record_event(index, Kind::Warning, "Failed", format!("Error: {problem}"));
        let slot = &mut self.slots[index];
        let again = Instant::now() + slot.delay;
        slot.not_before = Some(again);
        slot.facts.last = Some(ContainerStateTerminated {
            exit_code: 128,
            reason: Some("StartError".to_owned()),
            message: Some(problem.to_owned()),
            started_at: Some(Time(Timestamp::UNIX_EPOCH)),
            finished_at: Some(Time(Timestamp::now())),
            container_id: slot.facts.id.clone(),
            signal: None,
        });
        self.set_waiting(index, "RunContainerError", problem);
        again
    }

    /// Runs the `postStart` hook.
    fn hook(&mut self, index: usize, attempt: i32) {
        let container = self.slots[index].facts.container.clone();
        let hooks = container.lifecycle.as_ref();
        let Some(hook) = hooks.and_then(|hooks| hooks.post_start.clone()) else {
            return;
        };
        let (kubelet, prepared) = (Arc::clone(&self.kubelet), Arc::clone(&self.prepared[index]));
        let address = self.address.unwrap_or_else(|| kubelet.addresses.node());
        let sender = self.sender.clone();
        tokio::spawn(async move {
            let done = hooks::run(&kubelet, &prepared, &container, address, &hook).await;
            if let Err(problem) = done {
                tracing::debug!(problem, "Hook after the start of a container failed");
                // The pod may be gone by now.
                let _ = sender.send(Signal::HookFailed { index, attempt });
            }
        });
    }

    /// Starts the probes of a running container. With a startup probe only that one starts first, until it succeeds.
    pub(super) fn watch(&mut self, index: usize, begins: bool) {
        let slot = &self.slots[index];
        let container = &slot.facts.container;
        let all = [
            (probes::Kind::Startup, container.startup_probe.clone()),
            (probes::Kind::Liveness, container.liveness_probe.clone()),
            (probes::Kind::Readiness, container.readiness_probe.clone()),
        ];
        let has_startup = container.startup_probe.is_some();
        let due = all.into_iter().filter(|(kind, _)| {
            let is_startup = *kind == probes::Kind::Startup;
            (begins && has_startup) == is_startup
        });
        let tasks: Vec<_> = due
            .filter_map(|(kind, probe)| {
                let probe = probes::Subject {
                    kind,
                    probe: probe?,
                    address: self
                        .address
                        .unwrap_or_else(|| self.kubelet.addresses.node()),
                    container: container.clone(),
                    prepared: Arc::clone(&self.prepared[index]),
                    began: slot.began.unwrap_or_else(Instant::now),
                };
                let (kubelet, sender) = (Arc::clone(&self.kubelet), self.sender.clone());
                let attempt = slot.facts.restarts;
                Some(tokio::spawn(probes::run(kubelet, probe, move |outcome| {
                    let _ = sender.send(Signal::Probed {
                        index,
                        attempt,
                        kind,
                        outcome,
                    });
                })))
            })
            .collect();
        self.slots[index].watchers.extend(tasks);
    }
}
