//! Permissions of the operator: those that it uses, and those that it grants to the operands. The API server refuses to let it grant a
//! permission that it does not have (operator.md 6.7).

use api::{names, nrt, openshift};
use k8s_openapi::api::rbac::v1::PolicyRule;

use crate::rbac::{named_rule, rule};
use crate::{rte, scheduler};

const READ: &[&str] = &["get", "list", "watch"];
const ADD: &[&str] = &["create", "list", "watch"];
const CHANGE: &[&str] = &["get", "update"];
const RBAC: &str = "rbac.authorization.k8s.io";
const MCO: &str = openshift::machine_config::GROUP;
const CONFIG: &str = openshift::config::GROUP;
const SCC: &str = openshift::SECURITY_GROUP;

/// Returns the cluster-wide permissions.
pub fn cluster_role() -> Vec<PolicyRule> {
    let crs = ["numaresourcesoperators", "numaresourcesschedulers"];
    let status = crs.map(|cr| format!("{cr}/status"));
    let finalizers = crs.map(|cr| format!("{cr}/finalizers"));
    let definition = format!("{}.{}", nrt::PLURAL, nrt::GROUP);
    let own_roles = ["clusterroles", "clusterrolebindings"];
    let mut rules = vec![
        rule(&[""], &["configmaps"], READ),
        // plain Kubernetes: the nodes of a pool
        rule(&[""], &["nodes"], &["list", "watch"]),
        rule(
            &["apiextensions.k8s.io"],
            &["customresourcedefinitions"],
            ADD,
        ),
        named_rule(
            &["apiextensions.k8s.io"],
            &["customresourcedefinitions"],
            &[definition.as_str()],
            CHANGE,
        ),
        rule(&[CONFIG], &["apiservers"], READ),
        rule(
            &[CONFIG],
            &["clusteroperators", "infrastructures"],
            &["get"],
        ),
        rule(&[CONFIG], &["clusterversions"], &["list"]),
        rule(&[MCO], &["kubeletconfigs", "machineconfigpools"], READ),
        rule(&[MCO], &["kubeletconfigs/finalizers"], &["update"]),
        rule(
            &[MCO],
            &["machineconfigs"],
            &["create", "delete", "get", "list", "update", "watch"],
        ),
        rule(&[api::operator::GROUP], &crs, READ),
        rule(
            &[api::operator::GROUP],
            &status.each_ref().map(String::as_str),
            &["get", "patch", "update"],
        ),
        rule(
            &[api::operator::GROUP],
            &finalizers.each_ref().map(String::as_str),
            &["update"],
        ),
        rule(&[RBAC], &own_roles, ADD),
        named_rule(
            &[RBAC],
            &own_roles,
            &[names::RTE, names::SCHEDULER_CLUSTER_ROLE],
            CHANGE,
        ),
        // old releases left this binding behind
        named_rule(
            &[RBAC],
            &["clusterrolebindings"],
            &[names::SCHEDULER],
            &["delete"],
        ),
        rule(&[SCC], &["securitycontextconstraints"], ADD),
        named_rule(
            &[SCC],
            &["securitycontextconstraints"],
            &[names::RTE_SCC, names::RTE_SCC_V2],
            CHANGE,
        ),
    ];
    rules.extend(rte::cluster_role_rules());
    rules.extend(scheduler::rules::cluster_role(names::SCHEDULER_LEASE));
    rules
}

/// Returns the permission to ask kubelets for their settings. The API server passes the question on as its own, so it is the API server that
/// has to allow it, and it knows only `nodes/proxy`; `nodes/configz` counts for those who ask a kubelet directly.
pub fn kubelet_reader() -> Vec<PolicyRule> {
    vec![rule(&[""], &["nodes/proxy"], &["get"])]
}

/// Returns the permissions in the operator's namespace.
pub fn role() -> Vec<PolicyRule> {
    let mut rules = vec![
        rule(
            &[""],
            &["configmaps"],
            &["create", "delete", "get", "list", "update", "watch"],
        ),
        rule(
            &["apps"],
            &["daemonsets"],
            &["create", "delete", "get", "list", "update", "watch"],
        ),
        rule(&["apps"], &["deployments"], ADD),
        named_rule(&["apps"], &["deployments"], &[names::SCHEDULER], CHANGE),
        rule(
            &["networking.k8s.io"],
            &["networkpolicies"],
            &["create", "delete", "get", "list", "update", "watch"],
        ),
        rule(&[RBAC], &["roles", "rolebindings"], ADD),
        named_rule(
            &[RBAC],
            &["roles", "rolebindings"],
            &[names::RTE, names::SCHEDULER_LEADER_ROLE],
            CHANGE,
        ),
        rule(&[""], &["serviceaccounts", "services"], ADD),
        named_rule(
            &[""],
            &["serviceaccounts"],
            &[names::RTE, names::SCHEDULER],
            CHANGE,
        ),
        named_rule(&[""], &["services"], &[names::RTE_METRICS_SERVICE], CHANGE),
    ];
    rules.extend(rte::role_rules());
    rules.extend(scheduler::rules::leader_role(names::SCHEDULER_LEASE));
    rules
}

/// Returns the permissions for the operator's own leader election.
pub fn leader_role() -> Vec<PolicyRule> {
    let all = [
        "get", "list", "watch", "create", "update", "patch", "delete",
    ];
    vec![
        rule(&[""], &["configmaps"], &all),
        rule(&["coordination.k8s.io"], &["leases"], &all),
        rule(&[""], &["events"], &["create", "patch"]),
    ]
}
