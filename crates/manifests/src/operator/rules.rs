//! Permissions of the operator: those that it uses on its platform, and those that it grants to the operands. The API server refuses to let it
//! grant a permission that it does not have (operator.md 6.7).
//!
//! The original has one set for all platforms, and in it permissions that it never uses. `docs/security.md` says what each is for.

use api::{names, nrt, openshift};
use k8s_openapi::api::rbac::v1::PolicyRule;

use crate::platform::Platform;
use crate::rbac::{named_rule, reviews, rule};
use crate::{rte, scheduler};

const READ: &[&str] = &["get", "list", "watch"];
const FOLLOW: &[&str] = &["list", "watch"];
const ADD: &[&str] = &["create", "list", "watch"];
const CHANGE: &[&str] = &["get", "update"];
const RBAC: &str = "rbac.authorization.k8s.io";
const MCO: &str = openshift::machine_config::GROUP;
const CONFIG: &str = openshift::config::GROUP;
const SCC: &str = openshift::SECURITY_GROUP;
const ADMISSION: &str = "admissionregistration.k8s.io";

/// Returns the cluster-wide permissions. Those for OpenShift are enough for a hosted cluster, too, because one file installs the operator on
/// both.
pub fn cluster_role(platform: Platform) -> Vec<PolicyRule> {
    let mut rules = everywhere();
    if platform.is_openshift() {
        rules.extend(openshift());
    }
    if platform == Platform::OpenShift {
        rules.extend(machine_configs());
    }
    rules.extend(rte::cluster_role_rules());
    rules.extend(scheduler::rules::cluster_role(names::SCHEDULER_LEASE));
    rules
}

fn everywhere() -> Vec<PolicyRule> {
    let crs = ["numaresourcesoperators", "numaresourcesschedulers"];
    let status = crs.map(|cr| format!("{cr}/status"));
    let finalizers = crs.map(|cr| format!("{cr}/finalizers"));
    let definition = format!("{}.{}", nrt::PLURAL, nrt::GROUP);
    let own_roles = ["clusterroles", "clusterrolebindings"];
    let policies = [
        "validatingadmissionpolicies",
        "validatingadmissionpolicybindings",
    ];
    // who reads the metrics
    let [tokens, access] = reviews();
    vec![
        // the nodes of a pool, and those that determine the number of schedulers
        rule(&[""], &["nodes"], FOLLOW),
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
        rule(&[ADMISSION], &policies, ADD),
        named_rule(
            &[ADMISSION],
            &policies,
            &[names::RTE_OWN_NODE_POLICY],
            CHANGE,
        ),
        // to find out whether this is an OpenShift
        rule(&[CONFIG], &["clusterversions"], &["list"]),
        tokens,
        access,
        rule(&[api::operator::GROUP], &crs, READ),
        rule(
            &[api::operator::GROUP],
            &status.each_ref().map(String::as_str),
            &["patch"],
        ),
        // where owner references are checked, whoever writes one that blocks the deletion of its owner must be able to do this
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
    ]
}

fn openshift() -> Vec<PolicyRule> {
    vec![
        // a hosted cluster keeps the settings of its kubelets in the ConfigMaps of another namespace
        rule(&[""], &["configmaps"], FOLLOW),
        rule(&[CONFIG], &["apiservers"], READ),
        rule(
            &[CONFIG],
            &["clusteroperators", "infrastructures"],
            &["get"],
        ),
        rule(&[SCC], &["securitycontextconstraints"], ADD),
        named_rule(
            &[SCC],
            &["securitycontextconstraints"],
            &[names::RTE_SCC, names::RTE_SCC_V2],
            CHANGE,
        ),
    ]
}

fn machine_configs() -> Vec<PolicyRule> {
    vec![
        rule(&[MCO], &["kubeletconfigs", "machineconfigpools"], FOLLOW),
        // as for the operator's own resources: a ConfigMap with the settings of kubelets is owned by their KubeletConfig
        rule(&[MCO], &["kubeletconfigs/finalizers"], &["update"]),
        rule(
            &[MCO],
            &["machineconfigs"],
            &["create", "delete", "get", "list", "update", "watch"],
        ),
    ]
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
            &["create", "get", "list", "update", "watch"],
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

/// Returns the permissions for the operator's own leader election. Creation is not restricted to the lease's name, because a create request
/// never matches a resource name.
pub fn leader_role() -> Vec<PolicyRule> {
    let group = "coordination.k8s.io";
    vec![
        rule(&[group], &["leases"], &["create"]),
        named_rule(&[group], &["leases"], &[names::OPERATOR_LEASE], CHANGE),
    ]
}
