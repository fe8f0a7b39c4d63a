//! The start of the job that is due.

use jiff::Timestamp;
use jiff::fmt::strtime;
use k8s_openapi::api::batch::v1::{CronJob, CronJobStatus, Job};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::ResourceExt as _;
use kube::api::{DeleteParams, PropagationPolicy};

use super::due::Plan;
use super::{Controller, drop_active};
use crate::controllers::mirror::ObjectKey;
use crate::controllers::{events, objects};

/// Annotation of a job with the time at which it was due.
const SCHEDULED: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";

/// Returns the job that is due at a time. Its name tells the minute, so that it cannot be made twice.
fn job_at(cron: &CronJob, plan: &Plan, at: Timestamp) -> Job {
    let template = cron.spec.clone().unwrap_or_default().job_template;
    let meta = template.metadata.unwrap_or_default();
    let mut annotations = meta.annotations.unwrap_or_default();
    let local = at.to_zoned(plan.zone.clone());
    // as Go writes it: `Z` and not `+00:00`
    let text = strtime::format("%Y-%m-%dT%H:%M:%S%:z", &local).unwrap_or_default();
    let text = text
        .strip_suffix("+00:00")
        .map_or_else(|| text.clone(), |text| format!("{text}Z"));
    annotations.insert(SCHEDULED.to_owned(), text);
    Job {
        metadata: ObjectMeta {
            name: Some(format!("{}-{}", cron.name_any(), at.as_second() / 60)),
            namespace: cron.metadata.namespace.clone(),
            labels: meta.labels.filter(|labels| !labels.is_empty()),
            annotations: Some(annotations),
            owner_references: Some(vec![objects::control(cron)]),
            ..ObjectMeta::default()
        },
        spec: template.spec,
        status: None,
    }
}

impl Controller {
    /// Starts the job that is due, if one is and the policy allows it.
    pub(super) async fn start(
        &self,
        cron: &CronJob,
        status: &mut CronJobStatus,
        plan: &Plan,
        now: Timestamp,
    ) -> Result<(), kube::Error> {
        let spec = cron.spec.clone().unwrap_or_default();
        let due = match plan.due(cron, now, true) {
            Ok(due) => due,
            Err(error) => {
                let what = format!("invalid schedule: {} : {error}", spec.schedule);
                self.events.warning(cron, "InvalidSchedule", what);
                return Ok(());
            }
        };
        let Some(at) = due.last else { return Ok(()) };
        if due.missed_many() {
            let what = "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew";
            self.events
                .warning(cron, "TooManyMissedTimes", what.to_owned());
        }
        if let Some(limit) = spec.starting_deadline_seconds
            && now.as_second() - at.as_second() > limit
        {
            let when = strtime::format("%a, %d %b %Y %H:%M:%S +0000", at).unwrap_or_default();
            let what = format!("Missed scheduled time to start a job: {when}");
            self.events.warning(cron, "MissSchedule", what);
            return Ok(());
        }
        let wanted = job_at(cron, plan, at);
        let active = status.active.clone().unwrap_or_default();
        let is_active = active.iter().any(|held| held.name == wanted.metadata.name);
        let last = status.last_schedule_time.as_ref();
        if is_active || last.is_some_and(|last| last.0 == at) {
            return Ok(());
        }
        match spec.concurrency_policy.as_deref() {
            Some("Forbid") if !active.is_empty() => {
                let what = "Not starting job because prior execution is running and concurrency policy is Forbid";
                self.events
                    .normal(cron, "JobAlreadyActive", what.to_owned());
                return Ok(());
            }
            Some("Replace") => {
                for held in &active {
                    let name = held.name.as_deref().unwrap_or_default();
                    let key = ObjectKey::new(objects::namespace(cron), name);
                    if let Some(job) = self.world.jobs.get(&key) {
                        self.delete(cron, status, &job).await?;
                    }
                }
            }
            _ => {}
        }
        let namespace = objects::namespace(cron);
        let made = match self.world.jobs.create(namespace, &wanted).await {
            Ok(made) => {
                let what = format!("Created job {}", made.name_any());
                self.events.normal(cron, "SuccessfulCreate", what);
                made
            }
            Err(error) if objects::namespace_terminating(&error) => return Ok(()),
            Err(error) if objects::code(&error) == 409 => {
                let found = self.world.jobs.get(&ObjectKey::of(&wanted.metadata));
                let ours =
                    found.filter(|job| objects::controlled_by(&job.metadata, objects::uid(cron)));
                let Some(ours) = ours else { return Ok(()) };
                ours
            }
            Err(error) => {
                let what = format!("Error creating job: {}", objects::message(&error));
                self.events.warning(cron, "FailedCreate", what);
                return Err(error);
            }
        };
        let active = status.active.get_or_insert_default();
        active.push(events::reference(&*made));
        status.last_schedule_time = Some(Time(at));
        Ok(())
    }

    /// Deletes a job with its pods.
    pub(super) async fn delete(
        &self,
        cron: &CronJob,
        status: &mut CronJobStatus,
        job: &Job,
    ) -> Result<(), kube::Error> {
        let params = DeleteParams {
            propagation_policy: Some(PropagationPolicy::Background),
            ..DeleteParams::default()
        };
        match self.world.jobs.delete(job, &params).await {
            Ok(()) => {
                drop_active(status, objects::uid(job));
                let what = format!("Deleted job {}", job.name_any());
                self.events.normal(cron, "SuccessfulDelete", what);
                Ok(())
            }
            Err(error) => {
                let what = format!("Deleted job: {}", objects::message(&error));
                self.events.warning(cron, "FailedDelete", what);
                Err(error)
            }
        }
    }
}
