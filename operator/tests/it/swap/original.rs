//! What the original operator installs (operator.md 6): names, labels, selectors, owners, annotations, status.
//! Where the content does not matter for an exchange (the rules of roles, say), it is shortened.

use cluster_spec::flavour::Flavour;
use serde_json::{Value, json};

use crate::cluster::NAMESPACE;
use crate::exporters::{CR, DS_A, DS_B};
use crate::installation::SCHEDULER_CR;

/// A digest of no release that this operator knows: each release of the original trusts its own.
pub(super) const DIGEST: &str =
    "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
const IMAGE: &str = "registry.example/numaresources-operator:v5.0";
const RBAC: &str = "rbac.authorization.k8s.io/v1";

/// Returns the image of the original's scheduler.
pub(super) fn scheduler_image() -> String {
    format!("registry.example/numaresources-scheduler@{DIGEST}")
}

fn object(version: &str, kind: &str, name: &str, more: Value) -> Value {
    let mut object = json!({"apiVersion": version, "kind": kind, "metadata": {"name": name}});
    if let (Some(object), Value::Object(mut more)) = (object.as_object_mut(), more) {
        object.append(&mut more);
    }
    object
}

fn local(version: &str, kind: &str, name: &str, more: Value) -> Value {
    let mut object = object(version, kind, name, more);
    object["metadata"]["namespace"] = json!(NAMESPACE);
    object
}

/// Returns a role and its binding.
fn role(kind: &str, [binding, name, account]: [&str; 3], rules: &Value) -> [Value; 2] {
    let make = if kind == "Role" { local } else { object };
    let subject = json!({"kind": "ServiceAccount", "name": account, "namespace": NAMESPACE});
    let reference = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name});
    [
        make(RBAC, kind, name, json!({"rules": rules})),
        make(
            RBAC,
            &format!("{kind}Binding"),
            binding,
            json!({"roleRef": reference, "subjects": [subject]}),
        ),
    ]
}

/// Returns the installation of the operator itself (operator.md 6.7).
pub(super) fn operator() -> Vec<Value> {
    let account = "numaresources-controller-manager";
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}]);
    let selected = json!({"control-plane": "controller-manager"});
    let labels = json!({"app": "numaresources-operator", "control-plane": "controller-manager"});
    let container = json!({
        "name": "manager", "image": IMAGE, "command": ["/bin/numaresources-operator"], "args": ["-v=4"],
        "ports": [{"containerPort": 8080, "protocol": "TCP", "name": "https"}],
        "volumeMounts": [{"name": "metrics-tls", "mountPath": "/certs", "readOnly": true}],
    });
    let pods = json!({
        "serviceAccountName": account, "containers": [container],
        "volumes": [{"name": "metrics-tls", "secret": {"secretName": "metrics-service-cert"}}],
    });
    let mut deployment = local(
        "apps/v1",
        "Deployment",
        account,
        json!({"spec": {
            "replicas": 1, "selector": {"matchLabels": selected},
            "template": {"metadata": {"labels": labels}, "spec": pods},
        }}),
    );
    deployment["metadata"]["labels"] = labels;
    let service = "numaresources-controller-manager-metrics-service";
    let ports = json!([{"name": "https", "port": 8080, "protocol": "TCP", "targetPort": "https"}]);
    let manager = [
        "numaresources-manager-rolebinding",
        "numaresources-manager-role",
        account,
    ];
    let leader = [
        "numaresources-leader-election-rolebinding",
        "numaresources-leader-election-role",
        account,
    ];
    let mut all = vec![
        object("v1", "Namespace", NAMESPACE, json!({})),
        local("v1", "ServiceAccount", account, json!({})),
        local(
            "v1",
            "Service",
            service,
            json!({"spec": {"ports": ports, "selector": selected}}),
        ),
        deployment,
    ];
    all.extend(role("ClusterRole", manager, &rules));
    all.extend(role("Role", manager, &rules));
    all.extend(role("Role", leader, &rules));
    all
}

