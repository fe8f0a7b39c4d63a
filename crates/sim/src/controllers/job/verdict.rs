//! Whether a job has ended, and how.

use std::time::Duration;

use k8s_openapi::api::batch::v1::{Job, JobStatus};

use super::Controller;
use super::conditions::set;
use super::tracking::Sorted;
use crate::controllers::objects;

/// How a job ends.
pub(super) struct Verdict {
    /// Whether it succeeds.
    good: bool,
    reason: String,
    message: String,
}

/// Returns how a job ends, or `None` if it goes on.
pub(super) fn verdict(job: &Job, status: &JobStatus, sorted: &Sorted) -> Option<Verdict> {
    let (succeeded, failed) = sorted.totals(status);
    let already = |kind: &str, good: bool| {
        let held = status
            .conditions
            .iter()
            .flatten()
            .find(|held| held.type_ == kind)?;
        Some(Verdict {
            good,
            reason: held.reason.clone().unwrap_or_default(),
            message: held.message.clone().unwrap_or_default(),
        })
    };
    if let Some(decided) =
        already("SuccessCriteriaMet", true).or_else(|| already("FailureTarget", false))
    {
        return Some(decided);
    }
    let spec = job.spec.clone().unwrap_or_default();
    let bad = |reason: &str, message: &str| {
        Some(Verdict {
            good: false,
            reason: reason.to_owned(),
            message: message.to_owned(),
        })
    };
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
    reached.then(|| Verdict {
        good: true,
        reason: "CompletionsReached".to_owned(),
        message: "Reached expected number of succeeded pods".to_owned(),
    })
}

impl Controller {
    /// Writes a verdict into the status. The job has ended only when it has no pods any more.
    pub(super) fn conclude(
        &self,
        job: &Job,
        status: &mut JobStatus,
        verdict: &Verdict,
        has_pods: bool,
    ) {
        let Verdict {
            good,
            reason,
            message,
        } = verdict;
        let (first, last) = if *good {
            ("SuccessCriteriaMet", "Complete")
        } else {
            ("FailureTarget", "Failed")
        };
        set(status, first, "True", reason, message);
        if has_pods {
            return;
        }
        set(status, last, "True", reason, message);
        status.active = None;
        status.ready = Some(0);
        if *good {
            status.completion_time = Some(objects::now());
            self.events
                .normal(job, "Completed", "Job completed".to_owned());
        } else {
            self.events
                .warning(job, event_reason(reason), message.clone());
        }
    }
}

/// Returns the event reason of a failed job.
fn event_reason(reason: &str) -> &'static str {
    match reason {
        "DeadlineExceeded" => "DeadlineExceeded",
        _ => "BackoffLimitExceeded",
    }
}
