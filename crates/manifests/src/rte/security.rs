//! What the exporters' pods may do on their nodes: security contexts, memory, and OpenShift's security context constraints (operator.md 6.3).
//!
//! The original's pods have the defaults of the container runtime, and no limit. `docs/security.md` lists what is left of the rights of root,
//! each with its reason.

use api::{names, openshift};
use k8s_openapi::api::core::v1::{ResourceRequirements, SELinuxOptions, SecurityContext};
use serde_json::{Value, json};

use crate::confinement::{self, STACK_USER};
use crate::meta;

/// Returns the context of the container that publishes. `is_root` sets the user root: the kubelet's socket and its configuration file are
/// only for root, and a process without capabilities is let in as their owner. Nothing is set for an image that the administrator chose
/// (operator.md 2.3).
pub(super) fn of_exporter(
    is_root: bool,
    se_linux_options: Option<SELinuxOptions>,
) -> SecurityContext {
    let root = is_root.then_some(0);
    SecurityContext {
        run_as_user: root,
        run_as_group: root,
        se_linux_options,
        ..confinement::of_container()
    }
}

/// Returns the context of the container without work. `is_own_image` says that the image is the stack's, whose user is no name but a number
/// that the pod can set. Any other image runs as its own user.
pub(super) fn of_helper(is_own_image: bool) -> SecurityContext {
    SecurityContext {
        run_as_non_root: is_own_image.then_some(true),
        run_as_user: is_own_image.then_some(STACK_USER),
        ..confinement::of_container()
    }
}

/// Returns the memory of the container that publishes.
pub(super) fn memory() -> ResourceRequirements {
    ResourceRequirements {
        requests: Some(meta::quantities([("memory", "32Mi")])),
        limits: Some(meta::quantities([("memory", "128Mi")])),
        claims: None,
    }
}

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
        // Without this line no pod may ask for a profile, and the exporters' pods would be refused. The original's ask for none.
        "seccompProfiles": ["runtime/default"],
        "seLinuxContext": {
            "type": "MustRunAs",
            "seLinuxOptions": {"level": SELINUX_LEVEL, "type": selinux_type(custom_policy)},
        },
        "supplementalGroups": {"type": "RunAsAny"},
        "users": [format!("system:serviceaccount:{namespace}:{}", names::RTE)],
        "volumes": volumes,
    })
}
