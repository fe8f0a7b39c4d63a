//! The conditions of a job.

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{Job, JobCondition, JobStatus};

use crate::controllers::events::Recorder;
use crate::controllers::objects;

/// Records whether a job is suspended.
pub(super) fn suspension(status: &mut JobStatus, suspended: bool, job: &Job, events: &Recorder) {
    let held = status
        .conditions
        .iter()
        .flatten()
        .find(|held| held.type_ == "Suspended")
        .map(|held| held.status == "True");
    match (suspended, held) {
        (true, None | Some(false)) => {
            set(status, "Suspended", "True", "JobSuspended", "Job suspended");
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

/// Sets a condition; one with the same status stays unchanged.
pub(super) fn set(status: &mut JobStatus, kind: &str, value: &str, reason: &str, message: &str) {
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

fn end(job: &Job) -> Option<&JobCondition> {
    let status = job.status.as_ref()?;
    let mut conditions = status.conditions.iter().flatten();
    conditions
        .find(|held| matches!(held.type_.as_str(), "Complete" | "Failed") && held.status == "True")
}

/// Returns when a job ended, or `None` if it has not.
pub(super) fn finished(job: &Job) -> Option<Timestamp> {
    Some(end(job)?.last_transition_time.as_ref()?.0)
}

/// Returns the condition with which a job ended: `Complete` or `Failed`.
pub(in crate::controllers) fn ended_as(job: &Job) -> Option<&str> {
    end(job).map(|held| held.type_.as_str())
}
