//! Stop of a pod: hooks, `SIGTERM`, and `SIGKILL` after the grace period.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ContainerStateTerminated;
use kube::api::{Api, DeleteParams, Preconditions};
use nix::sys::signal::Signal as Number;

use super::signals::Signal;
use super::{Next, Worker, hooks, sleep_until};
use crate::node::events::Kind;
use crate::node::kubelet::static_pods;
use crate::node::status::facts::{Role, Run};

/// Minimum grace period.
const MIN_GRACE: Duration = Duration::from_secs(2);
/// Time limit for a killed process to be gone.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);
/// Time until a failed request to the API server is repeated.
pub(super) const RETRY_DELAY: Duration = Duration::from_secs(1);
/// Grace period of pods without one, in seconds.
const DEFAULT_GRACE: i64 = 30;

impl Worker {
    /// Stops every container: first all but the sidecars together, then the sidecars from the last to the first.
    pub(super) async fn stop(&mut self) {
        let apps: Vec<usize> = self.indices(|role| role != Role::Sidecar);
        self.stop_all(&apps).await;
        for index in self.indices(|role| role == Role::Sidecar).into_iter().rev() {
            self.stop_all(&[index]).await;
        }
        for slot in &mut self.slots {
            let never_ran = slot.facts.last.is_none() && slot.facts.id.is_none();
            let is_ending =
                self.verdict.is_some() || self.pod.metadata.deletion_timestamp.is_some();
            match &slot.facts.run {
                Run::Waiting { .. } if never_ran && is_ending => {
                    slot.facts.run = Run::Exited(ContainerStateTerminated {
                        exit_code: 137,
                        reason: Some("ContainerStatusUnknown".to_owned()),
                        message: Some(
                            "The container could not be located when the pod was terminated"
                                .to_owned(),
                        ),
                        ..ContainerStateTerminated::default()
                    });
                }
                // A container that waited for its next start counts as ended.
                Run::Waiting { .. } if !never_ran => {
                    if let Some(last) = slot.facts.last.take() {
                        slot.facts.run = Run::Exited(last);
                    }
                }
                _ => {}
            }
        }
        if let Some(refresher) = self.refresher.take() {
            refresher.abort();
        }
        self.has_sandbox = false;
        self.is_over = true;
        self.kubelet.managers.stopped(&self.uid);
        self.kubelet.retry_resizes();
        if let Some(address) = self.address
            && address != self.kubelet.addresses.node()
        {
            self.kubelet.addresses.give_back(address);
        }
        let layout = &self.kubelet.layout;
        let directories = [layout.containers(&self.uid), layout.pod(&self.uid)];
        // The removal may take long on a slow disk, and it must not block the threads of the runtime.
        let removed = tokio::task::spawn_blocking(move || remove(&directories)).await;
        if let Err(error) = removed {
            tracing::debug!(%error, "Files of a pod were not removed");
        }
    }

    fn indices(&self, is_meant: impl Fn(Role) -> bool) -> Vec<usize> {
        let slots = self.slots.iter().enumerate();
        slots
            .filter(|(_, slot)| slot.facts.is_running() && is_meant(slot.facts.role))
            .map(|(index, _)| index)
            .collect()
    }

    /// Returns the current grace period; a second deletion may have shortened it.
    fn grace(&self) -> Duration {
        let own = self
            .spec()
            .and_then(|spec| spec.termination_grace_period_seconds)
            .unwrap_or(DEFAULT_GRACE);
        let metadata = &self.pod.metadata;
        let asked = metadata.deletion_grace_period_seconds.unwrap_or(own);
        let seconds = if self.is_gone { 0 } else { asked };
        Duration::from_secs(seconds.unsigned_abs()).max(MIN_GRACE)
    }

    async fn stop_all(&mut self, indices: &[usize]) {
        let begun = Instant::now();
        for &index in indices {
            let name = self.slots[index].facts.container.name.clone();
            self.record_event(
                index,
                Kind::Normal,
                "Killing",
                format!("Stopping container {name}"),
            );
            self.terminate(index);
        }
        let mut killed: Option<Instant> = None;
        loop {
            let running: Vec<usize> = indices
                .iter()
                .copied()
                .filter(|index| self.slots[*index].facts.is_running())
                .collect();
            if running.is_empty() {
                return;
            }
            let end = begun + self.grace();
            if end <= Instant::now() && killed.is_none() {
                for &index in &running {
                    if let Some(process) = &self.slots[index].process {
                        // The process may have ended at this moment.
                        let _ = process.signal_all(Number::SIGKILL);
                    }
                }
                killed = Some(Instant::now() + KILL_TIMEOUT);
            }
            if killed.is_some_and(|until| until <= Instant::now()) {
                tracing::warn!(pod = self.uid, "Processes of a pod do not end");
                return;
            }
            tokio::select! {
                signal = self.signals.recv() => match signal {
                    Some(signal) => self.apply_signal(signal),
                    None => return,
                },
                () = sleep_until(Some(killed.unwrap_or(end))) => {}
            }
        }
    }

