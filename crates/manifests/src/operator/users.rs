//! Roles that an administrator may bind to those who edit or only look at the custom resources, with the original's names (operator.md 6.7).
//! They are optional, and no role of Kubernetes includes them.

use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule};

use crate::rbac::{cluster_role, rule};

/// Returns an editor's and a viewer's role for each of the two resources.
pub fn roles() -> Vec<ClusterRole> {
    let read = ["get", "list", "watch"];
    let edit = [
        "create", "delete", "get", "list", "patch", "update", "watch",
    ];
    ["numaresourcesoperator", "numaresourcesscheduler"]
        .into_iter()
        .flat_map(|resource| {
            [
                role(resource, "editor", &edit),
                role(resource, "viewer", &read),
            ]
        })
        .collect()
}

/// Returns the role of those who may read the metrics of operator, exporters and scheduler.
pub fn metrics_reader(name: &str) -> ClusterRole {
    let metrics = PolicyRule {
        non_resource_urls: Some(vec!["/metrics".into()]),
        verbs: vec!["get".into()],
        ..PolicyRule::default()
    };
    cluster_role(name, vec![metrics])
}

fn role(resource: &str, user: &str, verbs: &[&str]) -> ClusterRole {
    let groups = [api::operator::GROUP];
    let plural = format!("{resource}s");
    let status = format!("{plural}/status");
    cluster_role(
        &format!("{resource}-{user}-role"),
        vec![
            rule(&groups, &[plural.as_str()], verbs),
            rule(&groups, &[status.as_str()], &["get"]),
        ],
    )
}
