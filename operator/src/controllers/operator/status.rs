//! The status of a `NUMAResourcesOperator` (operator.md 3, 4.6, 4.7). Pure.

use std::collections::BTreeSet;
use std::time::Duration;

use api::openshift::machine_config as mco;
use api::operator::v1::{MachineConfigPool, NumaResourcesOperator, NumaResourcesOperatorStatus};
use api::operator::{NamespacedName, ObjectReference};
use api::{conditions as condition, nrt};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::jiff::Timestamp;

use super::apply::AppliedDaemonSet;
use super::plan::exporters::Exporters;
use crate::report::conditions::{Extra, Outcome, updated};

/// When to check DaemonSets that are not ready again if no event arrives earlier.
const NOT_READY_REQUEUE: Duration = Duration::from_secs(5);

/// The status that a reconciliation will write. It begins with the status that the resource has, so that what the reconciliation does not
/// reach stays.
#[derive(Debug)]
pub(super) struct NewStatus {
    status: NumaResourcesOperatorStatus,
    paused: Extra,
    generation: Option<i64>,
}

impl NewStatus {
    pub(super) fn of(cr: &NumaResourcesOperator) -> Self {
        let status = cr.status.clone().unwrap_or_default();
        let paused = Extra::unchanged(condition::MACHINE_CONFIG_POOL_PAUSED, &status.conditions);
        Self {
            status,
            paused,
            generation: cr.metadata.generation,
        }
    }

    /// Returns the conditions that the resource has.
    pub(super) fn conditions(&self) -> &[Condition] {
        &self.status.conditions
    }

    /// Takes over the state of the machine config pools, and which of them are paused: nothing in those changes until somebody resumes them.
    pub(super) fn machine_config_pools(
        &mut self,
        paused: &BTreeSet<String>,
        pools: Vec<MachineConfigPool>,
    ) {
        let list: Vec<&str> = paused.iter().map(String::as_str).collect();
        self.paused = Extra {
            name: condition::MACHINE_CONFIG_POOL_PAUSED,
            status: if list.is_empty() { "False" } else { "True" }.into(),
            message: if list.is_empty() {
                String::new()
            } else {
                format!("detected paused MCPs: {}", list.join(", "))
            },
            observed_generation: self.generation,
        };
        self.status.machineconfigpools = pools;
    }

    /// Takes over the exporters. Returns the outcome: available when all DaemonSets are ready and no pool has kubelets of different settings.
    pub(super) fn exporters(
        &mut self,
        namespace: &str,
        daemon_sets: &[AppliedDaemonSet],
        wanted: Exporters,
    ) -> Outcome {
        let name = |daemon_set: &AppliedDaemonSet| NamespacedName {
            namespace: namespace.into(),
            name: daemon_set.name.clone(),
        };
        let ready = daemon_sets.iter().filter(|daemon_set| daemon_set.ready);
        self.status.daemonsets = ready.map(name).collect();
        self.status.related_objects = related_objects(namespace, &self.status.daemonsets);
        if let Some(waiting) = daemon_sets.iter().find(|daemon_set| !daemon_set.ready) {
            return Outcome::Progressing {
                message: format!("{} is updating", name(waiting)),
                requeue_after: NOT_READY_REQUEUE,
            };
        }
        self.status.node_groups = wanted.node_groups;
        if wanted.mixed.is_empty() {
            return Outcome::Available;
        }
        Outcome::Invalid {
            reason: condition::REASON_MIXED_POOL,
            message: wanted.mixed.join("\n"),
        }
    }

    /// Returns the status after `outcome`.
    pub(super) fn after(self, outcome: &Outcome, now: Timestamp) -> NumaResourcesOperatorStatus {
        let existing = &self.status.conditions;
        let conditions = updated(existing, outcome, &[self.paused], self.generation, now);
        NumaResourcesOperatorStatus {
            conditions,
            ..self.status
        }
    }
}

