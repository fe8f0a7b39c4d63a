//! CronJobs: jobs at the times of a schedule.
//!
//! Follows the cron job controller of Kubernetes 1.35. The time zone without another is UTC.
//!
//! Reading order: [`Controller::reconcile`], `start`, then `due` and `schedule`.

mod due;
mod start;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{CronJob, CronJobStatus, Job};
use kube::ResourceExt as _;

use self::due::{Plan, PlanError};
use super::events::Recorder;
use super::job::ended_as;
use super::mirror::ObjectKey;
use super::objects;
use super::queue::Queue;
use super::reconcile::Reconcile;
use super::world::World;

pub(crate) struct Controller {
    world: Arc<World>,
    queue: Arc<Queue<ObjectKey>>,
    events: Recorder,
}

impl Controller {
    /// Subscribes to the changes that concern this controller.
    pub(crate) fn new(world: &Arc<World>) -> Arc<Self> {
        let queue: Arc<Queue<ObjectKey>> = Arc::new(Queue::default());
        let cron_jobs = Arc::clone(&world.cron_jobs);
        let own = Arc::clone(&queue);
        cron_jobs.listen(move |before: Option<&Arc<CronJob>>, after| {
            let Some(cron) = after else { return };
            let key = ObjectKey::of(&cron.metadata);
            let is_new = before.is_some_and(|before| !has_same_times(before, cron));
            // of another schedule no time in the past counts
            let plan = Some(cron)
                .filter(|_| is_new)
                .and_then(|cron| Plan::of(cron).ok());
            match plan.and_then(|plan| plan.wait(cron, Timestamp::now())) {
                Some(wait) => own.add_after(key, Duration::try_from(wait).unwrap_or_default()),
                None => own.add(key),
            }
        });
        let own = Arc::clone(&queue);
        world.jobs.listen(move |before, after| {
            let Some(job) = after.or(before) else { return };
            let owner = objects::controller(&job.metadata);
            if let Some(owner) = owner.filter(|owner| owner.kind == "CronJob") {
                own.add(ObjectKey::new(objects::namespace(&**job), &owner.name));
            }
        });
        Arc::new(Self {
            world: Arc::clone(world),
            queue,
            events: world.events.of("cronjob-controller"),
        })
    }
}

impl Reconcile for Controller {
    const NAME: &'static str = "cronjob";
    const PARALLEL: usize = 2;

    fn queue(&self) -> &Arc<Queue<ObjectKey>> {
        &self.queue
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<(), kube::Error> {
        let Some(cron) = self.world.cron_jobs.get(key) else {
            return Ok(());
        };
        let mut status = cron.status.clone().unwrap_or_default();
        let jobs = self.world.jobs.indexed(objects::uid(&*cron));
        let forgotten = self.forget(&cron, &mut status, &jobs).await;
        self.follow(&cron, &mut status, &jobs);
        let now = Timestamp::now();
        let mut again = None;
        let mut outcome = Ok(());
        let may_start = !objects::deleting(&*cron)
            && cron
                .spec
                .as_ref()
                .is_some_and(|spec| spec.suspend != Some(true));
        if may_start && let Some(plan) = self.plan(&cron) {
            outcome = self.start(&cron, &mut status, &plan, now).await;
            let mut started = CronJob::clone(&cron);
            started.status = Some(status.clone());
            again = plan.wait(&started, now);
        }
        if cron.status.clone().unwrap_or_default() != status {
            let mut object = CronJob::clone(&cron);
            object.status = Some(status);
            self.world.cron_jobs.replace_status(&object).await?;
        }
        forgotten.and(outcome)?;
        if let Some(wait) = again {
            let wait = Duration::try_from(wait).unwrap_or_default();
            self.queue.add_after(key.clone(), wait);
        }
        Ok(())
    }
}

impl Controller {
    /// Brings the list of active jobs up to date with the jobs that there are.
    fn follow(&self, cron: &CronJob, status: &mut CronJobStatus, jobs: &[Arc<Job>]) {
        for job in jobs {
            let is_active = status
                .active
                .iter()
                .flatten()
                .any(|held| held.uid.as_deref() == Some(objects::uid(&**job)));
            let Some(end) = ended_as(job) else {
                if !is_active {
                    let what = format!(
                        "Saw a job that the controller did not create or forgot: {}",
                        job.name_any()
                    );
                    self.events.warning(cron, "UnexpectedJob", what);
                }
                continue;
            };
            if is_active {
                drop_active(status, objects::uid(&**job));
                let what = format!("Saw completed job: {}, condition: {end}", job.name_any());
                self.events.normal(cron, "SawCompletedJob", what);
            }
            let completed = job.status.as_ref();
            let completed = completed.and_then(|status| status.completion_time.clone());
            let known = status.last_successful_time.as_ref();
            if end == "Complete"
                && let Some(completed) = completed
                && known.is_none_or(|known| completed.0 > known.0)
            {
                status.last_successful_time = Some(completed);
            }
        }
        let active = status.active.clone().unwrap_or_default();
        for held in active {
            let uid = held.uid.unwrap_or_default();
            if jobs.iter().all(|job| objects::uid(&**job) != uid) {
                let name = held.name.unwrap_or_default();
                let what = format!("Active job went missing: {name}");
                self.events.normal(cron, "MissingJob", what);
                drop_active(status, &uid);
            }
        }
    }

    /// Deletes the oldest ended jobs beyond the history limits.
    async fn forget(
        &self,
        cron: &CronJob,
        status: &mut CronJobStatus,
        jobs: &[Arc<Job>],
    ) -> Result<(), kube::Error> {
        let Some(spec) = &cron.spec else {
            return Ok(());
        };
        for (end, limit) in [
            ("Complete", spec.successful_jobs_history_limit),
            ("Failed", spec.failed_jobs_history_limit),
        ] {
            let Some(limit) = limit else { continue };
            let ended = jobs.iter().filter(|job| ended_as(job) == Some(end));
            let mut ended: Vec<_> = ended.collect();
            ended.sort_by_cached_key(|job| {
                let start = job
                    .status
                    .as_ref()
                    .and_then(|status| status.start_time.as_ref());
                (
                    start.map_or(Timestamp::MAX, |start| start.0),
                    job.name_any(),
                )
            });
            let surplus = ended.len().saturating_sub(limit.max(0) as usize);
            for job in ended.into_iter().take(surplus) {
                if !objects::deleting(&**job) {
                    self.delete(cron, status, job).await?;
                }
            }
        }
        Ok(())
    }

    /// Returns the schedule of a CronJob; tells when it has none that can be read.
    fn plan(&self, cron: &CronJob) -> Option<Plan> {
        let error = match Plan::of(cron) {
            Ok(plan) => return Some(plan),
            Err(error) => error,
        };
        let reason = match error {
            PlanError::Zone { .. } => "UnknownTimeZone",
            PlanError::Schedule { .. } => "UnparseableSchedule",
        };
        self.events.warning(cron, reason, error.to_string());
        None
    }
}

fn has_same_times(one: &CronJob, other: &CronJob) -> bool {
    let times = |cron: &CronJob| {
        let spec = cron.spec.clone().unwrap_or_default();
        (spec.schedule, spec.time_zone)
    };
    times(one) == times(other)
}

/// Removes a job from the active ones.
fn drop_active(status: &mut CronJobStatus, uid: &str) {
    let mut active = status.active.take().unwrap_or_default();
    active.retain(|held| held.uid.as_deref() != Some(uid));
    status.active = Some(active).filter(|active| !active.is_empty());
}
