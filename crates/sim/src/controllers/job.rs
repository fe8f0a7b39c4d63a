//! Jobs: pods that run to completion and are counted exactly once.
//!
//! Follows the job controller of Kubernetes 1.35. Not implemented: indexed completion, pod failure policies and success policies.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{Job, JobCondition, JobStatus, UncountedTerminatedPods};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Preconditions, PropagationPolicy};
use kube::runtime::watcher::Config;
use serde_json::{Value, json};

use super::events::Recorder;
use super::mirror::{Mirror, ObjectKey};
use super::queue::Queue;
use super::world::World;
use super::{MANAGER, objects, pods};

/// Finalizer of pods that are not counted yet.
const TRACKING: &str = "batch.kubernetes.io/job-tracking";
/// Backoff after the first failed pod; it doubles with each further failure.
const FIRST_BACKOFF: Duration = Duration::from_secs(10);
/// Longest backoff after failed pods.
const LONGEST_BACKOFF: Duration = Duration::from_mins(10);

pub(crate) struct Controller {
    world: Arc<World>,
    queue: Arc<Queue<ObjectKey>>,
    jobs: Arc<Mirror<Job>>,
    events: Recorder,
}

/// Pods of a job by state.
#[derive(Default)]
struct Sorted {
    active: Vec<Arc<Pod>>,
    terminating: i32,
    /// Pods that have ended and are not counted yet.
    succeeded: Vec<Arc<Pod>>,
    failed: Vec<Arc<Pod>>,
}

impl Controller {
    /// Subscribes to the changes that concern this controller.
    pub(crate) fn new(world: &Arc<World>) -> Arc<Self> {
        let queue: Arc<Queue<ObjectKey>> = Arc::new(Queue::default());
        let jobs = Arc::new(Mirror::new(world.client.clone(), MANAGER, |_: &Job| {
            Vec::new()
        }));
        let own = Arc::clone(&queue);
        jobs.listen(move |_, after: Option<&Arc<Job>>| {
            if let Some(job) = after {
                own.add(ObjectKey::of(&job.metadata));
            }
        });
        let own = Arc::clone(&queue);
        world.pods.listen(move |before, after| {
            for pod in [before, after].into_iter().flatten() {
                if let Some(owner) = objects::controller(&pod.metadata)
                    && owner.kind == "Job"
                {
                    own.add(ObjectKey::new(objects::namespace(&**pod), &owner.name));
                }
            }
        });
        Arc::new(Self {
            world: Arc::clone(world),
            queue,
            jobs,
            events: world.events.of("job-controller"),
        })
    }

    /// Returns the mirror of jobs, which other controllers share.
    pub(crate) fn jobs(&self) -> &Arc<Mirror<Job>> {
        &self.jobs
    }

