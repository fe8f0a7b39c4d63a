//! The topology updater of node-feature-discovery, which publishes NodeResourceTopology objects as our exporters do (deployer.md 6).

use std::collections::BTreeMap;

use api::{names, nrt};
use k8s_openapi::api::rbac::v1::PolicyRule;
use serde_json::{Value, json};

use crate::{meta, rbac, to_value};

/// Name of the DaemonSet, of its container and program, and of the account with its role.
pub const NAME: &str = "nfd-topology-updater";
/// Namespace of the objects where the administrator chooses none.
pub const NAMESPACE: &str = "node-feature-discovery";

/// Inputs.
#[derive(Clone, Debug)]
pub struct Options {
    /// Namespace of the objects.
    pub namespace: String,
    /// Image of node-feature-discovery.
    pub image: String,
    /// Pull policy: `Always` or `IfNotPresent`.
    pub pull_policy: String,
    /// Verbosity.
    pub verbosity: u32,
    /// Time between two publications, as a Go duration; `None` leaves the choice to the program.
    pub interval: Option<String>,
    /// Whether the fingerprint of the pods is published.
    pub fingerprint: bool,
}

/// Returns the objects in the order in which they are applied, without the namespace.
pub fn objects(options: &Options) -> Vec<Value> {
    vec![
        to_value(&rbac::service_account(NAME, &options.namespace)),
        to_value(&rbac::cluster_role(NAME, rules())),
        to_value(&rbac::cluster_role_binding(NAME, NAME, &options.namespace)),
        daemon_set(options),
    ]
}

/// Returns the labels of every pod of the updater.
pub fn pod_labels() -> BTreeMap<String, String> {
    meta::labels([("app", NAME)])
}

fn rules() -> Vec<PolicyRule> {
    vec![
        rbac::rule(&[""], &["nodes"], &["get", "list"]),
        rbac::rule(&[""], &["pods"], &["get"]),
        rbac::rule(&[nrt::GROUP], &[nrt::PLURAL], &["create", "get", "update"]),
    ]
}

fn daemon_set(options: &Options) -> Value {
    let volumes = [
        ("host-sys", "/sys", "/host-sys"),
        (
            "kubelet-podresources-conf",
            "/var/lib/kubelet/config.yaml",
            "/host-var/lib/kubelet/config.yaml",
        ),
        (
            "kubelet-podresources",
            "/var/lib/kubelet/pod-resources",
            "/host-var/lib/kubelet/pod-resources",
        ),
    ];
    let container = json!({
        "name": NAME,
        "image": options.image,
        "imagePullPolicy": options.pull_policy,
        "command": [NAME],
        "args": args(options),
        "env": [{"name": names::ENV_NODE_NAME, "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": true,
            "runAsUser": 0,
        },
        "volumeMounts": volumes.map(|(name, _, path)| json!({"name": name, "mountPath": path})),
    });
    json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": {"name": NAME, "namespace": options.namespace, "labels": {"app": "nfd"}},
        "spec": {
            "selector": {"matchLabels": pod_labels()},
            "template": {
                "metadata": {"labels": pod_labels()},
                "spec": {
                    "serviceAccountName": NAME,
                    "dnsPolicy": "ClusterFirstWithHostNet",
                    "containers": [container],
                    "volumes": volumes.map(|(name, path, _)| json!({"name": name, "hostPath": {"path": path}})),
                },
            },
        },
    })
}

fn args(options: &Options) -> Vec<String> {
    let interval = options.interval.as_ref();
    let mut args = vec![
        "--kubelet-config-uri=file:///host-var/lib/kubelet/config.yaml".to_owned(),
        "--podresources-socket=unix:///host-var/lib/kubelet/pod-resources/kubelet.sock".to_owned(),
    ];
    args.extend(interval.map(|interval| format!("--sleep-interval={interval}")));
    args.extend([
        format!("-v={}", options.verbosity),
        format!("--pods-fingerprint={}", options.fingerprint),
        // empty: the directory of the kubelet's state is not watched
        "--kubelet-state-dir=".to_owned(),
    ]);
    args
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(interval: Option<&str>) -> Options {
        Options {
            namespace: NAMESPACE.into(),
            image: "image".into(),
            pull_policy: "Always".into(),
            verbosity: 1,
            interval: interval.map(Into::into),
            fingerprint: true,
        }
    }

    /// Literals: the updater is another project's program, and this is its command line.
    #[test]
    fn command_line_is_that_of_the_original() {
        let args = args(&options(Some("10s")));
        assert_eq!(
            args,
            [
                "--kubelet-config-uri=file:///host-var/lib/kubelet/config.yaml",
                "--podresources-socket=unix:///host-var/lib/kubelet/pod-resources/kubelet.sock",
                "--sleep-interval=10s",
                "-v=1",
                "--pods-fingerprint=true",
                "--kubelet-state-dir=",
            ]
        );
        assert_eq!(super::args(&options(None)).len(), 5);
    }

    #[test]
    fn every_mount_has_its_volume() {
        let set = daemon_set(&options(None));
        let pod = &set["spec"]["template"]["spec"];
        let names = |list: &Value| -> Vec<Value> {
            let list = list.as_array().unwrap();
            list.iter().map(|item| item["name"].clone()).collect()
        };
        assert_eq!(
            names(&pod["containers"][0]["volumeMounts"]),
            names(&pod["volumes"])
        );
    }
}
