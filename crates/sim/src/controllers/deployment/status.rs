//! Status and conditions of deployments.

use std::time::Duration;

use k8s_openapi::api::apps::v1::{
    Deployment, DeploymentCondition, DeploymentStatus, ReplicaSet, ReplicaSetStatus,
};

use super::sets::{Sets, replicas};
use super::{Controller, deadline, desired, limits};
use crate::controllers::mirror::ObjectKey;
use crate::controllers::objects;

const AVAILABLE: &str = "NewReplicaSetAvailable";
const TIMED_OUT: &str = "ProgressDeadlineExceeded";

/// Reads and sets conditions.
pub(super) trait Conditions {
    /// Returns the condition that describes the progress of a rollout.
    fn progressing(&self) -> Option<&DeploymentCondition>;
    /// Sets a condition; one with the same status and reason stays unchanged.
    fn set(&mut self, kind: &str, status: &str, reason: &str, message: &str);
    /// Removes a condition.
    fn unset(&mut self, kind: &str);
}

impl Conditions for DeploymentStatus {
    fn progressing(&self) -> Option<&DeploymentCondition> {
        self.conditions
            .iter()
            .flatten()
            .find(|condition| condition.type_ == "Progressing")
    }

    fn set(&mut self, kind: &str, status: &str, reason: &str, message: &str) {
        let conditions = self.conditions.get_or_insert_default();
        let held = conditions.iter().find(|held| held.type_ == kind);
        if held.is_some_and(|held| held.status == status && held.reason.as_deref() == Some(reason))
        {
            return;
        }
        let since = held
            .filter(|held| held.status == status)
            .and_then(|held| held.last_transition_time.clone());
        conditions.retain(|held| held.type_ != kind);
        conditions.push(DeploymentCondition {
            type_: kind.to_owned(),
            status: status.to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()),
            last_update_time: Some(objects::now()),
            last_transition_time: Some(since.unwrap_or_else(objects::now)),
        });
    }

    fn unset(&mut self, kind: &str) {
        if let Some(conditions) = &mut self.conditions {
            conditions.retain(|held| held.type_ != kind);
        }
        self.conditions = self.conditions.take().filter(|list| !list.is_empty());
    }
}

/// Returns whether everything is rolled out and available.
pub(super) fn complete(deployment: &Deployment, status: &DeploymentStatus) -> bool {
    let wanted = desired(deployment);
    status.updated_replicas.unwrap_or(0) == wanted
        && status.replicas.unwrap_or(0) == wanted
        && status.available_replicas.unwrap_or(0) == wanted
        && status.observed_generation.unwrap_or(0) >= deployment.metadata.generation.unwrap_or(0)
}

/// Returns whether a rollout has progressed.
fn progressed(before: &DeploymentStatus, after: &DeploymentStatus) -> bool {
    let number = |value: Option<i32>| value.unwrap_or(0);
    let old = |status: &DeploymentStatus| number(status.replicas) - number(status.updated_replicas);
    number(after.updated_replicas) > number(before.updated_replicas)
        || old(after) < old(before)
        || number(after.ready_replicas) > number(before.ready_replicas)
        || number(after.available_replicas) > number(before.available_replicas)
}

/// Returns the time left until a rollout counts as stuck, or `None` if the deployment has no deadline or no progress condition.
fn time_left(deployment: &Deployment, status: &DeploymentStatus) -> Option<Duration> {
    let limit = Duration::from_secs(deadline(deployment)?.unsigned_abs().into());
    let condition = status.progressing()?;
    let spent = objects::since(condition.last_update_time.as_ref()?);
    Some(limit.saturating_sub(spent))
}