    /// Runs the `preStop` hook, then sends the signal.
    fn terminate(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        let Some(process) = slot.process.clone() else {
            return;
        };
        for watcher in slot.watchers.drain(..) {
            watcher.abort();
        }
        let container = slot.facts.container.clone();
        let hooks = container.lifecycle.as_ref();
        let hook = hooks.and_then(|hooks| hooks.pre_stop.clone());
        let (kubelet, prepared) = (Arc::clone(&self.kubelet), Arc::clone(&self.prepared[index]));
        let address = self.address.unwrap_or_else(|| kubelet.addresses.node());
        let sender = self.sender.clone();
        tokio::spawn(async move {
            if let Some(hook) = hook
                && let Err(problem) =
                    hooks::run(&kubelet, &prepared, &container, address, &hook).await
            {
                tracing::debug!(problem, "Hook before the end of a container failed");
                // The pod may be gone by now.
                let _ = sender.send(Signal::PreStopFailed { index });
            }
            process.signal(Number::SIGTERM);
            // A stopped process receives the signal only when it continues.
            let _ = process.signal_all(Number::SIGCONT);
        });
    }

    /// Ends a container that will be started again. `{}` in `reason` is replaced by the name of the container.
    pub(super) fn kill(&mut self, index: usize, reason: &str) {
        let name = self.slots[index].facts.container.name.clone();
        self.record_event(index, Kind::Normal, "Killing", reason.replace("{}", &name));
        let grace = self.grace();
        let process = self.slots[index].process.clone();
        self.terminate(index);
        if let Some(process) = process {
            tokio::spawn(async move {
                if tokio::time::timeout(grace, process.ended()).await.is_err() {
                    let _ = process.signal_all(Number::SIGKILL);
                }
            });
        }
    }

    /// Publishes the end of a pod, and removes its object if its deletion was requested.
    pub(super) async fn finish(&mut self) -> Next {
        if self.is_gone {
            // The logs are removed together with the object.
            let _ = std::fs::remove_dir_all(self.logs());
            return Next::Done;
        }
        if !self.publish().await {
            return Next::Wait(Some(Instant::now() + RETRY_DELAY));
        }
        let metadata = &self.pod.metadata;
        if metadata.deletion_timestamp.is_none() {
            return Next::Wait(None);
        }
        if static_pods::is_static(&self.pod) {
            let is_gone = match &self.mirror {
                Some(mirror) => static_pods::remove(&self.kubelet, mirror).await,
                None => true,
            };
            self.is_gone = is_gone;
            let wait = if is_gone { Duration::ZERO } else { RETRY_DELAY };
            return Next::Wait(Some(Instant::now() + wait));
        }
        let namespace = metadata.namespace.as_deref().unwrap_or_default();
        let name = metadata.name.as_deref().unwrap_or_default();
        let api: Api<k8s_openapi::api::core::v1::Pod> =
            Api::namespaced(self.kubelet.client.clone(), namespace);
        let parameters = DeleteParams {
            grace_period_seconds: Some(0),
            preconditions: Some(Preconditions {
                uid: Some(self.uid.clone()),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        match api.delete(name, &parameters).await {
            Ok(_) => Next::Wait(None),
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {
                self.is_gone = true;
                Next::Wait(Some(Instant::now()))
            }
            Err(error) => {
                tracing::debug!(%error, pod = name, "The object of an ended pod is not removed yet");
                Next::Wait(Some(Instant::now() + RETRY_DELAY))
            }
        }
    }
}

fn remove(directories: &[PathBuf]) {
    for directory in directories.iter().filter(|directory| directory.exists()) {
        if let Err(error) = fs_err::remove_dir_all(directory) {
            tracing::debug!(%error, "Files of a pod were not removed");
        }
    }
}
