//! Constructors for permissions and their bindings.

use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{
    ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::meta;

const GROUP: &str = "rbac.authorization.k8s.io";

fn owned(items: &[&str]) -> Vec<String> {
    items.iter().map(|item| (*item).to_owned()).collect()
}

pub(crate) fn rule(groups: &[&str], resources: &[&str], verbs: &[&str]) -> PolicyRule {
    PolicyRule {
        api_groups: Some(owned(groups)),
        resources: Some(owned(resources)),
        verbs: owned(verbs),
        non_resource_urls: None,
        resource_names: None,
    }
}

/// Returns what a daemon needs to ask who sends it a request, and whether that user may.
pub(crate) fn reviews() -> [PolicyRule; 2] {
    [
        rule(&["authentication.k8s.io"], &["tokenreviews"], &["create"]),
        rule(
            &["authorization.k8s.io"],
            &["subjectaccessreviews"],
            &["create"],
        ),
    ]
}

pub(crate) fn named_rule(
    groups: &[&str],
    resources: &[&str],
    names: &[&str],
    verbs: &[&str],
) -> PolicyRule {
    PolicyRule {
        resource_names: Some(owned(names)),
        ..rule(groups, resources, verbs)
    }
}

pub(crate) fn service_account(name: &str, namespace: &str) -> ServiceAccount {
    ServiceAccount {
        metadata: meta::namespaced(name, namespace),
        ..ServiceAccount::default()
    }
}

pub(crate) fn cluster_role(name: &str, rules: Vec<PolicyRule>) -> ClusterRole {
    ClusterRole {
        metadata: meta::cluster_wide(name),
        rules: Some(rules),
        aggregation_rule: None,
    }
}

pub(crate) fn role(name: &str, namespace: &str, rules: Vec<PolicyRule>) -> Role {
    Role {
        metadata: meta::namespaced(name, namespace),
        rules: Some(rules),
    }
}

fn reference(kind: &str, name: &str) -> RoleRef {
    RoleRef {
        api_group: GROUP.into(),
        kind: kind.into(),
        name: name.into(),
    }
}

fn subject(account: &str, namespace: &str) -> Vec<Subject> {
    vec![Subject {
        kind: "ServiceAccount".into(),
        name: account.into(),
        namespace: Some(namespace.into()),
        api_group: None,
    }]
}

/// Gives a binding a name of its own.
pub(crate) fn named<B: k8s_openapi::Metadata<Ty = ObjectMeta>>(name: &str, mut binding: B) -> B {
    binding.metadata_mut().name = Some(name.into());
    binding
}

/// Binds the cluster role that has the binding's name to a service account.
pub(crate) fn cluster_role_binding(
    name: &str,
    account: &str,
    namespace: &str,
) -> ClusterRoleBinding {
    ClusterRoleBinding {
        metadata: meta::cluster_wide(name),
        role_ref: reference("ClusterRole", name),
        subjects: Some(subject(account, namespace)),
    }
}

/// Binds the role that has the binding's name to a service account of the same namespace.
pub(crate) fn role_binding(name: &str, account: &str, namespace: &str) -> RoleBinding {
    RoleBinding {
        metadata: meta::namespaced(name, namespace),
        role_ref: reference("Role", name),
        subjects: Some(subject(account, namespace)),
    }
}
