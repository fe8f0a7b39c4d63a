//! From the chosen node to the bound pod: Reserve, PreBind (volumes) and Bind.

use std::time::Duration;

use tokio::time::Instant;

use super::Core;
use crate::api_tasks::report::{EventKind, Nomination, Report};
use crate::api_tasks::volume_bind::{self, Changes};
use crate::engine::effect::Effect;
use crate::engine::message::{Binding, Placement, VolumesWritten, Waiting};
use crate::framework::queue::Cause;
use crate::metrics::AttemptResult;
use crate::plugins::plugin::{Plugin, Plugins};
use crate::plugins::volumes::volume_binding;
use crate::state::pod::{Pod, PodKey};
use crate::state::storage::Progress;

impl Core {
    /// Assumes a pod on its node, then binds its volumes, if any are unbound, and the pod.
    pub(super) fn place(&mut self, placement: Placement, volume_timeout: Option<Duration>) {
        let Placement { pod, node, .. } = &placement;
        self.cluster.assume(&pod.key, node);
        self.cache.reserve(node, pod);
        let reservation = self
            .cluster
            .node(node)
            .and_then(|state| state.node.as_ref())
            .filter(|_| volume_timeout.is_some())
            .and_then(|node| volume_binding::reservation(&self.cluster, pod, node));
        match reservation.zip(volume_timeout) {
            None => self.effects.push(Effect::Bind(Box::new(placement))),
            Some((reservation, timeout)) => self.bind_volumes(Waiting {
                placement,
                reservation,
                written: Vec::new(),
                timeout,
                deadline: Instant::now() + timeout,
            }),
        }
    }

    /// Writes the choice of a pod's volumes to the API server.
    fn bind_volumes(&mut self, waiting: Waiting) {
        let Waiting {
            placement,
            reservation,
            ..
        } = &waiting;
        tracing::debug!(pod = %placement.pod.key, node = %placement.node, ?reservation, "Binding volumes");
        let storage = self.cluster.storage_mut();
        let changes = Changes::new(storage, reservation);
        storage.reserve(&placement.pod.uid, reservation.clone());
        self.effects
            .push(Effect::WriteVolumes(Box::new(waiting), changes));
    }

    pub(super) fn volumes_written(&mut self, written: VolumesWritten) {
        let VolumesWritten {
            mut waiting,
            result,
        } = written;
        let pod = &waiting.placement.pod;
        let still_exists = self
            .cluster
            .pod(&pod.key)
            .is_some_and(|known| known.uid == pod.uid);
        match result {
            Ok(_) if !still_exists => {
                let pod = waiting.placement.pod;
                self.release_volumes(&pod);
            }
            Ok(versions) => {
                waiting.written = versions;
                let uid = waiting.placement.pod.uid.clone();
                self.waiting.insert(uid, waiting);
                self.volumes_changed = true;
            }
            Err(error) => self.bound(Binding {
                placement: waiting.placement,
                result: Err(error.into()),
            }),
        }
    }

    /// Binds the pods whose volumes are bound, and gives up those whose volumes failed or timed out.
    pub(super) fn check_volumes(&mut self, now: Instant) {
        let is_due = self.waiting.values().any(|waiting| waiting.deadline <= now);
        if !(is_due || self.volumes_changed) {
            return;
        }
        self.volumes_changed = false;
        for (uid, result) in self.ended_waits(now) {
            let Some(Waiting { placement, .. }) = self.waiting.remove(&uid) else {
                continue;
            };
            match result {
                Ok(()) => self.effects.push(Effect::Bind(Box::new(placement))),
                Err(error) => self.bound(Binding {
                    placement,
                    result: Err(error.into()),
                }),
            }
        }
    }

    /// Returns the pods that need not wait for their volumes any more, by uid.
    fn ended_waits(&self, now: Instant) -> Vec<(String, Result<(), volume_bind::Error>)> {
        let mut ended = Vec::new();
        for (uid, waiting) in &self.waiting {
            let node = &waiting.placement.node;
            let state = self.cluster.node(node);
            let progress = match state.and_then(|state| state.node.as_ref()) {
                None => Progress::Failed(format!("node {node:?} is gone")),
                Some(node) => self.cluster.storage().progress(
                    &waiting.reservation,
                    &waiting.written,
                    |volume| volume_binding::fits(volume, node),
                ),
            };
            let result = match progress {
                Progress::Bound => Ok(()),
                Progress::Failed(reason) => Err(volume_bind::Error::Undone(reason)),
                Progress::Waiting if waiting.deadline <= now => {
                    Err(volume_bind::Error::Timeout(waiting.timeout.as_secs()))
                }
                Progress::Waiting => continue,
            };
            ended.push((uid.clone(), result));
        }
        ended
    }

    /// Releases the volumes reserved for a pod and wakes the pods that may now get them.
    pub(super) fn release_volumes(&mut self, pod: &Pod) {
        let released = self.cluster.storage_mut().release(&pod.uid);
        self.wake_if(released, Plugin::VolumeBinding, Cause::PodGone);
    }

    /// Returns whether a pod of that name is known to be on the node.
    fn is_on(&self, key: &PodKey, node: &str) -> bool {
        let known = self.cluster.pod(key);
        known.is_some_and(|known| known.node.as_deref() == Some(node))
    }

    pub(super) fn bound(&mut self, binding: Binding) {
        let Binding { placement, result } = binding;
        let Placement {
            pod,
            node,
            popped,
            started,
        } = placement;
        self.release_volumes(&pod);
        match result {
            Ok(()) => {
                tracing::info!(v = 2, pod = %pod.key, %node, attempt = popped.attempts, "Successfully bound pod to node");
                self.metrics
                    .attempt(AttemptResult::scheduled, &pod.scheduler, started.elapsed());
                self.metrics
                    .scheduled(popped.since.elapsed(), popped.attempts);
                let changed = self.cache.bound(&node, &pod.key);
                self.wake_if(changed, Plugin::NodeResourceTopologyMatch, Cause::PodPlaced);
                // a pod of the same name may have been created since
                if self.queue.holds(&pod.key, &pod.uid) {
                    self.queue.remove(&pod.key);
                }
                let kind = EventKind::Scheduled { node };
                self.report(Report::event(&pod, kind, String::new()));
            }
            Err(error) => {
                let error = daemon::log::chain(&error);
                tracing::warn!(pod = %pod.key, %node, error, "Binding failed");
                self.metrics
                    .attempt(AttemptResult::error, &pod.scheduler, started.elapsed());
                // False if the pod is gone or replaced, or a watch has shown it bound.
                if self.cluster.forget(&pod.key, &pod.uid) {
                    let changed = self.cache.unreserve(&node, &pod.key);
                    self.wake_if(changed, Plugin::NodeResourceTopologyMatch, Cause::PodGone);
                    self.freed();
                    let keep = Nomination::Keep;
                    self.not_scheduled(&pod, "SchedulerError", &error, String::new(), keep);
                    self.queue.failed(&pod.key, Plugins::NONE, Instant::now());
                } else if !self.is_on(&pod.key, &node) {
                    // a watch has shown before that it is elsewhere, or gone
                    let changed = self.cache.unreserve(&node, &pod.key);
                    self.wake_if(changed, Plugin::NodeResourceTopologyMatch, Cause::PodGone);
                }
            }
        }
    }
}
