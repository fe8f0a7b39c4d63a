//! Decides from the status of an object whether it is in effect.

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

/// Returns whether every node that should run a pod of the current template runs a ready one. A status of an older generation counts as not
/// ready, because a new DaemonSet reports zero desired pods until its controller has seen it.
pub fn daemon_set(object: &DaemonSet) -> bool {
    let Some(status) = &object.status else {
        return false;
    };
    if status.observed_generation < object.metadata.generation {
        return false;
    }
    let desired = status.desired_number_scheduled;
    desired == 0
        || (status.number_ready == desired
            && status.updated_number_scheduled.unwrap_or(0) == desired)
}

/// Returns whether the condition `Available` is True for the current generation, and a pod is available if any is wanted. Where a rolling update may
/// stop every pod, the condition alone is True without any.
pub fn deployment(object: &Deployment) -> bool {
    let Some(status) = &object.status else {
        return false;
    };
    if status.observed_generation < object.metadata.generation {
        return false;
    }
    let wanted = object
        .spec
        .as_ref()
        .and_then(|spec| spec.replicas)
        .unwrap_or(1);
    let conditions = status.conditions.as_deref().unwrap_or_default();
    (wanted == 0 || status.available_replicas.unwrap_or(0) > 0)
        && conditions
            .iter()
            .any(|condition| condition.type_ == "Available" && condition.status == "True")
}

/// Returns whether the condition `Established` is True: objects of the kind can be written.
pub fn definition(object: &CustomResourceDefinition) -> bool {
    let conditions = object
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_deref())
        .unwrap_or_default();
    conditions
        .iter()
        .any(|condition| condition.type_ == "Established" && condition.status == "True")
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::{
        DaemonSetStatus, DeploymentCondition, DeploymentSpec, DeploymentStatus,
    };
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::not_seen_yet(2, 1, 0, 0, 0, false)]
    #[case::wants_none(1, 1, 0, 0, 0, true)]
    #[case::all_ready(1, 1, 2, 2, 2, true)]
    #[case::one_missing(1, 1, 2, 1, 2, false)]
    #[case::old_pods_ready(1, 1, 2, 2, 1, false)]
    fn daemon_set_is_ready_when_current_pods_are(
        #[case] generation: i64,
        #[case] observed: i64,
        #[case] desired: i32,
        #[case] number_ready: i32,
        #[case] updated: i32,
        #[case] expected: bool,
    ) {
        let object = DaemonSet {
            metadata: ObjectMeta {
                generation: Some(generation),
                ..ObjectMeta::default()
            },
            status: Some(DaemonSetStatus {
                observed_generation: Some(observed),
                desired_number_scheduled: desired,
                number_ready,
                updated_number_scheduled: Some(updated),
                ..DaemonSetStatus::default()
            }),
            ..DaemonSet::default()
        };
        assert_eq!(daemon_set(&object), expected);
    }

    #[rstest]
    #[case::available(1, "True", (1, 1), true)]
    #[case::unavailable(1, "False", (1, 1), false)]
    #[case::of_an_older_generation(2, "True", (1, 1), false)]
    #[case::no_pod(1, "True", (1, 0), false)]
    #[case::some_pods(1, "True", (3, 1), true)]
    #[case::no_pod_wanted(1, "True", (0, 0), true)]
    fn deployment_is_ready_when_available(
        #[case] generation: i64,
        #[case] status: &str,
        #[case] (wanted, available): (i32, i32),
        #[case] expected: bool,
    ) {
        let condition = DeploymentCondition {
            type_: "Available".into(),
            status: status.into(),
            ..DeploymentCondition::default()
        };
        let object = Deployment {
            metadata: ObjectMeta {
                generation: Some(generation),
                ..ObjectMeta::default()
            },
            spec: Some(DeploymentSpec {
                replicas: Some(wanted),
                ..DeploymentSpec::default()
            }),
            status: Some(DeploymentStatus {
                observed_generation: Some(1),
                available_replicas: Some(available),
                conditions: Some(vec![condition]),
                ..DeploymentStatus::default()
            }),
        };
        assert_eq!(deployment(&object), expected);
    }

    #[test]
    fn nothing_is_ready_without_status() {
        assert!(!daemon_set(&DaemonSet::default()));
        assert!(!deployment(&Deployment::default()));
        assert!(!definition(&CustomResourceDefinition::default()));
    }
}
