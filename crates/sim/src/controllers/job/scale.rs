//! How many pods a job runs.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::batch::v1::{Job, JobSpec};
use k8s_openapi::api::core::v1::Pod;

use super::backoff::Backoff;
use super::view::{Counts, TRACKING, View, replaces_only_failed};
use super::{Controller, indexed};
use crate::controllers::mirror::ObjectKey;
use crate::controllers::{objects, pods};

/// Largest number of pods that are created or deleted at a time.
const BURST: usize = 500;

/// Returns how many pods a job wants while it goes on.
fn wanted(spec: &JobSpec, succeeded: i32, active: i32) -> i32 {
    let parallel = spec.parallelism.unwrap_or(1);
    match spec.completions {
        Some(all) => parallel.min(all - succeeded).max(0),
        None if succeeded > 0 => active,
        None => parallel,
    }
}

/// Returns the pods that must go: those without a place among the indexes, and more until `least` go.
fn surplus(job: &Job, active: &[Arc<Pod>], least: usize) -> Vec<Arc<Pod>> {
    let mut rest = active.to_vec();
    pods::rank_for_deletion(&mut rest);
    let mut surplus = Vec::new();
    if indexed::is_indexed(job) {
        let mut by_index: BTreeMap<i32, Arc<Pod>> = BTreeMap::new();
        for pod in rest.drain(..) {
            match indexed::index(job, &pod) {
                // the last in the order of deletion stays
                Some(index) => surplus.extend(by_index.insert(index, pod)),
                None => surplus.push(pod),
            }
        }
        rest = by_index.into_values().collect();
        pods::rank_for_deletion(&mut rest);
    }
    let more = least.saturating_sub(surplus.len());
    surplus.extend(rest.into_iter().take(more));
    surplus.truncate(BURST);
    surplus
}

impl Controller {
    /// Creates or removes pods of a job that goes on, and brings the numbers up to date.
    pub(super) async fn manage(
        &self,
        job: &Job,
        view: &View,
        counts: &mut Counts,
    ) -> Result<(), kube::Error> {
        let spec = job.spec.clone().unwrap_or_default();
        let active = counts.active;
        let wanted = if spec.suspend == Some(true) {
            0
        } else {
            wanted(&spec, view.succeeded, active)
        };
        let surplus = surplus(job, &view.active, (active - wanted).max(0) as usize);
        if !surplus.is_empty() {
            return self.remove(job, surplus, counts).await;
        }
        let leaving = if replaces_only_failed(job) {
            counts.terminating
        } else {
            0
        };
        let missing = (wanted - leaving - active).max(0) as usize;
        if missing == 0 {
            return Ok(());
        }
        let key = ObjectKey::of(&job.metadata);
        let pause = match self.plan(job, view, missing.min(BURST)) {
            Ok(new) => {
                let made = pods::create(&self.world.pods, &self.events, job, new).await;
                let now = self.world.pods.indexed(objects::uid(job));
                counts.active = now.iter().filter(|pod| objects::active(pod)).count() as i32;
                return made;
            }
            Err(pause) => pause,
        };
        // the real controller says so while it waits
        counts.active = 0;
        if let Some(wait) = pause.left() {
            self.queue.add_after(key, wait);
        } else {
            self.queue.add(key);
        }
        Ok(())
    }

    /// Returns new pods of a job, or the failures after which it still has to wait.
    fn plan(&self, job: &Job, view: &View, missing: usize) -> Result<Vec<Pod>, Backoff> {
        if indexed::limit(job).is_none() {
            let backoffs = self.backoffs.lock();
            let known = backoffs.get(&ObjectKey::of(&job.metadata));
            let known = known.copied().unwrap_or_default();
            let backoff = known.after(&view.new_succeeded, &view.new_failed);
            if backoff.left().is_some() {
                return Err(backoff);
            }
        }
        let Some(progress) = &view.progress else {
            return Ok(vec![new_pod(job); missing]);
        };
        let mut new = Vec::new();
        let mut waits: Option<Backoff> = None;
        for index in progress.pending(job, view, missing) {
            let replaced = progress.replaced.get(&index);
            let backoff = replaced.map(|pod| Backoff::of_index(pod));
            if let Some(backoff) = backoff.filter(|backoff| backoff.left().is_some()) {
                let is_first = waits.is_none_or(|first| backoff.left() < first.left());
                waits = if is_first { Some(backoff) } else { waits };
            } else {
                let mut pod = new_pod(job);
                indexed::mark(job, &mut pod, index, replaced.map(|pod| &**pod));
                new.push(pod);
            }
        }
        match waits {
            Some(waits) if new.is_empty() => Err(waits),
            _ => Ok(new),
        }
    }

    /// Removes pods, which count neither as succeeded nor as failed.
    async fn remove(
        &self,
        job: &Job,
        surplus: Vec<Arc<Pod>>,
        counts: &mut Counts,
    ) -> Result<(), kube::Error> {
        for pod in &surplus {
            self.untrack(pod).await?;
        }
        let removed = surplus.len() as i32;
        let ready = surplus.iter().filter(|pod| objects::ready(pod)).count() as i32;
        pods::delete(&self.world.pods, &self.events, job, surplus).await?;
        counts.active -= removed;
        counts.ready -= ready;
        counts.terminating += removed;
        Ok(())
    }
}

/// Returns a pod of a job.
fn new_pod(job: &Job) -> Pod {
    let spec = job.spec.clone().unwrap_or_default();
    let mut pod = pods::from_template(&spec.template, job);
    let labels = pod.metadata.labels.get_or_insert_default();
    let uid = objects::uid(job);
    for (key, value) in [
        ("batch.kubernetes.io/controller-uid", uid),
        ("controller-uid", uid),
        ("batch.kubernetes.io/job-name", objects::name(job)),
        ("job-name", objects::name(job)),
    ] {
        labels
            .entry(key.to_owned())
            .or_insert_with(|| value.to_owned());
    }
    let finalizers = pod.metadata.finalizers.get_or_insert_default();
    if !finalizers.iter().any(|name| name == TRACKING) {
        finalizers.push(TRACKING.to_owned());
    }
    pod
}