/// Returns the objects to look at when something is wrong (operator.md 4.7).
fn related_objects(namespace: &str, ready: &[NamespacedName]) -> Vec<ObjectReference> {
    let any = |group: &str, resource: &str| ObjectReference {
        group: group.into(),
        resource: resource.into(),
        ..ObjectReference::default()
    };
    let mut objects = vec![
        ObjectReference {
            name: namespace.into(),
            ..any("", "namespaces")
        },
        any(mco::GROUP, "kubeletconfigs"),
        any(mco::GROUP, "machineconfigs"),
        any(nrt::GROUP, nrt::PLURAL),
    ];
    objects.extend(ready.iter().map(|name| ObjectReference {
        namespace: name.namespace.clone(),
        name: name.name.clone(),
        ..any("apps", "daemonsets")
    }));
    objects
}

#[cfg(test)]
mod tests {
    use api::names;
    use api::operator::v1::{NodeGroupStatus, NumaResourcesOperatorSpec};
    use rstest::rstest;

    use super::*;

    fn new_status() -> NewStatus {
        let spec = NumaResourcesOperatorSpec::default();
        let mut cr = NumaResourcesOperator::new(names::OPERATOR_CR, spec);
        cr.metadata.generation = Some(7);
        NewStatus::of(&cr)
    }

    fn wanted(mixed: &[&str]) -> Exporters {
        Exporters {
            objects: Vec::new(),
            node_groups: vec![NodeGroupStatus::default()],
            mixed: mixed.iter().map(|message| (*message).to_owned()).collect(),
        }
    }

    fn waiting_for(name: &str) -> Outcome {
        Outcome::Progressing {
            message: format!("ns/{name} is updating"),
            requeue_after: NOT_READY_REQUEUE,
        }
    }

    #[rstest]
    #[case::none(&[], &[], Outcome::Available, 1)]
    #[case::all_ready(&[("a", true), ("b", true)], &[], Outcome::Available, 1)]
    #[case::first_that_is_not_ready(&[("a", true), ("b", false), ("c", false)], &[], waiting_for("b"), 0)]
    #[case::not_ready_and_mixed(&[("a", false)], &["m"], waiting_for("a"), 0)]
    #[case::mixed(
        &[("a", true)],
        &["m", "n"],
        Outcome::Invalid { reason: condition::REASON_MIXED_POOL, message: "m\nn".into() },
        1
    )]
    fn outcome_follows_the_daemon_sets_and_then_the_kubelets(
        #[case] daemon_sets: &[(&str, bool)],
        #[case] mixed: &[&str],
        #[case] expected: Outcome,
        #[case] node_groups: usize,
    ) {
        let mut new_status = new_status();
        let applied: Vec<_> = daemon_sets
            .iter()
            .map(|(name, ready)| AppliedDaemonSet {
                name: (*name).to_owned(),
                ready: *ready,
            })
            .collect();
        assert_eq!(
            new_status.exporters("ns", &applied, wanted(mixed)),
            expected
        );
        let status = new_status.after(&expected, Timestamp::UNIX_EPOCH);
        assert_eq!(status.node_groups.len(), node_groups);
        let ready = daemon_sets.iter().filter(|(_, ready)| *ready).count();
        assert_eq!(status.daemonsets.len(), ready);
        assert_eq!(status.related_objects.len(), 4 + ready);
    }

    #[rstest]
    #[case::not_known(None, "Unknown", "", None)]
    #[case::none_paused(Some(&[][..]), "False", "", Some(7))]
    #[case::two_paused(Some(&["a", "b"][..]), "True", "detected paused MCPs: a, b", Some(7))]
    fn paused_pools_have_a_condition(
        #[case] paused: Option<&[&str]>,
        #[case] status: &str,
        #[case] message: &str,
        #[case] generation: Option<i64>,
    ) {
        let mut new_status = new_status();
        if let Some(paused) = paused {
            let names = paused.iter().map(|name| (*name).to_owned()).collect();
            new_status.machine_config_pools(&names, Vec::new());
        }
        let status_after = new_status.after(&Outcome::Available, Timestamp::UNIX_EPOCH);
        let found = status_after.conditions.last().unwrap();
        assert_eq!(found.type_, condition::MACHINE_CONFIG_POOL_PAUSED);
        assert_eq!(
            (found.status.as_str(), found.message.as_str()),
            (status, message)
        );
        assert_eq!(found.observed_generation, generation);
    }
}
