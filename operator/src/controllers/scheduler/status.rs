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
    dedicated: Extra,
    generation: Option<i64>,
}

impl NewStatus {
    pub(super) fn of(cr: &NumaResourcesScheduler) -> Self {
        let status = cr.status.clone().unwrap_or_default();
        let dedicated = Extra::unchanged(condition::DEDICATED_INFORMER_ACTIVE, &status.conditions);
        Self {
            status,
            dedicated,
            generation: cr.metadata.generation,
        }
    }

    /// Returns the conditions that the resource has.
    pub(super) fn conditions(&self) -> &[Condition] {
        &self.status.conditions
    }

    /// Takes over the informer that the applied configuration has. Until one is applied, the condition stays as it is: a resource that is
    /// refused changes nothing about the scheduler that runs (operator.md 3).
    pub(super) fn informer(&mut self, informer: SchedulerInformerMode) {
        let status = match informer {
            SchedulerInformerMode::Dedicated => "True",
            SchedulerInformerMode::Shared => "False",
        };
        self.dedicated = Extra {
            name: condition::DEDICATED_INFORMER_ACTIVE,
            status: status.into(),
            message: String::new(),
            observed_generation: self.generation,
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
    pub(super) fn after(self, outcome: &Outcome, now: Timestamp) -> NumaResourcesSchedulerStatus {
        let existing = &self.status.conditions;
        let conditions = updated(existing, outcome, &[self.dedicated], self.generation, now);
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
        let mut cr = NumaResourcesScheduler::new(names::SCHEDULER_CR, spec);
        cr.metadata.generation = Some(7);
        NewStatus::of(&cr)
    }

    #[rstest]
    #[case::available(true, Outcome::Available)]
    #[case::not_yet(false, Outcome::Progressing { message: String::new(), requeue_after: NOT_READY_REQUEUE })]
    fn outcome_follows_the_deployment(#[case] available: bool, #[case] expected: Outcome) {
        let mut new_status = new_status();
        let period = GoDuration::from_nanos(1_600_000_000);
        let outcome = new_status.scheduler("ns", None, period, available);
        assert_eq!(outcome, expected);
        let status = new_status.after(&outcome, Timestamp::UNIX_EPOCH);
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
    #[case::not_known(None, "Unknown", None)]
    #[case::dedicated(Some(SchedulerInformerMode::Dedicated), "True", Some(7))]
    #[case::shared(Some(SchedulerInformerMode::Shared), "False", Some(7))]
    fn informer_has_a_condition(
        #[case] informer: Option<SchedulerInformerMode>,
        #[case] expected: &str,
        #[case] generation: Option<i64>,
    ) {
        let mut new_status = new_status();
        if let Some(informer) = informer {
            new_status.informer(informer);
        }
        let status = new_status.after(&Outcome::Available, Timestamp::UNIX_EPOCH);
        let found = status.conditions.last().unwrap();
        assert_eq!(found.type_, condition::DEDICATED_INFORMER_ACTIVE);
        assert_eq!(found.status, expected);
        assert_eq!(found.observed_generation, generation);
    }

    #[test]
    fn informer_condition_outlives_a_refused_resource() {
        let mut applied = new_status();
        applied.informer(SchedulerInformerMode::Dedicated);
        let mut cr =
            NumaResourcesScheduler::new(names::SCHEDULER_CR, NumaResourcesSchedulerSpec::default());
        cr.status = Some(applied.after(&Outcome::Available, Timestamp::UNIX_EPOCH));
        cr.metadata.generation = Some(8);
        let refused = Outcome::Invalid {
            reason: condition::REASON_INVALID_SCHEDULER_IMAGE,
            message: "m".into(),
        };
        let status = NewStatus::of(&cr).after(&refused, Timestamp::UNIX_EPOCH);
        let found = status.conditions.last().unwrap();
        assert_eq!(
            (found.status.as_str(), found.observed_generation),
            ("True", Some(7))
        );
    }
}
