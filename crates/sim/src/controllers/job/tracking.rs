//! Counting of the pods of a job. A finalizer keeps each until it is counted.

use std::collections::HashSet;
use std::sync::Arc;

use k8s_openapi::api::batch::v1::{Job, JobStatus};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use serde_json::{Value, json};

use super::verdict::Verdict;
use super::view::{TRACKING, View, is_failed, is_tracked};
use super::{Controller, indexed, nonzero, policies, selects};
use crate::controllers::mirror::ObjectKey;
use crate::controllers::objects;

/// Returns whether a pod no longer needs its finalizer.
fn may_go(job: &Job, view: &View, verdict: Option<&Verdict>, pod: &Pod) -> bool {
    if objects::deleting(job) || verdict.is_some() || objects::phase(pod) == "Succeeded" {
        return true;
    }
    let index = indexed::index(job, pod);
    let waits = view
        .progress
        .as_ref()
        .zip(index)
        .is_some_and(|(progress, index)| {
            let replaced = progress.replaced.get(&index);
            replaced.is_some_and(|replaced| objects::uid(&**replaced) == objects::uid(pod))
        });
    is_failed(job, pod) && !waits
}

/// Moves pods without a finalizer from the list of the status to its numbers.
fn settle(status: &mut JobStatus, tracked: &HashSet<&str>) {
    let uncounted = status.uncounted_terminated_pods.get_or_insert_default();
    let settle = |list: &mut Option<Vec<String>>, number: &mut Option<i32>| {
        let mut rest = list.take().unwrap_or_default();
        let before = rest.len();
        rest.retain(|uid| tracked.contains(uid.as_str()));
        *number = nonzero(number.unwrap_or(0) + (before - rest.len()) as i32);
        *list = Some(rest).filter(|rest| !rest.is_empty());
    };
    settle(&mut uncounted.succeeded, &mut status.succeeded);
    settle(&mut uncounted.failed, &mut status.failed);
}

impl Controller {
    /// Counts the pods that have ended. That takes three steps, so that no pod is counted twice and none is lost when a step fails: their UIDs
    /// go into the status, their finalizers go, and the numbers grow.
    pub(super) async fn count(
        &self,
        job: &mut Job,
        status: &mut JobStatus,
        view: &View,
        verdict: Option<&Verdict>,
    ) -> Result<(), kube::Error> {
        let tracked = view.pods.iter().filter(|pod| is_tracked(pod));
        let mut tracked: HashSet<&str> = tracked.map(|pod| objects::uid(&**pod)).collect();
        settle(status, &tracked);
        let leaving: Vec<&Arc<Pod>> = view
            .pods
            .iter()
            .filter(|pod| is_tracked(pod) && may_go(job, view, verdict, pod))
            .collect();
        for pod in &leaving {
            note(job, status, view, verdict, pod);
        }
        if let Some(progress) = &view.progress {
            status.succeeded = nonzero(progress.succeeded.total());
            let succeeded = progress.succeeded.to_string();
            status.completed_indexes = Some(succeeded).filter(|text| !text.is_empty());
            status.failed_indexes = progress.failed.as_ref().map(ToString::to_string);
        }
        if let Some(verdict) = verdict {
            verdict.announce(status);
        }
        if job.status.as_ref() != Some(status) {
            self.write(job, status).await?;
        }
        self.note_failures(job, view);
        for pod in leaving {
            self.untrack(pod).await?;
            tracked.remove(objects::uid(&**pod));
        }
        settle(status, &tracked);
        Ok(())
    }

    /// Remembers the failures after which the job makes a pause.
    fn note_failures(&self, job: &Job, view: &View) {
        let mut backoffs = self.backoffs.lock();
        let backoff = backoffs.entry(ObjectKey::of(&job.metadata)).or_default();
        *backoff = backoff.after(&view.new_succeeded, &view.new_failed);
    }

    /// Removes the finalizer from a pod.
    pub(super) async fn untrack(&self, pod: &Arc<Pod>) -> Result<(), kube::Error> {
        let key = ObjectKey::of(&pod.metadata);
        let Some(pod) = self.world.pods.get(&key) else {
            return Ok(());
        };
        match self.without_finalizer(&pod).await {
            // a pod that was just deleted has a newer version than the mirror
            Err(error) if objects::code(&error) == 409 => {}
            done => return done,
        }
        match self.world.pods.fetch(&key).await? {
            Some(fresh) if objects::uid(&fresh) == objects::uid(&*pod) => {
                let fresh = self.world.pods.observe(fresh);
                self.without_finalizer(&fresh).await
            }
            _ => Ok(()),
        }
    }

    async fn without_finalizer(&self, pod: &Pod) -> Result<(), kube::Error> {
        if !is_tracked(pod) {
            return Ok(());
        }
        let rest: Vec<&String> = pod
            .finalizers()
            .iter()
            .filter(|held| *held != TRACKING)
            .collect();
        let rest = if rest.is_empty() {
            Value::Null
        } else {
            json!(rest)
        };
        let patch = json!({"metadata": {
            "uid": objects::uid(pod), "finalizers": rest, "resourceVersion": pod.metadata.resource_version,
        }});
        match self.world.pods.patch(pod, &patch).await {
            Err(error) if objects::code(&error) != 404 => Err(error),
            _ => Ok(()),
        }
    }

    /// Removes the finalizer from the pods of a finished job.
    pub(super) async fn untrack_all(&self, job: &Job) -> Result<(), kube::Error> {
        for pod in self.world.pods.indexed(objects::uid(job)) {
            self.untrack(&pod).await?;
        }
        Ok(())
    }

    /// Removes the finalizer from the pods of a job that no longer exists, also from those that it left to nobody.
    pub(super) async fn untrack_orphans(&self, key: &ObjectKey) -> Result<(), kube::Error> {
        for pod in self.world.pods.within(&key.namespace) {
            let owner = objects::controller(&pod.metadata);
            let is_left = if let Some(owner) = owner {
                owner.kind == "Job" && owner.name == key.name
            } else {
                let jobs = self.world.jobs.within(&key.namespace);
                is_tracked(&pod) && !jobs.iter().any(|job| selects(job, &pod))
            };
            if is_left {
                self.untrack(&pod).await?;
            }
        }
        Ok(())
    }
}

/// Notes in the status that a pod is being counted, if it counts.
fn note(job: &Job, status: &mut JobStatus, view: &View, verdict: Option<&Verdict>, pod: &Arc<Pod>) {
    let uid = objects::uid(&**pod);
    let uncounted = status.uncounted_terminated_pods.get_or_insert_default();
    let has = |list: &Option<Vec<String>>| list.iter().flatten().any(|held| held == uid);
    if has(&uncounted.succeeded) || has(&uncounted.failed) {
        return;
    }
    let indexed = view.progress.is_some();
    if objects::phase(pod) == "Succeeded" {
        // of an Indexed job the indexes are counted, not the pods
        if !indexed {
            uncounted
                .succeeded
                .get_or_insert_default()
                .push(uid.to_owned());
        }
        return;
    }
    // with its job all pods fail that have not ended
    let fails = is_failed(job, pod) || verdict.is_some_and(|verdict| !verdict.is_good());
    let is_valid = !indexed || indexed::index(job, pod).is_some();
    if fails && is_valid && policies::of_failure(job, pod).counts() {
        uncounted
            .failed
            .get_or_insert_default()
            .push(uid.to_owned());
    }
}
