//! Security context constraints: what the pods may do on their nodes (operator.md 6.3: OpenShift only).

use api::{names, openshift};
use serde_json::{Value, json};

/// SELinux level of the exporters.
pub(super) const SELINUX_LEVEL: &str = "s0";

/// Returns the SELinux type of the exporters: the type of device plugins, which may use the kubelet's sockets, or the type that the legacy
/// policy defines.
pub(super) fn selinux_type(custom_policy: bool) -> &'static str {
    if custom_policy {
        "rte.process"
    } else {
        "container_device_plugin_t"
    }
}

/// Returns the constraints for pods with the legacy policy, and those for all others. Both always exist; a pod names the one that it needs.
pub(super) fn constraints(namespace: &str) -> [Value; 2] {
    let volumes = [
        "configMap",
        "downwardAPI",
        "emptyDir",
        "hostPath",
        "projected",
        "secret",
    ];
    [
        constraint(names::RTE_SCC, namespace, true, &["*"]),
        constraint(names::RTE_SCC_V2, namespace, false, &volumes),
    ]
}

fn constraint(name: &str, namespace: &str, custom_policy: bool, volumes: &[&str]) -> Value {
    json!({
        "apiVersion": format!("{}/v1", openshift::SECURITY_GROUP),
        "kind": "SecurityContextConstraints",
        "metadata": {"name": name},
        "allowHostDirVolumePlugin": true,
        "allowHostIPC": false,
        "allowHostNetwork": false,
        "allowHostPID": false,
        "allowHostPorts": false,
        "allowPrivilegedContainer": false,
        "fsGroup": {"type": "RunAsAny"},
        "readOnlyRootFilesystem": false,
        "runAsUser": {"type": "RunAsAny"},
        "seLinuxContext": {
            "type": "MustRunAs",
            "seLinuxOptions": {"level": SELINUX_LEVEL, "type": selinux_type(custom_policy)},
        },
        "supplementalGroups": {"type": "RunAsAny"},
        "users": [format!("system:serviceaccount:{namespace}:{}", names::RTE)],
        "volumes": volumes,
    })
}
