//! The exporter without an operator, on plain Kubernetes, with the names that the original's manifest has (rte.md 9.1). The settings of the
//! topology manager come from the kubelet's own file on each node.

use api::{conditions, metrics, names};
use serde_json::{Value, json};

use super::{admission, cluster_role_rules, pod_labels, role_rules, security};
use crate::{confinement, meta, rbac, to_value};

/// Namespace of the objects, as in the original's manifest.
const NAMESPACE: &str = "default";
const DAEMON_SET: &str = "resource-topology-exporter-ds";
/// ConfigMap with the settings of the exporter itself.
const DAEMON_CONFIG: &str = "rte-config-daemon";
/// ConfigMap with what is to be left out.
const EXTRA_CONFIG: &str = "rte-config-extra";

/// Returns the objects in the order in which they are applied. The definition of NRTs is not among them. The original's manifest has no role for
/// the namespace: its exporters may write the status of every pod of the cluster.
pub fn objects(image: &str) -> Vec<Value> {
    vec![
        to_value(&rbac::service_account(names::RTE, NAMESPACE)),
        to_value(&rbac::role(names::RTE, NAMESPACE, role_rules())),
        to_value(&rbac::role_binding(names::RTE, names::RTE, NAMESPACE)),
        to_value(&rbac::cluster_role(names::RTE, cluster_role_rules())),
        to_value(&rbac::cluster_role_binding(
            names::RTE,
            names::RTE,
            NAMESPACE,
        )),
        to_value(&admission::policy(NAMESPACE)),
        to_value(&admission::binding()),
        config_map(
            DAEMON_CONFIG,
            "nrtUpdater:\n  patchMode: true\n  patchResync: 10\n\
             resourceMonitor:\n  refreshNodeResources: true\n\
             topologyExporter:\n  addNRTOwnerEnable: true\n  podReadinessEnable: true\n",
        ),
        config_map(EXTRA_CONFIG, "resourceExclude: {}\npodExclude: []\n"),
        daemon_set(image),
    ]
}

fn config_map(name: &str, text: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "data": {names::CONFIG_KEY: text},
    })
}

fn daemon_set(image: &str) -> Value {
    let volume = |name: &str, path: &str, kind: &str| json!({"name": name, "hostPath": {"path": path, "type": kind}});
    let gates = [
        conditions::POD_RESOURCES_FETCHED,
        conditions::NODE_TOPOLOGY_UPDATED,
    ];
    let pods = json!({
        "securityContext": confinement::of_pod(),
        "serviceAccountName": names::RTE,
        "readinessGates": gates.map(|gate| json!({"conditionType": gate})),
        "containers": [exporter(image), helper(image)],
        "volumes": [
            volume("host-sys", "/sys", "Directory"),
            // of the kubelet's directory nothing but the two places that the arguments name
            volume("host-podresources", "/var/lib/kubelet/pod-resources", "Directory"),
            volume("host-kubelet-config", "/var/lib/kubelet/config.yaml", "File"),
            volume("host-run-rte", "/run/rte", "DirectoryOrCreate"),
            {"name": "config-daemon", "configMap": {"name": DAEMON_CONFIG, "optional": true}},
            {"name": "config-extra", "configMap": {"name": EXTRA_CONFIG, "optional": true}},
        ],
    });
    json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": {"name": DAEMON_SET, "namespace": NAMESPACE, "labels": pod_labels()},
        "spec": {
            "selector": {"matchLabels": pod_labels()},
            "template": {"metadata": {"labels": pod_labels()}, "spec": pods},
        },
    })
}

fn exporter(image: &str) -> Value {
    let field = |name: &str, path: &str| json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}});
    let text = |name: &str, value: &str| json!({"name": name, "value": value});
    json!({
        "name": "resource-topology-exporter-container",
        "image": image,
        "command": [names::RTE_BINARY],
        "args": [
            "--sleep-interval=60s",
            "--metrics-mode=disabled",
            "--sysfs=/host-sys",
            "--kubelet-config-file=/host-var/lib/kubelet/config.yaml",
            "--podresources-socket=unix:///host-var/lib/kubelet/pod-resources/kubelet.sock",
            "--notify-file=/host-run/rte/notify",
            "--config=/etc/rte/extra/config.yaml",
        ],
        "env": [
            field(names::ENV_NODE_NAME, "spec.nodeName"),
            field("REFERENCE_NAMESPACE", "metadata.namespace"),
            field("REFERENCE_POD_NAME", "metadata.name"),
            text("REFERENCE_CONTAINER_NAME", names::RTE_HELPER_CONTAINER),
            text("METRICS_PORT", &metrics::RTE_PORT.to_string()),
            text("METRICS_ADDRESS", "127.0.0.1"),
        ],
        "resources": security::memory(),
        "securityContext": security::of_exporter(true, None),
        "volumeMounts": [
            meta::mount_all_read_only("host-sys", "/host-sys"),
            meta::mount_read_only("host-podresources", "/host-var/lib/kubelet/pod-resources"),
            meta::mount_read_only("host-kubelet-config", "/host-var/lib/kubelet/config.yaml"),
            meta::mount("host-run-rte", "/host-run/rte"),
            meta::mount_read_only("config-daemon", "/etc/rte/daemon"),
            meta::mount_read_only("config-extra", "/etc/rte/extra"),
        ],
    })
}

/// Returns a container without work, which runs on the shared CPUs.
fn helper(image: &str) -> Value {
    json!({
        "name": names::RTE_HELPER_CONTAINER, "image": image,
        "command": ["/bin/sleep"], "args": ["infinity"],
        "securityContext": security::of_helper(true),
    })
}

#[cfg(test)]
mod tests {
    use api::labels;

    use super::*;

    /// Those who come from the original's manifest replace its objects, and scripts find the same labels.
    #[test]
    fn names_and_selector_are_those_of_the_original() {
        let named: Vec<String> = objects("i")
            .iter()
            .map(|object| {
                let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                let metadata = &object["metadata"];
                let [kind, name] = [&object["kind"], &metadata["name"]].map(text);
                format!("{kind} {}/{name}", text(&metadata["namespace"]))
            })
            .collect();
        assert_eq!(
            named,
            [
                "ServiceAccount default/rte",
                "Role default/rte",
                "RoleBinding default/rte",
                "ClusterRole /rte",
                "ClusterRoleBinding /rte",
                "ValidatingAdmissionPolicy /numaresources-rte-own-node",
                "ValidatingAdmissionPolicyBinding /numaresources-rte-own-node",
                "ConfigMap default/rte-config-daemon",
                "ConfigMap default/rte-config-extra",
                "DaemonSet default/resource-topology-exporter-ds",
            ]
        );
        let set = objects("i").pop().unwrap();
        assert_eq!(
            set["spec"]["selector"]["matchLabels"],
            json!({labels::RTE_POD: labels::RTE_POD_VALUE})
        );
    }
}
