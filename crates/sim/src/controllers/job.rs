//! Jobs: pods that run to completion and are counted exactly once.
//!
//! Follows the job controller of Kubernetes 1.35. Not implemented: indexed completion, pod failure policies and success policies.

mod conditions;
mod scale;
mod tracking;
mod verdict;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{Job, JobStatus, UncountedTerminatedPods};
use kube::api::{DeleteParams, Preconditions, PropagationPolicy};
use kube::runtime::watcher::Config;

use self::conditions::{finished, suspension};
use self::verdict::verdict;
use super::events::Recorder;
use super::mirror::{Mirror, ObjectKey};
use super::queue::Queue;
use super::world::World;
use super::{MANAGER, objects};

pub(crate) struct Controller {
    world: Arc<World>,
    queue: Arc<Queue<ObjectKey>>,
    jobs: Arc<Mirror<Job>>,
    events: Recorder,
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
        let verdict = verdict(&job, &status, &sorted);
        self.count(&mut job, &mut status, &sorted).await?;
        status.uncounted_terminated_pods = Some(UncountedTerminatedPods::default());
        let wanted = if objects::deleting(&job) || suspended || verdict.is_some() {
            0
        } else {
            scale::wanted(&spec, status.succeeded.unwrap_or(0), sorted.active.len())
        };
        let active = self.manage(&job, &status, &sorted, wanted).await?;
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
        if let Some(verdict) = &verdict {
            let has_pods = active != 0 || sorted.terminating != 0 || !sorted.active.is_empty();
            self.conclude(&job, &mut status, verdict, has_pods);
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
