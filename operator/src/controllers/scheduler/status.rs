//! The status of a `NUMAResourcesScheduler` (operator.md 3, 4.7). Pure.

use std::time::Duration;

use api::operator::{NamespacedName, ObjectReference};
use api::scheduler::v1::{
    NumaResourcesScheduler, NumaResourcesSchedulerStatus, SchedulerInformerMode,
};
use api::{conditions as condition, names};
use goflags::GoDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::jiff::Timestamp;

use crate::report::conditions::{Extra, Outcome, updated};

/// When to check a Deployment that is not available again if no event arrives earlier.
const NOT_READY_REQUEUE: Duration = Duration::from_secs(5);

/// The status that a reconciliation will write. It begins with the status that the resource has, so that what the reconciliation does not
/// reach stays.
#[derive(Debug)]
pub(super) struct NewStatus {
    status: NumaResourcesSchedulerStatus,
    dedicated: &'static str,
}

impl NewStatus {
    pub(super) fn of(cr: &NumaResourcesScheduler) -> Self {
        Self {
            status: cr.status.clone().unwrap_or_default(),
            dedicated: "Unknown",
        }
    }

    /// Returns the conditions that the resource has.
    pub(super) fn conditions(&self) -> &[Condition] {
        &self.status.conditions
    }

    /// Takes over the informer in effect.
    pub(super) fn informer(&mut self, informer: SchedulerInformerMode) {
        self.dedicated = match informer {
            SchedulerInformerMode::Dedicated => "True",
            SchedulerInformerMode::Shared => "False",
        };
    }

    /// Takes over the scheduler. Returns the outcome: available when its Deployment is.
    pub(super) fn scheduler(
        &mut self,
        namespace: &str,
        profile: Option<String>,
        period: GoDuration,
        available: bool,
    ) -> Outcome {
        let deployment = NamespacedName {
            namespace: namespace.into(),
            name: names::SCHEDULER.into(),
        };
        let seconds = GoDuration::from_seconds(period.rounded_seconds());
        let profile = profile.unwrap_or_else(|| names::SCHEDULER_PROFILE.into());
        self.status.scheduler_name = Some(profile);
        self.status.cache_resync_period = Some(seconds.to_string());
        self.status.related_objects = related_objects(&deployment);
        self.status.deployment = Some(deployment);
        if available {
            Outcome::Available
        } else {
            Outcome::Progressing {
                message: String::new(),
                requeue_after: NOT_READY_REQUEUE,
            }
        }
    }

    /// Returns the status after `outcome`.
    pub(super) fn after(
        self,
        outcome: &Outcome,
        generation: Option<i64>,
        now: Timestamp,
    ) -> NumaResourcesSchedulerStatus {
        let extra = Extra {
            name: condition::DEDICATED_INFORMER_ACTIVE,
            status: self.dedicated.into(),
            message: String::new(),
        };
        let existing = &self.status.conditions;
        let conditions = updated(existing, outcome, &[extra], generation, now);
        NumaResourcesSchedulerStatus {
            conditions,
            ..self.status
        }
    }
}

/// Returns the objects to look at when something is wrong (operator.md 4.7).
fn related_objects(deployment: &NamespacedName) -> Vec<ObjectReference> {
    vec![
        ObjectReference {
            resource: "namespaces".into(),
            name: deployment.namespace.clone(),
            ..ObjectReference::default()
        },
        ObjectReference {
            group: "apps".into(),
            resource: "deployments".into(),
            namespace: deployment.namespace.clone(),
            name: deployment.name.clone(),
        },
    ]
}

#[cfg(test)]
mod tests {
    use api::scheduler::v1::NumaResourcesSchedulerSpec;
    use rstest::rstest;

    use super::*;

    fn new_status() -> NewStatus {
        let spec = NumaResourcesSchedulerSpec::default();
        NewStatus::of(&NumaResourcesScheduler::new(names::SCHEDULER_CR, spec))
    }

    #[rstest]
    #[case::available(true, Outcome::Available)]
    #[case::not_yet(false, Outcome::Progressing { message: String::new(), requeue_after: NOT_READY_REQUEUE })]
    fn outcome_follows_the_deployment(#[case] available: bool, #[case] expected: Outcome) {
        let mut new_status = new_status();
        let period = GoDuration::from_nanos(1_600_000_000);
        let outcome = new_status.scheduler("ns", None, period, available);
        assert_eq!(outcome, expected);
        let status = new_status.after(&outcome, None, Timestamp::UNIX_EPOCH);
        assert_eq!(status.cache_resync_period.as_deref(), Some("2s"));
        assert_eq!(
            status.scheduler_name.as_deref(),
            Some(names::SCHEDULER_PROFILE)
        );
        assert_eq!(
            status.deployment.unwrap().to_string(),
            format!("ns/{}", names::SCHEDULER)
        );
        assert_eq!(status.related_objects.len(), 2);
    }

    #[rstest]
    #[case::not_known(None, "Unknown")]
    #[case::dedicated(Some(SchedulerInformerMode::Dedicated), "True")]
    #[case::shared(Some(SchedulerInformerMode::Shared), "False")]
    fn informer_has_a_condition(
        #[case] informer: Option<SchedulerInformerMode>,
        #[case] expected: &str,
    ) {
        let mut new_status = new_status();
        if let Some(informer) = informer {
            new_status.informer(informer);
        }
        let status = new_status.after(&Outcome::Available, None, Timestamp::UNIX_EPOCH);
        let found = status.conditions.last().unwrap();
        assert_eq!(found.type_, condition::DEDICATED_INFORMER_ACTIVE);
        assert_eq!(found.status, expected);
    }
}