/// Returns the objects for the exporters of two pools (operator.md 6.1 to 6.3).
pub(super) fn exporters(flavour: Flavour) -> Vec<Value> {
    let nodes = json!([{"apiGroups": [""], "resources": ["nodes"], "verbs": ["watch", "list"]}]);
    let pods = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]);
    let names = ["rte", "rte", "rte"];
    let labels = json!({"name": "resource-topology"});
    let mut all = vec![local("v1", "ServiceAccount", "rte", json!({}))];
    all.extend(role("Role", names, &pods));
    all.extend(role("ClusterRole", names, &nodes));
    all.extend(policies(
        &[
            "rte-egress-to-api-server",
            "ingress-to-rte-metrics",
            "rte-default-deny-all",
        ],
        &labels,
    ));
    for (name, selinux) in [
        ("resource-topology-exporter", "rte.process"),
        ("resource-topology-exporter-v2", "container_device_plugin_t"),
    ] {
        all.push(constraints(name, selinux));
    }
    all.push(daemon_set(DS_A, flavour, "numa-a"));
    all.push(daemon_set(DS_B, flavour, "numa-b"));
    let port = json!({"name": "metrics-port", "port": 2112, "protocol": "TCP", "targetPort": "metrics-port"});
    let mut service = local(
        "v1",
        "Service",
        "numaresources-rte-metrics-service",
        json!({"spec": {"ports": [port], "selector": labels}}),
    );
    service["metadata"]["labels"] = labels;
    service["metadata"]["annotations"] =
        json!({"service.beta.openshift.io/serving-cert-secret-name": "rte-metrics-service-cert"});
    all.push(service);
    if flavour == Flavour::Openshift {
        all.push(machine_config());
    }
    all
}

/// Returns the legacy policy of the first pool (operator.md 4.4).
fn machine_config() -> Value {
    let name = format!("51-{CR}-numa-a");
    let version = "machineconfiguration.openshift.io/v1";
    let ignition = json!({"spec": {"config": {"ignition": {"version": "3.2.0"}}}});
    let mut config = object(version, "MachineConfig", &name, ignition);
    config["metadata"]["labels"] = json!({"machineconfiguration.openshift.io/role": "numa-a"});
    config
}

fn policies(names: &[&str], labels: &Value) -> Vec<Value> {
    let spec = json!({"podSelector": {"matchLabels": labels}, "policyTypes": ["Ingress"]});
    let policy = |name: &&str| {
        local(
            "networking.k8s.io/v1",
            "NetworkPolicy",
            name,
            json!({"spec": spec}),
        )
    };
    names.iter().map(policy).collect()
}

fn constraints(name: &str, selinux: &str) -> Value {
    object(
        "security.openshift.io/v1",
        "SecurityContextConstraints",
        name,
        json!({
            "allowHostDirVolumePlugin": true, "allowHostIPC": false, "allowHostNetwork": false, "allowHostPID": false,
            "allowHostPorts": false, "allowPrivilegedContainer": false, "readOnlyRootFilesystem": false,
            "runAsUser": {"type": "RunAsAny"}, "fsGroup": {"type": "RunAsAny"}, "supplementalGroups": {"type": "RunAsAny"},
            "seLinuxContext": {"type": "MustRunAs", "seLinuxOptions": {"type": selinux, "level": "s0"}},
            "volumes": ["*"], "users": [format!("system:serviceaccount:{NAMESPACE}:rte")],
        }),
    )
}

