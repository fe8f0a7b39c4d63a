//! Pod groups of the scheduler plugins: their definition, and the controller that keeps their status (deployer.md 7.1, 7.4). Our scheduler places
//! every pod by itself, so only who brings a scheduler that knows groups needs them.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::PolicyRule;
use serde_json::{Value, json};

use crate::control_plane::{prefers_control_plane, tolerates_control_plane};
use crate::{meta, network, rbac, to_value};

/// Name of the controller's Deployment, of its account and its roles.
pub const CONTROLLER: &str = "topology-aware-controller";
/// API group of pod groups.
pub const GROUP: &str = "scheduling.sigs.k8s.io";
/// Name of the definition.
pub const DEFINITION: &str = "podgroups.scheduling.sigs.k8s.io";

/// Inputs of the controller's objects.
#[derive(Clone, Debug)]
pub struct Options {
    /// Namespace of the objects.
    pub namespace: String,
    /// Image of the controller.
    pub image: String,
    /// Pull policy: `Always` or `IfNotPresent`.
    pub pull_policy: String,
    /// Number of pods.
    pub replicas: i32,
    /// TCP ports of the API server.
    pub api_server_ports: Vec<u16>,
}

/// Returns the definition of pod groups. Its group is protected, so an annotation names the approval of the API.
pub fn definition() -> Value {
    let count = |minimum: Option<i32>| match minimum {
        Some(minimum) => json!({"type": "integer", "format": "int32", "minimum": minimum}),
        None => json!({"type": "integer", "format": "int32"}),
    };
    let tally = json!({"type": "integer", "format": "int32", "default": 0});
    let text = json!({"type": "string"});
    let quantity = json!({
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "x-kubernetes-int-or-string": true,
    });
    let schema = json!({
        "type": "object",
        "properties": {
            "apiVersion": text, "kind": text, "metadata": {"type": "object"},
            "spec": {"type": "object", "properties": {
                "minMember": count(Some(1)),
                "scheduleTimeoutSeconds": count(None),
                "minResources": {"type": "object", "additionalProperties": quantity},
            }},
            "status": {"type": "object", "properties": {
                "phase": text, "occupiedBy": text,
                "scheduled": tally, "running": tally, "succeeded": tally, "failed": tally,
                "scheduleStartTime": {"type": "string", "format": "date-time"},
            }},
        },
    });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {
            "name": DEFINITION,
            "annotations": {
                api::annotations::API_APPROVED: "https://github.com/kubernetes-sigs/scheduler-plugins/pull/50",
            },
        },
        "spec": {
            "group": GROUP,
            "names": {
                "kind": "PodGroup", "listKind": "PodGroupList", "plural": "podgroups", "singular": "podgroup",
                "shortNames": ["pg", "pgs"],
            },
            "scope": "Namespaced",
            "versions": [{
                "name": "v1alpha1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": schema},
                "subresources": {"status": {}},
            }],
        },
    })
}

/// Returns the permissions that both the controller and a scheduler need for pod groups.
pub fn rule() -> PolicyRule {
    rbac::rule(
        &[GROUP],
        &["podgroups", "elasticquotas"],
        &[
            "get", "list", "watch", "create", "delete", "update", "patch",
        ],
    )
}

/// Returns the objects of the controller in the order in which they are applied.
pub fn objects(options: &Options) -> Vec<Value> {
    let namespace = options.namespace.as_str();
    let pods = pod_labels();
    let account: ServiceAccount = rbac::service_account(CONTROLLER, namespace);
    let rules = vec![
        rbac::rule(&[""], &["pods"], &["get", "list", "watch"]),
        rule(),
    ];
    let policy = |name: &str| format!("{CONTROLLER}-{name}");
    vec![
        to_value(&account),
        to_value(&rbac::cluster_role(CONTROLLER, rules)),
        to_value(&rbac::cluster_role_binding(
            CONTROLLER, CONTROLLER, namespace,
        )),
        to_value(&network::deny_all(
            &policy("default-deny-all"),
            namespace,
            &pods,
        )),
        to_value(&network::egress(
            &policy("egress-to-api-server"),
            namespace,
            &pods,
            &options.api_server_ports,
        )),
        deployment(options, &pods),
    ]
}

fn pod_labels() -> BTreeMap<String, String> {
    meta::labels([("app", CONTROLLER)])
}

fn deployment(options: &Options, pods: &BTreeMap<String, String>) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": CONTROLLER, "namespace": options.namespace, "labels": pods},
        "spec": {
            "replicas": options.replicas,
            "selector": {"matchLabels": pods},
            "template": {
                "metadata": {"labels": pods},
                "spec": {
                    "serviceAccountName": CONTROLLER,
                    "affinity": prefers_control_plane(),
                    "tolerations": tolerates_control_plane(),
                    "containers": [{
                        "name": CONTROLLER,
                        "image": options.image,
                        "imagePullPolicy": options.pull_policy,
                        "resources": {"requests": {"cpu": "100m"}},
                    }],
                },
            },
        },
    })
}
