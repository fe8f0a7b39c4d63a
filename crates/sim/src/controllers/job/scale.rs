//! How many pods a job runs, and its pause after failed pods.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{Job, JobSpec, JobStatus};
use k8s_openapi::api::core::v1::Pod;

use super::Controller;
use super::tracking::{Sorted, TRACKING};
use crate::controllers::mirror::ObjectKey;
use crate::controllers::{objects, pods};

/// Backoff after the first failed pod; it doubles with each further failure.
const FIRST_BACKOFF: Duration = Duration::from_secs(10);
/// Longest backoff after failed pods.
const LONGEST_BACKOFF: Duration = Duration::from_mins(10);

/// Returns how many pods a job wants while it goes on.
pub(super) fn wanted(spec: &JobSpec, succeeded: i32, active: usize) -> usize {
    let parallel = spec.parallelism.unwrap_or(1);
    let wanted = match spec.completions {
        Some(all) => parallel.min((all - succeeded).max(0)),
        None if succeeded > 0 => parallel.min(active as i32),
        None => parallel,
    };
    wanted.max(0) as usize
}

impl Controller {
    /// Creates or removes pods; returns how many are active afterwards.
    pub(super) async fn manage(
        &self,
        job: &Job,
        status: &JobStatus,
        sorted: &Sorted,
        wanted: usize,
    ) -> Result<i32, kube::Error> {
        let now = sorted.active.len();
        if wanted < now {
            let mut surplus = sorted.active.clone();
            pods::rank_for_deletion(&mut surplus);
            surplus.truncate(now - wanted);
            for pod in &surplus {
                self.untrack(pod).await?;
            }
            pods::delete(&self.world.pods, &self.events, job, surplus).await?;
            return Ok(wanted as i32);
        }
        if wanted == now {
            return Ok(now as i32);
        }
        let failures = status.failed.unwrap_or(0);
        if let Some(wait) = self.backoff(job, failures) {
            self.queue.add_after(ObjectKey::of(&job.metadata), wait);
            return Ok(now as i32);
        }
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
        pod.metadata
            .finalizers
            .get_or_insert_default()
            .push(TRACKING.to_owned());
        let new = vec![pod; wanted - now];
        pods::create(&self.world.pods, &self.events, job, new).await?;
        Ok(wanted as i32)
    }

    /// Returns how long a job with failed pods still waits before its next pod.
    fn backoff(&self, job: &Job, failures: i32) -> Option<Duration> {
        let last = self
            .world
            .pods
            .indexed(objects::uid(job))
            .iter()
            .filter(|pod| objects::phase(pod) == "Failed")
            .filter_map(|pod| ended(pod))
            .max()?;
        let doubled = 2u32.saturating_pow((failures - 1).clamp(0, 10).unsigned_abs());
        let wait = (FIRST_BACKOFF * doubled).min(LONGEST_BACKOFF);
        let spent = Duration::try_from(Timestamp::now().duration_since(last)).unwrap_or_default();
        wait.checked_sub(spent)
            .filter(|left| failures > 0 && !left.is_zero())
    }
}

/// Returns when a pod ended, as far as its status shows it.
fn ended(pod: &Pod) -> Option<Timestamp> {
    let status = pod.status.as_ref()?;
    status
        .container_statuses
        .iter()
        .flatten()
        .filter_map(|status| {
            Some(
                status
                    .state
                    .as_ref()?
                    .terminated
                    .as_ref()?
                    .finished_at
                    .as_ref()?
                    .0,
            )
        })
        .max()
        .or_else(|| {
            let conditions = status.conditions.iter().flatten();
            conditions
                .filter(|held| held.type_ == "Ready")
                .filter_map(|held| held.last_transition_time.as_ref())
                .map(|time| time.0)
                .max()
        })
        .or_else(|| pod.metadata.creation_timestamp.as_ref().map(|time| time.0))
}
