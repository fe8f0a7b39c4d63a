//! Jobs: pods that run to completion and are counted exactly once.
//!
//! Follows the job controller of Kubernetes 1.35.
//!
//! Reading order: [`Controller::reconcile`], `view`, `verdict`, `scale`, `tracking`, then `indexed`, `indexes`, `policies` and `backoff`.

mod backoff;
mod conditions;
mod indexed;
mod indexes;
mod policies;
mod scale;
mod tracking;
mod verdict;
mod view;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{Job, JobStatus};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Preconditions, PropagationPolicy};
use parking_lot::Mutex;

use self::backoff::Backoff;
pub(super) use self::conditions::ended_as;
use self::conditions::{finished, suspension};
use self::verdict::{completion, verdict};
use self::view::{TRACKING, View};
use super::events::Recorder;
use super::mirror::ObjectKey;
use super::queue::Queue;
use super::reconcile::Reconcile;
use super::world::World;
use super::{objects, pods, selectors};

pub(crate) struct Controller {
    world: Arc<World>,
    queue: Arc<Queue<ObjectKey>>,
    events: Recorder,
    /// Failures of the jobs since their last success.
    backoffs: Mutex<HashMap<ObjectKey, Backoff>>,
}

/// Value of `managedBy` of jobs that this controller manages.
const CONTROLLER: &str = "kubernetes.io/job-controller";

impl Controller {
    /// Subscribes to the changes that concern this controller.
    pub(crate) fn new(world: &Arc<World>) -> Arc<Self> {
        let queue: Arc<Queue<ObjectKey>> = Arc::new(Queue::default());
        let jobs = Arc::clone(&world.jobs);
        let own = Arc::clone(&queue);
        jobs.listen(move |before: Option<&Arc<Job>>, after| {
            if let Some(job) = after.or(before) {
                own.add(ObjectKey::of(&job.metadata));
            }
        });
        let own = Arc::clone(&queue);
        world.pods.listen(move |before, after| {
            for pod in [before, after].into_iter().flatten() {
                let namespace = objects::namespace(&**pod);
                match objects::controller(&pod.metadata) {
                    Some(owner) if owner.kind == "Job" => {
                        own.add(ObjectKey::new(namespace, &owner.name));
                    }
                    Some(_) => {}
                    None => {
                        let all = jobs.within(namespace).into_iter();
                        for job in all.filter(|job| selects(job, pod)) {
                            own.add(ObjectKey::of(&job.metadata));
                        }
                    }
                }
            }
        });
        Arc::new(Self {
            world: Arc::clone(world),
            queue,
            events: world.events.of("job-controller"),
            backoffs: Mutex::new(HashMap::new()),
        })
    }
}

impl Reconcile for Controller {
    const NAME: &'static str = "job";
    const PARALLEL: usize = 4;

    fn queue(&self) -> &Arc<Queue<ObjectKey>> {
        &self.queue
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<(), kube::Error> {
        let Some(held) = self.world.jobs.get(key) else {
            self.backoffs.lock().remove(key);
            return self.untrack_orphans(key).await;
        };
        let mut job = Job::clone(&held);
        let spec = job.spec.clone().unwrap_or_default();
        let is_ours = spec.managed_by.is_none_or(|by| by == CONTROLLER);
        if finished(&job).is_some() {
            self.backoffs.lock().remove(key);
            if is_ours {
                self.untrack_all(&job).await?;
            }
            return self.expire(&job).await;
        }
        if !is_ours {
            return Ok(());
        }
        let suspended = spec.suspend == Some(true);
        let mut status = job.status.clone().unwrap_or_default();
        status.uncounted_terminated_pods.get_or_insert_default();
        if status.start_time.is_none() && !suspended {
            status.start_time = Some(objects::now());
        }
        let selector = spec.selector.clone().unwrap_or_default();
        let (all, mark) = (&self.world.pods, Some(TRACKING));
        let pods = pods::claim_marked(all, &job, &selector, |_| true, mark).await?;
        let view = View::new(&job, &status, pods);
        let mut counts = view.counts;
        let mut verdict = verdict(&job, &status, &view);
        let managed = if verdict.is_some() {
            let active = view.active.clone();
            let removed = pods::delete(&self.world.pods, &self.events, &job, active).await;
            if removed.is_ok() {
                counts.terminating += counts.active;
                (counts.active, counts.ready) = (0, 0);
            } else {
                // the job has not ended as long as pods may run
                verdict = None;
            }
            removed
        } else {
            let is_leaving = objects::deleting(&job);
            let managed = if is_leaving {
                Ok(())
            } else {
                self.manage(&job, &view, &mut counts).await
            };
            verdict = completion(&job, &view, counts.active);
            if verdict.is_none() && !is_leaving {
                suspension(&mut status, suspended, &job, &self.events);
            }
            managed
        };
        status.active = nonzero(counts.active);
        status.ready = Some(counts.ready);
        status.terminating = Some(counts.terminating);
        self.count(&mut job, &mut status, &view, verdict.as_ref())
            .await?;
        if let Some(verdict) = &verdict {
            self.conclude(&job, &mut status, verdict);
        }
        if job.status.as_ref() != Some(&status) {
            self.write(&mut job, &mut status).await?;
        }
        self.requeue_at_deadline(&job, &status);
        if finished(&job).is_some() {
            self.expire(&job).await?;
        }
        managed
    }
}

impl Controller {
    async fn write(&self, job: &mut Job, status: &mut JobStatus) -> Result<(), kube::Error> {
        job.status = Some(status.clone());
        let written = self.world.jobs.replace_status(job).await?;
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
        self.world.jobs.delete(job, &params).await
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

/// Returns whether a job would take a pod that nobody controls.
fn selects(job: &Job, pod: &Pod) -> bool {
    let selector = job.spec.as_ref().and_then(|spec| spec.selector.as_ref());
    let selector = selector.filter(|selector| !selectors::is_empty(selector));
    selector.is_some_and(|selector| selectors::selects(selector, objects::labels(pod)))
}

fn nonzero(number: i32) -> Option<i32> {
    (number != 0).then_some(number)
}