    /// Runs the controller; never returns by itself.
    pub(crate) async fn run(self: Arc<Self>) {
        let queue = Arc::clone(&self.queue);
        let work = async {
            self.jobs.synced().await;
            queue
                .work("job", 4, |key| {
                    let this = Arc::clone(&self);
                    async move { this.reconcile(&key).await }
                })
                .await;
        };
        tokio::join!(Arc::clone(&self.jobs).follow(Config::default()), work);
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<(), kube::Error> {
        let Some(held) = self.jobs.get(key) else {
            return self.untrack_orphans(key).await;
        };
        let mut job = Job::clone(&held);
        if finished(&job).is_some() {
            self.untrack_all(&job).await?;
            return self.expire(&job).await;
        }
        let spec = job.spec.clone().unwrap_or_default();
        let suspended = spec.suspend == Some(true);
        let mut status = job.status.clone().unwrap_or_default();
        if status.start_time.is_none() && !suspended {
            status.start_time = Some(objects::now());
        }
        let sorted = self.sort(&job);
        let failed_now = sorted.failed.len() as i32;
        let succeeded = status.succeeded.unwrap_or(0) + sorted.succeeded.len() as i32;
        let failed = status.failed.unwrap_or(0) + failed_now;
        let verdict = verdict(&job, &status, succeeded, failed, &sorted);
        // Counting takes three steps, so that no pod is counted twice and none is lost when a step fails.
        if !sorted.succeeded.is_empty() || !sorted.failed.is_empty() {
            let uids = |pods: &[Arc<Pod>]| {
                let uids: Vec<String> = pods
                    .iter()
                    .map(|pod| objects::uid(&**pod).to_owned())
                    .collect();
                Some(uids).filter(|uids| !uids.is_empty())
            };
            status.uncounted_terminated_pods = Some(UncountedTerminatedPods {
                succeeded: uids(&sorted.succeeded),
                failed: uids(&sorted.failed),
            });
            self.write(&mut job, &mut status).await?;
            for pod in sorted.succeeded.iter().chain(&sorted.failed) {
                self.untrack(pod).await?;
            }
            status.succeeded = nonzero(succeeded);
            status.failed = nonzero(failed);
        }
        status.uncounted_terminated_pods = Some(UncountedTerminatedPods::default());
        let wanted = if objects::deleting(&job) || suspended || verdict.is_some() {
            0
        } else {
            let parallel = spec.parallelism.unwrap_or(1);
            match spec.completions {
                Some(all) => parallel.min((all - succeeded).max(0)),
                None if succeeded > 0 => parallel.min(sorted.active.len() as i32),
                None => parallel,
            }
        };
        let active = self
            .manage(&job, &status, &sorted, wanted.max(0) as usize)
            .await?;
        status.active = nonzero(active);
        status.ready = Some(
            sorted
                .active
                .iter()
                .filter(|pod| objects::ready(pod))
                .count() as i32,
        );
        status.terminating = Some(sorted.terminating);
        suspension(&mut status, suspended, &job, &self.events);
        if let Some((good, reason, message)) = &verdict {
            let (first, last) = if *good {
                ("SuccessCriteriaMet", "Complete")
            } else {
                ("FailureTarget", "Failed")
            };
            set(&mut status, first, "True", reason, message);
            if active == 0 && sorted.terminating == 0 && sorted.active.is_empty() {
                set(&mut status, last, "True", reason, message);
                status.active = None;
                status.ready = Some(0);
                if *good {
                    status.completion_time = Some(objects::now());
                    self.events
                        .normal(&job, "Completed", "Job completed".to_owned());
                } else {
                    self.events
                        .warning(&job, verdict_reason(reason), message.clone());
                }
            }
        }
        if held.status.as_ref() != Some(&status) || job.status.as_ref() != Some(&status) {
            self.write(&mut job, &mut status).await?;
        }
        self.requeue_at_deadline(&job, &status);
        if finished(&job).is_some() {
            self.expire(&job).await?;
        }
        Ok(())
    }

    async fn write(&self, job: &mut Job, status: &mut JobStatus) -> Result<(), kube::Error> {
        job.status = Some(status.clone());
        let written = self.jobs.replace_status(job).await?;
        *job = Job::clone(&written);
        Ok(())
    }

    fn sort(&self, job: &Job) -> Sorted {
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

    /// Creates or removes pods; returns how many are active afterwards.
    async fn manage(
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

    /// Removes the finalizer from a pod.
    async fn untrack(&self, pod: &Arc<Pod>) -> Result<(), kube::Error> {
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
    async fn untrack_all(&self, job: &Job) -> Result<(), kube::Error> {
        for pod in self.world.pods.indexed(objects::uid(job)) {
            self.untrack(&pod).await?;
        }
        Ok(())
    }

    /// Removes the finalizer from the pods of a job that no longer exists.
    async fn untrack_orphans(&self, key: &ObjectKey) -> Result<(), kube::Error> {
        for pod in self.world.pods.within(&key.namespace) {
            let owner = objects::controller(&pod.metadata);
            if owner.is_some_and(|owner| owner.kind == "Job" && owner.name == key.name) {
                self.untrack(&pod).await?;
            }
        }
        Ok(())
    }

    /// Deletes a finished job once its TTL is over.
    async fn expire(&self, job: &Job) -> Result<(), kube::Error> {
        let limit = job
            .spec
            .as_ref()
            .and_then(|spec| spec.ttl_seconds_after_finished);
        let (Some(limit), Some(at)) = (limit, finished(job)) else {
            return Ok(());
        };
        if objects::deleting(job) {
            return Ok(());
        }
        let limit = Duration::from_secs(limit.max(0).unsigned_abs().into());
        let spent = Duration::try_from(Timestamp::now().duration_since(at)).unwrap_or_default();
        if let Some(left) = limit.checked_sub(spent).filter(|left| !left.is_zero()) {
            self.queue.add_after(ObjectKey::of(&job.metadata), left);
            return Ok(());
        }
        let params = DeleteParams {
            propagation_policy: Some(PropagationPolicy::Foreground),
            preconditions: Some(Preconditions {
                uid: job.metadata.uid.clone(),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        self.jobs.delete(job, &params).await
    }

    /// Queues the job for the moment of its deadline, because no event announces it.
    fn requeue_at_deadline(&self, job: &Job, status: &JobStatus) {
        let limit = job
            .spec
            .as_ref()
            .and_then(|spec| spec.active_deadline_seconds);
        if let (Some(limit), Some(start)) = (limit, &status.start_time) {
            let limit = Duration::from_secs(limit.max(0).unsigned_abs());
            let left = limit.saturating_sub(objects::since(start));
            if finished(job).is_none() && !left.is_zero() {
                self.queue.add_after(ObjectKey::of(&job.metadata), left);
            }
        }
    }
}

fn nonzero(number: i32) -> Option<i32> {
    (number != 0).then_some(number)
}

/// Returns the event reason of a failed job.
fn verdict_reason(reason: &str) -> &'static str {
    match reason {
        "DeadlineExceeded" => "DeadlineExceeded",
        _ => "BackoffLimitExceeded",
    }
}

/// Returns whether a job ends successfully (`true`) or not, with reason and message; `None` if it goes on.
fn verdict(
    job: &Job,
    status: &JobStatus,
    succeeded: i32,
    failed: i32,
    sorted: &Sorted,
) -> Option<(bool, String, String)> {
    let already = |kind: &str, good: bool| {
        let held = status
            .conditions
            .iter()
            .flatten()
            .find(|held| held.type_ == kind)?;
        Some((
            good,
            held.reason.clone().unwrap_or_default(),
            held.message.clone().unwrap_or_default(),
        ))
    };
    if let Some(decided) =
        already("SuccessCriteriaMet", true).or_else(|| already("FailureTarget", false))
    {
        return Some(decided);
    }
    let spec = job.spec.clone().unwrap_or_default();
    let bad = |reason: &str, message: &str| Some((false, reason.to_owned(), message.to_owned()));
    let restarts: i32 = sorted
        .active
        .iter()
        .filter(|pod| {
            pod.spec
                .as_ref()
                .is_some_and(|spec| spec.restart_policy.as_deref() == Some("OnFailure"))
        })
        .flat_map(|pod| pod.status.iter())
        .flat_map(|status| status.container_statuses.iter().flatten())
        .map(|status| status.restart_count)
        .sum();
    let limit = spec.backoff_limit.unwrap_or(6);
    if failed > limit || restarts > 0 && restarts >= limit {
        return bad(
            "BackoffLimitExceeded",
            "Job has reached the specified backoff limit",
        );
    }
    let overdue = |limit: i64| {
        let start = status.start_time.as_ref();
        start.is_some_and(|start| {
            objects::since(start) >= Duration::from_secs(limit.max(0).unsigned_abs())
        })
    };
    if spec.suspend != Some(true) && spec.active_deadline_seconds.is_some_and(overdue) {
        return bad(
            "DeadlineExceeded",
            "Job was active longer than specified deadline",
        );
    }
    let reached = match spec.completions {
        Some(all) => succeeded >= all,
        None => succeeded > 0 && sorted.active.is_empty(),
    };
    reached.then(|| {
        let message = "Reached expected number of succeeded pods";
        (true, "CompletionsReached".to_owned(), message.to_owned())
    })
}

fn suspension(status: &mut JobStatus, suspended: bool, job: &Job, events: &Recorder) {
    let held = status
        .conditions
        .iter()
        .flatten()
        .find(|held| held.type_ == "Suspended")
        .map(|held| held.status == "True");
    match (suspended, held) {
        (true, None | Some(false)) => {
            set(status, "Suspended", "True", "JobSuspended", "Job suspended");
            status.start_time = None;
            events.normal(job, "Suspended", "Job suspended".to_owned());
        }
        (false, Some(true)) => {
            set(status, "Suspended", "False", "JobResumed", "Job resumed");
            status.start_time = Some(objects::now());
            events.normal(job, "Resumed", "Job resumed".to_owned());
        }
        _ => {}
    }
}

fn set(status: &mut JobStatus, kind: &str, value: &str, reason: &str, message: &str) {
    let conditions = status.conditions.get_or_insert_default();
    let new = JobCondition {
        type_: kind.to_owned(),
        status: value.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_probe_time: Some(objects::now()),
        last_transition_time: Some(objects::now()),
    };
    match conditions.iter_mut().find(|held| held.type_ == kind) {
        Some(held) if held.status == value => {}
        Some(held) => *held = new,
        None => conditions.push(new),
    }
}

/// Returns when a job ended, or `None` if it has not.
fn finished(job: &Job) -> Option<Timestamp> {
    job.status
        .as_ref()?
        .conditions
        .iter()
        .flatten()
        .find(|held| matches!(held.type_.as_str(), "Complete" | "Failed") && held.status == "True")
        .and_then(|held| held.last_transition_time.as_ref())
        .map(|time| time.0)
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