fn daemon_set(name: &str, flavour: Flavour, pool: &str) -> Value {
    let labels = json!({"name": "resource-topology"});
    let selector = match flavour {
        Flavour::Openshift => json!({format!("node-role.kubernetes.io/{pool}"): ""}),
        Flavour::Hypershift => json!({"hypershift.openshift.io/nodePool": pool}),
    };
    let exporter = json!({
        "name": "resource-topology-exporter", "image": IMAGE, "command": ["/bin/resource-topology-exporter"],
        "args": ["--sleep-interval=10s", "--sysfs=/host-sys", "-v=2", "--metrics-mode=httptls", "--add-nrt-owner=false"],
        "securityContext": {"runAsUser": 0, "runAsGroup": 0, "seLinuxOptions": {"type": "container_device_plugin_t", "level": "s0"}},
    });
    let helper = json!({
        "name": "shared-pool-container", "image": IMAGE, "command": ["/bin/sh", "-c", "--"], "args": ["while true; do sleep 30s; done"],
    });
    let annotations =
        json!({"configmap.hash": "", "openshift.io/required-scc": "resource-topology-exporter-v2"});
    let pods = json!({
        "serviceAccountName": "rte", "priorityClassName": "system-node-critical", "nodeSelector": selector,
        "readinessGates": [{"conditionType": "PodresourcesFetched"}, {"conditionType": "NodeTopologyUpdated"}],
        "containers": [exporter, helper],
    });
    local(
        "apps/v1",
        "DaemonSet",
        name,
        json!({"spec": {
            "selector": {"matchLabels": labels},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%"}},
            "template": {"metadata": {"labels": labels, "annotations": annotations}, "spec": pods},
        }}),
    )
}

/// Returns the settings of the kubelets of the first pool for its exporters (operator.md 7).
pub(super) fn config_map() -> Value {
    let mut map = local(
        "v1",
        "ConfigMap",
        DS_A,
        json!({"data": {"config.yaml": "kubelet:\n  topologyManagerPolicy: single-numa-node\n"}}),
    );
    map["metadata"]["labels"] = json!({
        "numaresourcesoperator.nodetopology.openshift.io/name": CR,
        "nodegroup.nodetopology.openshift.io/machineconfigpool": "numa-a",
    });
    map
}