fn calculate(deployment: &Deployment, sets: &Sets) -> DeploymentStatus {
    let nonzero = |number: i32| (number != 0).then_some(number);
    let sum = |of: fn(&ReplicaSetStatus) -> i32| -> i32 {
        sets.all()
            .filter_map(|set| set.status.as_ref())
            .map(of)
            .sum()
    };
    let available = sum(|status| status.available_replicas.unwrap_or(0));
    let total: i32 = sets.all().map(|set| replicas(set)).sum();
    let before = deployment.status.clone().unwrap_or_default();
    let of_new = |set: &ReplicaSet| set.status.as_ref().map_or(0, |status| status.replicas);
    // The sum is known only if every ReplicaSet reports its number.
    let terminating: Option<i32> = sets
        .all()
        .map(|set| set.status.as_ref()?.terminating_replicas)
        .sum();
    let mut status = DeploymentStatus {
        observed_generation: deployment.metadata.generation,
        replicas: nonzero(sum(|status| status.replicas)),
        updated_replicas: nonzero(sets.new.as_ref().map_or(0, |new| of_new(new))),
        ready_replicas: nonzero(sum(|status| status.ready_replicas.unwrap_or(0))),
        available_replicas: nonzero(available),
        unavailable_replicas: nonzero((total - available).max(0)),
        terminating_replicas: terminating,
        collision_count: before.collision_count,
        conditions: before.conditions,
    };
    if available >= desired(deployment) - limits(deployment).1 {
        status.set(
            "Available",
            "True",
            "MinimumReplicasAvailable",
            "Deployment has minimum availability.",
        );
    } else {
        status.set(
            "Available",
            "False",
            "MinimumReplicasUnavailable",
            "Deployment does not have minimum availability.",
        );
    }
    status
}

impl Controller {
    /// Writes the status if it changed, without judging progress.
    pub(super) async fn store_status(
        &self,
        deployment: &mut Deployment,
        sets: &Sets,
    ) -> Result<(), kube::Error> {
        let status = calculate(deployment, sets);
        if deployment.status.as_ref() == Some(&status) {
            return Ok(());
        }
        deployment.status = Some(status);
        self.write_status(deployment).await
    }

    /// Writes the status if it changed, together with the progress of the rollout.
    pub(super) async fn store_rollout(
        &self,
        deployment: &mut Deployment,
        sets: &Sets,
    ) -> Result<(), kube::Error> {
        let before = deployment.status.clone().unwrap_or_default();
        let mut status = calculate(deployment, sets);
        let what = |tail: &str| match &sets.new {
            Some(new) => format!("ReplicaSet {:?} {tail}", objects::name(&**new)),
            None => format!("Deployment {:?} {tail}", objects::name(deployment)),
        };
        let current = before.progressing().cloned();
        let reason = current
            .as_ref()
            .and_then(|condition| condition.reason.as_deref());
        let done = status.replicas == status.updated_replicas && reason == Some(AVAILABLE);
        if deadline(deployment).is_none() {
            status.unset("Progressing");
        } else if !done {
            let expired = time_left(deployment, &before).is_some_and(|left| left.is_zero());
            if complete(deployment, &status) {
                let message = what("has successfully progressed.");
                status.set("Progressing", "True", AVAILABLE, &message);
            } else if progressed(&before, &status) {
                // The condition is set again each time, so that the deadline restarts.
                status.unset("Progressing");
                status.set(
                    "Progressing",
                    "True",
                    "ReplicaSetUpdated",
                    &what("is progressing."),
                );
                let since = current
                    .as_ref()
                    .filter(|condition| condition.status == "True")
                    .and_then(|condition| condition.last_transition_time.clone());
                let condition = status.conditions.iter_mut().flatten().last();
                if let (Some(condition), Some(since)) = (condition, since) {
                    condition.last_transition_time = Some(since);
                }
            } else if reason == Some(TIMED_OUT) || reason != Some(AVAILABLE) && expired {
                let message = what("has timed out progressing.");
                status.set("Progressing", "False", TIMED_OUT, &message);
            }
        }
        let failure = sets.new.iter().chain(&sets.old).find_map(|set| {
            let conditions = set.status.as_ref()?.conditions.as_ref()?;
            conditions
                .iter()
                .find(|condition| condition.type_ == "ReplicaFailure")
                .cloned()
        });
        match failure {
            Some(failure) => status.set(
                "ReplicaFailure",
                &failure.status,
                failure.reason.as_deref().unwrap_or_default(),
                failure.message.as_deref().unwrap_or_default(),
            ),
            None => status.unset("ReplicaFailure"),
        }
        if before == status {
            let reason = status
                .progressing()
                .and_then(|condition| condition.reason.as_deref());
            if reason != Some(TIMED_OUT)
                && !complete(deployment, &status)
                && let Some(left) = time_left(deployment, &status)
            {
                self.queue.add_after(
                    ObjectKey::of(&deployment.metadata),
                    left + Duration::from_secs(1),
                );
            }
            return Ok(());
        }
        deployment.status = Some(status);
        self.write_status(deployment).await
    }
}
