//! Whether a job has ended, and how.

use std::time::Duration;

use k8s_openapi::api::batch::v1::{Job, JobStatus, UncountedTerminatedPods};
use k8s_openapi::api::core::v1::Pod;

use super::conditions::set;
use super::policies::{self, Failure};
use super::view::{View, is_failed};
use super::{Controller, indexed};
use crate::controllers::objects;

/// How a job ends.
pub(super) struct Verdict {
    /// Whether it succeeds.
    good: bool,
    reason: String,
    message: String,
}

fn bad(reason: &str, message: &str) -> Verdict {
    Verdict {
        good: false,
        reason: reason.to_owned(),
        message: message.to_owned(),
    }
}

/// Returns the verdict that the status has already.
fn decided(status: &JobStatus, kind: &str, good: bool) -> Option<Verdict> {
    let conditions = status.conditions.iter().flatten();
    let mut held = conditions.filter(|held| held.type_ == kind && held.status == "True");
    held.next().map(|held| Verdict {
        good,
        reason: held.reason.clone().unwrap_or_default(),
        message: held.message.clone().unwrap_or_default(),
    })
}

/// Returns how a job ends although it wants more pods, or `None` if it goes on.
pub(super) fn verdict(job: &Job, status: &JobStatus, view: &View) -> Option<Verdict> {
    decided(status, "SuccessCriteriaMet", true)
        .or_else(|| decided(status, "FailureTarget", false))
        .or_else(|| by_policy(job, view))
        .or_else(|| by_limits(job, status, view))
        .or_else(|| by_indexes(job, view))
}

fn by_policy(job: &Job, view: &View) -> Option<Verdict> {
    let failed = view.pods.iter().filter(|pod| is_failed(job, pod));
    let mut verdicts = failed.filter_map(|pod| match policies::of_failure(job, pod) {
        Failure::FailsJob(message) => Some(bad("PodFailurePolicy", &message)),
        _ => None,
    });
    verdicts.next()
}

/// Returns how often containers were started again, of pods that do that themselves.
fn restarts(job: &Job, view: &View) -> i32 {
    let spec = job.spec.as_ref();
    let policy = spec.and_then(|spec| spec.template.spec.as_ref()?.restart_policy.as_deref());
    let counts = |pod: &Pod| {
        let status = pod.status.clone().unwrap_or_default();
        let main = status.container_statuses.into_iter().flatten();
        let init = status.init_container_statuses.into_iter().flatten();
        main.chain(init)
            .map(|container| container.restart_count)
            .sum::<i32>()
    };
    if policy != Some("OnFailure") {
        return 0;
    }
    let running = view.pods.iter().filter(|pod| !objects::terminal(pod));
    running.map(|pod| counts(pod)).sum()
}

fn by_limits(job: &Job, status: &JobStatus, view: &View) -> Option<Verdict> {
    let spec = job.spec.as_ref()?;
    let restarts = restarts(job, view);
    let limit = spec.backoff_limit.unwrap_or(6);
    if view.failed > limit || restarts > 0 && restarts >= limit {
        return Some(bad(
            "BackoffLimitExceeded",
            "Job has reached the specified backoff limit",
        ));
    }
    let limit = spec.active_deadline_seconds?;
    let limit = Duration::from_secs(limit.max(0).unsigned_abs());
    let start = status.start_time.as_ref()?;
    if spec.suspend != Some(true) && objects::since(start) >= limit {
        return Some(bad(
            "DeadlineExceeded",
            "Job was active longer than specified deadline",
        ));
    }
    None
}

fn by_indexes(job: &Job, view: &View) -> Option<Verdict> {
    let progress = view.progress.as_ref()?;
    if let Some(failed) = &progress.failed {
        let most = job.spec.as_ref().and_then(|spec| spec.max_failed_indexes);
        if most.is_some_and(|most| failed.total() > most) {
            return Some(bad(
                "MaxFailedIndexesExceeded",
                "Job has exceeded the specified maximal number of failed indexes",
            ));
        }
        let ended = failed.total() + progress.succeeded.total();
        if failed.total() > 0 && ended >= indexed::completions(job) {
            return Some(bad("FailedIndexes", "Job has failed indexes"));
        }
    }
    policies::success(job, &progress.succeeded).map(|message| Verdict {
        good: true,
        reason: "SuccessPolicy".to_owned(),
        message,
    })
}

/// Returns the verdict of a job that has all its completions and no pods any more, or `None` if it goes on.
pub(super) fn completion(job: &Job, view: &View, active: i32) -> Option<Verdict> {
    let wanted = job.spec.as_ref().and_then(|spec| spec.completions);
    let is_reached = wanted.map_or(view.succeeded > 0, |wanted| view.succeeded >= wanted);
    (is_reached && active == 0).then(|| Verdict {
        good: true,
        reason: "CompletionsReached".to_owned(),
        message: "Reached expected number of succeeded pods".to_owned(),
    })
}

/// Returns whether a status has pods that are not in its numbers yet.
fn has_uncounted(status: &JobStatus) -> bool {
    let none = UncountedTerminatedPods::default();
    status
        .uncounted_terminated_pods
        .as_ref()
        .is_some_and(|uncounted| *uncounted != none)
}

impl Verdict {
    /// Returns whether the job succeeds.
    pub(super) fn is_good(&self) -> bool {
        self.good
    }

    /// Notes the verdict in the status, before the pods are gone.
    pub(super) fn announce(&self, status: &mut JobStatus) {
        let kind = if self.good {
            "SuccessCriteriaMet"
        } else {
            "FailureTarget"
        };
        set(status, kind, "True", &self.reason, &self.message);
    }
}

impl Controller {
    /// Notes in the status that a job has ended, unless some of its pods are still there or not counted.
    pub(super) fn conclude(&self, job: &Job, status: &mut JobStatus, verdict: &Verdict) {
        if has_uncounted(status) || status.terminating.unwrap_or(0) > 0 {
            return;
        }
        let Verdict {
            good,
            reason,
            message,
        } = verdict;
        let kind = if *good { "Complete" } else { "Failed" };
        set(status, kind, "True", reason, message);
        if !good {
            self.events
                .warning(job, event_reason(reason), message.clone());
            return;
        }
        status.completion_time = Some(objects::now());
        let wanted = job.spec.as_ref().and_then(|spec| spec.completions);
        if wanted.is_some_and(|wanted| status.succeeded.unwrap_or(0) > wanted) {
            let what = "Too many succeeded pods running after completion count reached";
            self.events
                .warning(job, "TooManySucceededPods", what.to_owned());
        }
        self.events
            .normal(job, "Completed", "Job completed".to_owned());
    }
}

/// Returns the event reason of a failed job.
fn event_reason(reason: &str) -> &'static str {
    match reason {
        "DeadlineExceeded" => "DeadlineExceeded",
        "PodFailurePolicy" => "PodFailurePolicy",
        "MaxFailedIndexesExceeded" => "MaxFailedIndexesExceeded",
        "FailedIndexes" => "FailedIndexes",
        _ => "BackoffLimitExceeded",
    }
}
