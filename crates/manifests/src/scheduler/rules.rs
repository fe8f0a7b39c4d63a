//! Permissions of the scheduler (operator.md 6.6).

use api::nrt;
use k8s_openapi::api::rbac::v1::PolicyRule;

use crate::rbac::{named_rule, reviews, rule};

const READ: &[&str] = &["get", "list", "watch"];
const COORDINATION: &str = "coordination.k8s.io";

/// Returns the cluster-wide permissions, with this lease of the leader election.
pub fn cluster_role(lease: &str) -> Vec<PolicyRule> {
    let all = [
        "create",
        "delete",
        "deletecollection",
        "get",
        "list",
        "patch",
        "update",
        "watch",
    ];
    let storage = [
        "csinodes",
        "storageclasses",
        "csidrivers",
        "csistoragecapacities",
        "volumeattachments",
    ];
    let [tokens, access] = reviews();
    vec![
        rule(
            &["", "events.k8s.io"],
            &["events"],
            &["create", "patch", "update"],
        ),
        rule(&[""], &["nodes"], READ),
        rule(
            &[""],
            &["replicationcontrollers", "services", "namespaces"],
            READ,
        ),
        rule(
            &[""],
            &["persistentvolumeclaims", "persistentvolumes"],
            READ,
        ),
        rule(&[""], &["pods"], &["delete", "get", "list", "watch"]),
        rule(&[""], &["bindings", "pods/binding"], &["create"]),
        rule(&[""], &["pods/status"], &["patch", "update"]),
        rule(&["apps", "extensions"], &["replicasets"], READ),
        rule(&["apps"], &["statefulsets"], READ),
        rule(&["policy"], &["poddisruptionbudgets"], READ),
        rule(&[COORDINATION], &["leases"], &["create"]),
        named_rule(
            &[COORDINATION],
            &["leases"],
            &[lease],
            &["get", "list", "update", "watch"],
        ),
        rule(&[COORDINATION], &["leasecandidates"], &all),
        tokens,
        access,
        rule(&["storage.k8s.io"], &storage, READ),
        rule(
            &["resource.k8s.io"],
            &["deviceclasses", "resourceclaims", "resourceslices"],
            READ,
        ),
        rule(&[nrt::GROUP], &[nrt::PLURAL], READ),
    ]
}

/// Returns the permission to bind claims that wait for their first consumer. The original's deployer gives it (deployer.md 7.2), its operator does not.
pub fn volume_binding() -> PolicyRule {
    rule(
        &[""],
        &["persistentvolumeclaims", "persistentvolumes"],
        &["patch"],
    )
}

/// Returns the permissions for leader election. Creation is not restricted to the lease's name, because a create request never matches a
/// resource name (operator.md 10).
pub fn leader_role(lease: &str) -> Vec<PolicyRule> {
    vec![
        rule(&[COORDINATION], &["leases"], &["create"]),
        named_rule(&[COORDINATION], &["leases"], &[lease], &["get", "update"]),
        rule(&[""], &["endpoints"], &["create"]),
        named_rule(&[""], &["endpoints"], &[lease], &["get", "update"]),
    ]
}