/// Returns the objects of the scheduler (operator.md 6.4 to 6.6).
pub(super) fn scheduler() -> Vec<Value> {
    let labels = json!({"app": "secondary-scheduler"});
    let rules =
        json!([{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch"]}]);
    let leases = json!([{"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create"]}]);
    let account = "secondary-scheduler";
    let text = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n\
                leaderElection:\n  leaderElect: false\nprofiles:\n- schedulerName: topo-aware-scheduler\n";
    let container = json!({
        "name": account, "image": scheduler_image(), "command": ["/bin/kube-scheduler"],
        "args": ["--config=/etc/kubernetes/config.yaml", "-v=2"],
        "volumeMounts": [{"mountPath": "/etc/kubernetes", "name": "etckubernetes"}],
    });
    let pods = json!({
        "serviceAccountName": account, "containers": [container],
        "volumes": [{"name": "etckubernetes", "configMap": {"name": "topo-aware-scheduler-config"}}],
    });
    let template = json!({"metadata": {"labels": labels}, "spec": pods});
    let mut deployment = local(
        "apps/v1",
        "Deployment",
        account,
        json!({"spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}}),
    );
    deployment["metadata"]["labels"] = labels.clone();
    let mut all = vec![
        local("v1", "ServiceAccount", account, json!({})),
        local(
            "v1",
            "ConfigMap",
            "topo-aware-scheduler-config",
            json!({"data": {"config.yaml": text}}),
        ),
        deployment,
    ];
    let cluster = "topology-aware-scheduler";
    let leader = "topology-aware-scheduler-leader-elect";
    all.extend(role("ClusterRole", [cluster, cluster, account], &rules));
    all.extend(role("Role", [leader, leader, account], &leases));
    all.extend(policies(
        &[
            "scheduler-default-deny-all",
            "scheduler-egress-to-api-server",
        ],
        &labels,
    ));
    all
}

/// Returns the conditions of a resource that is available (operator.md 3).
fn conditions(extra: &str, status: &str) -> Value {
    let condition = |name: &str, status: &str, generation: Option<i64>| {
        let mut one = json!({
            "type": name, "status": status, "reason": name, "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
        });
        if let Some(generation) = generation {
            one["observedGeneration"] = json!(generation);
        }
        one
    };
    let generation = (status != "Unknown").then_some(1);
    json!([
        condition("Available", "True", Some(1)),
        condition("Upgradeable", "True", Some(1)),
        condition("Progressing", "False", None),
        condition("Degraded", "False", None),
        condition(extra, status, generation),
    ])
}

/// Returns the status of the operator resource when all is well (operator.md 1.1, 4.6, 4.7).
pub(super) fn operator_status(flavour: Flavour) -> Value {
    let config = json!({
        "podsFingerprinting": "EnabledExclusiveResources", "infoRefreshMode": "Periodic", "infoRefreshPeriod": "10s",
        "infoRefreshPause": "Disabled",
    });
    let set = |name: &str| json!({"namespace": NAMESPACE, "name": name});
    let group = |pool: &str, name: &str| json!({"selector": pool, "daemonsets": set(name), "config": config});
    let set_object = |name: &str| json!({"group": "apps", "resource": "daemonsets", "namespace": NAMESPACE, "name": name});
    let paused = match flavour {
        Flavour::Openshift => "False",
        Flavour::Hypershift => "Unknown",
    };
    let mut status = json!({
        "daemonsets": [set(DS_A), set(DS_B)],
        "nodeGroups": [group("numa-a", DS_A), group("numa-b", DS_B)],
        "conditions": conditions("MachineConfigPoolPaused", paused),
        "relatedObjects": [
            {"group": "", "resource": "namespaces", "name": NAMESPACE},
            {"group": "machineconfiguration.openshift.io", "resource": "kubeletconfigs", "name": ""},
            {"group": "machineconfiguration.openshift.io", "resource": "machineconfigs", "name": ""},
            {"group": "topology.node.k8s.io", "resource": "noderesourcetopologies", "name": ""},
            set_object(DS_A), set_object(DS_B),
        ],
    });
    if flavour == Flavour::Openshift {
        status["machineconfigpools"] = json!([
            {"name": "numa-a", "config": config}, {"name": "numa-b", "config": config},
        ]);
    }
    status
}

/// Returns the status of the scheduler resource when all is well (operator.md 1.2, 4.7).
pub(super) fn scheduler_status() -> Value {
    let name = "secondary-scheduler";
    json!({
        "deployment": {"namespace": NAMESPACE, "name": name},
        "schedulerName": "topo-aware-scheduler", "cacheResyncPeriod": "5s",
        // the kubelets of the cluster's version leave terminated pods out (operator.md 5.4)
        "conditions": conditions("DedicatedInformerActive", "False"),
        "relatedObjects": [
            {"group": "", "resource": "namespaces", "name": NAMESPACE},
            {"group": "apps", "resource": "deployments", "namespace": NAMESPACE, "name": name},
        ],
    })
}

/// Returns both resources. On OpenShift the first pool has the legacy policy.
pub(super) fn resources(flavour: Flavour) -> [Value; 2] {
    let version = "nodetopology.openshift.io/v1";
    let mut groups = json!([{"poolName": "numa-a"}, {"poolName": "numa-b"}]);
    if flavour == Flavour::Openshift {
        groups[0]["annotations"] = json!({"config.node.openshift-kni.io/selinux-policy": "custom"});
    }
    [
        object(
            version,
            "NUMAResourcesOperator",
            CR,
            json!({"spec": {"nodeGroups": groups}}),
        ),
        object(
            version,
            "NUMAResourcesScheduler",
            SCHEDULER_CR,
            json!({"spec": {"imageSpec": scheduler_image()}}),
        ),
    ]
}
