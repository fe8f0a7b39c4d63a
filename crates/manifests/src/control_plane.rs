//! What the pods of the scheduler and of the operator have in common: they run beside the control plane.

use api::labels;
use k8s_openapi::api::core::v1::{
    Affinity, NodeAffinity, NodeSelectorRequirement, NodeSelectorTerm, PreferredSchedulingTerm,
    Toleration,
};

/// Returns the annotation that allows OpenShift to put the pods on the CPUs of the platform.
pub(crate) fn management_workload() -> (&'static str, &'static str) {
    (
        "target.workload.openshift.io/management",
        r#"{"effect": "PreferredDuringScheduling"}"#,
    )
}

/// Returns an affinity that prefers control plane nodes.
pub(crate) fn prefers_control_plane() -> Affinity {
    let requirement = NodeSelectorRequirement {
        key: labels::CONTROL_PLANE.into(),
        operator: "Exists".into(),
        values: None,
    };
    let preference = NodeSelectorTerm {
        match_expressions: Some(vec![requirement]),
        match_fields: None,
    };
    let node_affinity = NodeAffinity {
        preferred_during_scheduling_ignored_during_execution: Some(vec![PreferredSchedulingTerm {
            preference,
            weight: 1,
        }]),
        required_during_scheduling_ignored_during_execution: None,
    };
    Affinity {
        node_affinity: Some(node_affinity),
        ..Affinity::default()
    }
}

/// Returns tolerations for both role names that control plane nodes are tainted with.
pub(crate) fn tolerates_control_plane() -> Vec<Toleration> {
    [labels::CONTROL_PLANE, "node-role.kubernetes.io/master"]
        .map(|key| Toleration {
            key: Some(key.into()),
            effect: Some("NoSchedule".into()),
            operator: Some("Exists".into()),
            ..Toleration::default()
        })
        .into()
}
