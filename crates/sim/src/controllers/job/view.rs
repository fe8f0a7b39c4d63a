//! The pods of a job by state, and how far the job is.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::batch::v1::{Job, JobStatus};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;

use super::backoff::ended;
use super::indexed;
use super::indexes::Indexes;
use super::policies::{self, Failure};
use crate::controllers::objects;

/// Finalizer of pods that are not counted yet.
pub(super) const TRACKING: &str = "batch.kubernetes.io/job-tracking";

/// Returns whether a pod is not counted yet.
pub(super) fn is_tracked(pod: &Pod) -> bool {
    pod.finalizers().iter().any(|name| name == TRACKING)
}

/// Numbers of pods that the status of a job shows.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) active: i32,
    pub(super) ready: i32,
    pub(super) terminating: i32,
}

/// The pods of a job as they are now.
pub(super) struct View {
    pub(super) pods: Vec<Arc<Pod>>,
    pub(super) active: Vec<Arc<Pod>>,
    pub(super) counts: Counts,
    /// Pods that have ended and are in no status yet.
    pub(super) new_succeeded: Vec<Arc<Pod>>,
    pub(super) new_failed: Vec<Arc<Pod>>,
    /// Numbers of all pods, or of indexes, that have succeeded, and of pods that have failed.
    pub(super) succeeded: i32,
    pub(super) failed: i32,
    /// The indexes, if the job has any.
    pub(super) progress: Option<Progress>,
}

/// The indexes of an Indexed job.
pub(super) struct Progress {
    pub(super) succeeded: Indexes,
    /// Those that have failed for good, if each index has its own limit.
    pub(super) failed: Option<Indexes>,
    /// The failed pod of an index that waits for its replacement, which takes over its number of failures.
    pub(super) replaced: BTreeMap<i32, Arc<Pod>>,
}

/// Returns whether a pod is replaced only when it has ended, not already when it is deleted.
pub(super) fn replaces_only_failed(job: &Job) -> bool {
    job.spec.as_ref().is_some_and(|spec| {
        spec.pod_replacement_policy.as_deref() == Some("Failed")
            || spec.pod_failure_policy.is_some()
    })
}

/// Returns whether a pod counts as failed.
pub(super) fn is_failed(job: &Job, pod: &Pod) -> bool {
    match objects::phase(pod) {
        "Failed" => true,
        "Succeeded" => false,
        _ => !replaces_only_failed(job) && objects::deleting(pod),
    }
}

impl View {
    pub(super) fn new(job: &Job, status: &JobStatus, pods: Vec<Arc<Pod>>) -> Self {
        let uncounted = status.uncounted_terminated_pods.clone().unwrap_or_default();
        let uncounted_succeeded = uncounted.succeeded.unwrap_or_default();
        let uncounted_failed = uncounted.failed.unwrap_or_default();
        let indexed = indexed::is_indexed(job);
        let is_valid = |pod: &Pod| !indexed || indexed::index(job, pod).is_some();
        let select = |known: &[String], ends: &dyn Fn(&Pod) -> bool| -> Vec<Arc<Pod>> {
            let is_new = |pod: &&Arc<Pod>| {
                let uid = objects::uid(&***pod);
                is_tracked(pod) && is_valid(pod) && !known.iter().any(|known| known == uid)
            };
            let ended = pods.iter().filter(is_new).filter(|pod| ends(pod));
            ended.cloned().collect()
        };
        let new_succeeded = select(&uncounted_succeeded, &|pod| {
            objects::phase(pod) == "Succeeded"
        });
        let new_failed = select(&uncounted_failed, &|pod| is_failed(job, pod));
        let counted = new_failed
            .iter()
            .filter(|pod| policies::of_failure(job, pod).counts());
        let failed =
            status.failed.unwrap_or(0) + counted.count() as i32 + uncounted_failed.len() as i32;
        let active: Vec<Arc<Pod>> = pods
            .iter()
            .filter(|pod| objects::active(pod))
            .cloned()
            .collect();
        let progress = indexed.then(|| Progress::new(job, status, &pods, &active));
        let succeeded = progress.as_ref().map_or_else(
            || {
                let new = new_succeeded.len() + uncounted_succeeded.len();
                status.succeeded.unwrap_or(0) + new as i32
            },
            |progress| progress.succeeded.total(),
        );
        let is_leaving = |pod: &&Arc<Pod>| objects::deleting(&***pod) && !objects::terminal(pod);
        let counts = Counts {
            active: active.len() as i32,
            ready: active.iter().filter(|pod| objects::ready(pod)).count() as i32,
            terminating: pods.iter().filter(is_leaving).count() as i32,
        };
        Self {
            pods,
            active,
            counts,
            new_succeeded,
            new_failed,
            succeeded,
            failed,
            progress,
        }
    }
}

impl Progress {
    fn new(job: &Job, status: &JobStatus, pods: &[Arc<Pod>], active: &[Arc<Pod>]) -> Self {
        let completions = indexed::completions(job);
        let known = status.completed_indexes.as_deref().unwrap_or_default();
        let valid = |pod: &Arc<Pod>| indexed::index(job, pod).filter(|_| is_tracked(pod));
        let mut succeeded = Indexes::parse(known, completions);
        let new = pods.iter().filter(|pod| objects::phase(pod) == "Succeeded");
        succeeded.merge(&new.filter_map(valid).collect());
        let mut progress = Self {
            succeeded,
            failed: None,
            replaced: BTreeMap::new(),
        };
        let Some(limit) = indexed::limit(job) else {
            return progress;
        };
        let mut failed = Indexes::parse(
            status.failed_indexes.as_deref().unwrap_or_default(),
            completions,
        );
        let gone = pods.iter().filter(|pod| is_failed(job, pod));
        let is_final = |pod: &&Arc<Pod>| match policies::of_failure(job, pod) {
            Failure::FailsIndex => true,
            Failure::Ignored => false,
            Failure::Counts | Failure::FailsJob(_) => indexed::failures(pod).0 >= limit,
        };
        failed.merge(&gone.clone().filter(is_final).filter_map(valid).collect());
        let running: Indexes = active
            .iter()
            .filter_map(|pod| indexed::index(job, pod))
            .collect();
        for pod in gone {
            let Some(index) = valid(pod) else { continue };
            let sets = [&progress.succeeded, &failed, &running];
            if sets.iter().any(|set| set.contains(index)) {
                continue;
            }
            let rank = |pod: &Pod| {
                let (counted, ignored) = indexed::failures(pod);
                (counted.saturating_add(ignored), ended(pod))
            };
            let held = progress.replaced.get(&index);
            if held.is_none_or(|held| rank(held) <= rank(pod)) {
                progress.replaced.insert(index, Arc::clone(pod));
            }
        }
        progress.failed = Some(failed);
        progress
    }

    /// Returns the first indexes that need a pod, at most `count`.
    pub(super) fn pending(&self, job: &Job, view: &View, count: usize) -> Vec<i32> {
        let is_busy = |pod: &&Arc<Pod>| {
            objects::active(pod)
                || replaces_only_failed(job)
                    && objects::deleting(&***pod)
                    && !objects::terminal(pod)
        };
        let busy = view.pods.iter().filter(is_busy);
        let mut taken = self.succeeded.clone();
        taken.merge(&busy.filter_map(|pod| indexed::index(job, pod)).collect());
        if let Some(failed) = &self.failed {
            taken.merge(failed);
        }
        taken.first_missing(count, indexed::completions(job))
    }
}
