//! Pauses of a job after failed pods.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};

use super::indexed;
use crate::controllers::objects;

/// Backoff after the first failed pod; it doubles with each further failure.
const FIRST_BACKOFF: Duration = Duration::from_secs(10);
/// Longest backoff after failed pods.
const LONGEST_BACKOFF: Duration = Duration::from_mins(10);

/// Failures of a job since its last success.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Backoff {
    failures: i32,
    last: Option<Timestamp>,
}

impl Backoff {
    /// Returns the failures after further pods have ended.
    pub(super) fn after(self, succeeded: &[Arc<Pod>], failed: &[Arc<Pod>]) -> Self {
        let success = succeeded.iter().map(|pod| ended(pod)).max();
        let later = |at: &Timestamp| success.is_none_or(|success| *at > success);
        let failed: Vec<Timestamp> = failed.iter().map(|pod| ended(pod)).filter(later).collect();
        let before = if success.is_some() {
            Self::default()
        } else {
            self
        };
        Self {
            failures: before.failures + failed.len() as i32,
            last: failed.into_iter().max().or(before.last),
        }
    }

    /// Returns how long the job still waits before its next pod.
    pub(super) fn left(self) -> Option<Duration> {
        let last = self.last.filter(|_| self.failures > 0)?;
        let doubled = 2u32.saturating_pow((self.failures - 1).clamp(0, 10).unsigned_abs());
        let wait = (FIRST_BACKOFF * doubled).min(LONGEST_BACKOFF);
        let spent = Duration::try_from(Timestamp::now().duration_since(last)).unwrap_or_default();
        wait.checked_sub(spent).filter(|left| !left.is_zero())
    }

    /// Returns the failures of an index whose last pod is this one.
    pub(super) fn of_index(failed: &Pod) -> Self {
        let (counted, ignored) = indexed::failures(failed);
        Self {
            failures: counted.saturating_add(ignored).saturating_add(1),
            last: Some(ended(failed)),
        }
    }
}

/// Returns when a pod ended, as far as its status shows it.
pub(super) fn ended(pod: &Pod) -> Timestamp {
    let status = pod.status.as_ref();
    let containers = status.and_then(|status| status.container_statuses.as_deref());
    let containers = containers.unwrap_or_default();
    let ends: Option<Vec<Timestamp>> = containers.iter().map(end).collect();
    let of_containers = ends.and_then(|ends| ends.into_iter().max());
    let not_ready = || {
        let held = objects::pod_condition(pod, "Ready")?;
        let held = Some(held).filter(|held| held.status == "False")?;
        Some(held.last_transition_time.as_ref()?.0)
    };
    let deleted = || {
        let at = pod.metadata.deletion_timestamp.as_ref()?.0;
        let grace = pod.metadata.deletion_grace_period_seconds.unwrap_or(0);
        at.checked_sub(jiff::SignedDuration::from_secs(grace)).ok()
    };
    let created = || Some(pod.metadata.creation_timestamp.as_ref()?.0);
    of_containers
        .or_else(not_ready)
        .or_else(deleted)
        .or_else(created)
        .unwrap_or(Timestamp::MIN)
}

fn end(container: &ContainerStatus) -> Option<Timestamp> {
    let terminated = container.state.as_ref()?.terminated.as_ref()?;
    Some(terminated.finished_at.as_ref()?.0)
}
