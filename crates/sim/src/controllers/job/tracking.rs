//! The pods of a job by state. A finalizer keeps each until it is counted.

use std::sync::Arc;

use k8s_openapi::api::batch::v1::{Job, JobStatus, UncountedTerminatedPods};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::{Controller, nonzero};
use crate::controllers::mirror::ObjectKey;
use crate::controllers::objects;

/// Finalizer of pods that are not counted yet.
pub(super) const TRACKING: &str = "batch.kubernetes.io/job-tracking";

/// Pods of a job by state.
#[derive(Default)]
pub(super) struct Sorted {
    pub(super) active: Vec<Arc<Pod>>,
    pub(super) terminating: i32,
    /// Pods that have ended and are not counted yet.
    pub(super) succeeded: Vec<Arc<Pod>>,
    pub(super) failed: Vec<Arc<Pod>>,
}

impl Sorted {
    /// Returns how many pods have succeeded and failed, with those that are not counted yet.
    pub(super) fn totals(&self, status: &JobStatus) -> (i32, i32) {
        let succeeded = status.succeeded.unwrap_or(0) + self.succeeded.len() as i32;
        let failed = status.failed.unwrap_or(0) + self.failed.len() as i32;
        (succeeded, failed)
    }
}

impl Controller {
    /// Returns the pods of a job by state.
    pub(super) fn sort(&self, job: &Job) -> Sorted {
        let mut sorted = Sorted::default();
        for pod in self.world.pods.indexed(objects::uid(job)) {
            let tracked = pod
                .metadata
                .finalizers
                .iter()
                .flatten()
                .any(|finalizer| finalizer == TRACKING);
            match objects::phase(&pod) {
                "Succeeded" if tracked => sorted.succeeded.push(pod),
                "Failed" if tracked => sorted.failed.push(pod),
                "Succeeded" | "Failed" => {}
                _ if objects::deleting(&*pod) => {
                    sorted.terminating += 1;
                    // A pod that never got a node fails with its deletion.
                    if tracked && objects::node_of(&pod).is_none() {
                        sorted.failed.push(pod);
                    }
                }
                _ => sorted.active.push(pod),
            }
        }
        sorted
    }

    /// Counts the pods that have ended. That takes three steps, so that no pod is counted twice and none is lost when a step fails.
    pub(super) async fn count(
        &self,
        job: &mut Job,
        status: &mut JobStatus,
        sorted: &Sorted,
    ) -> Result<(), kube::Error> {
        if sorted.succeeded.is_empty() && sorted.failed.is_empty() {
            return Ok(());
        }
        let uids = |pods: &[Arc<Pod>]| {
            let uids: Vec<String> = pods
                .iter()
                .map(|pod| objects::uid(&**pod).to_owned())
                .collect();
            Some(uids).filter(|uids| !uids.is_empty())
        };
        let (succeeded, failed) = sorted.totals(status);
        status.uncounted_terminated_pods = Some(UncountedTerminatedPods {
            succeeded: uids(&sorted.succeeded),
            failed: uids(&sorted.failed),
        });
        self.write(job, status).await?;
        for pod in sorted.succeeded.iter().chain(&sorted.failed) {
            self.untrack(pod).await?;
        }
        status.succeeded = nonzero(succeeded);
        status.failed = nonzero(failed);
        Ok(())
    }

    /// Removes the finalizer from a pod.
    pub(super) async fn untrack(&self, pod: &Arc<Pod>) -> Result<(), kube::Error> {
        let Some(pod) = self.world.pods.get(&ObjectKey::of(&pod.metadata)) else {
            return Ok(());
        };
        let held = pod.metadata.finalizers.clone().unwrap_or_default();
        if !held.iter().any(|finalizer| finalizer == TRACKING) {
            return Ok(());
        }
        let rest: Vec<&String> = held.iter().filter(|held| *held != TRACKING).collect();
        let rest = if rest.is_empty() {
            Value::Null
        } else {
            json!(rest)
        };
        let patch = json!({"metadata": {
            "uid": objects::uid(&*pod), "finalizers": rest, "resourceVersion": pod.metadata.resource_version,
        }});
        match self.world.pods.patch(&pod, &patch).await {
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

    /// Removes the finalizer from the pods of a job that no longer exists.
    pub(super) async fn untrack_orphans(&self, key: &ObjectKey) -> Result<(), kube::Error> {
        for pod in self.world.pods.within(&key.namespace) {
            let owner = objects::controller(&pod.metadata);
            if owner.is_some_and(|owner| owner.kind == "Job" && owner.name == key.name) {
                self.untrack(&pod).await?;
            }
        }
        Ok(())
    }
}
