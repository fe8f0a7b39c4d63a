//! The objects that every OpenShift cluster has.

use api::openshift::{config, machine_config};
use api::{labels, names};
use cluster_spec::flavour::Flavour;
use cluster_spec::plan::NodePlan;
use serde_json::{Value, json};

/// API group and version of the Operator Lifecycle Manager.
pub(super) const OLM_GROUP: &str = "operators.coreos.com";
pub(super) const OLM_VERSION: &str = "v1alpha1";
/// Namespace of the cluster's monitoring.
const MONITORING: &str = "openshift-monitoring";
/// Name of its Prometheus and of the account that this runs as.
const PROMETHEUS: &str = "prometheus-k8s";
/// Namespace of operators for all namespaces.
const OPERATORS: &str = "openshift-operators";

/// Returns the objects of a cluster of a version, a namespace before what is in it. With the flavour `Openshift`, each role is the name of a
/// pool.
pub(super) fn all(
    flavour: Flavour,
    version: &str,
    roles: &[&str],
    control_plane_takes_pods: bool,
) -> Vec<Value> {
    let topology = match flavour {
        Flavour::Openshift => "HighlyAvailable",
        Flavour::Hypershift => config::EXTERNAL,
    };
    let versions = json!({"versions": [{"name": "operator", "version": version}]});
    let scheduler = json!({"mastersSchedulable": control_plane_takes_pods, "policy": {"name": ""}});
    let mut all = vec![
        configuration(
            "ClusterVersion",
            "version",
            &json!({"clusterID": "testbed"}),
            None,
        ),
        configuration(
            "Infrastructure",
            config::CLUSTER,
            &json!({}),
            Some(json!({"controlPlaneTopology": topology})),
        ),
        configuration(
            "ClusterOperator",
            config::VERSION_OPERATOR,
            &json!({}),
            Some(versions),
        ),
        configuration("APIServer", config::CLUSTER, &json!({}), None),
        configuration("Scheduler", config::CLUSTER, &scheduler, None),
    ];
    match flavour {
        Flavour::Openshift => all.extend(roles.iter().map(|role| pool(role))),
        Flavour::Hypershift => all.push(namespace(names::HYPERSHIFT_CONFIG_NAMESPACE, &json!({}))),
    }
    all.push(namespace(OPERATORS, &json!({})));
    all.push(subscription());
    all.extend(monitoring());
    all
}

/// Returns whether the nodes of the control plane are workers, too.
pub(super) fn control_plane_takes_pods(nodes: &[NodePlan]) -> bool {
    let mut masters = nodes
        .iter()
        .filter(|node| node.labels.contains_key(labels::CONTROL_PLANE))
        .peekable();
    masters.peek().is_some()
        && masters.all(|node| node.taints.iter().all(|taint| taint.effect != "NoSchedule"))
}

fn configuration(kind: &str, name: &str, spec: &Value, status: Option<Value>) -> Value {
    let mut object = json!({
        "apiVersion": format!("{}/v1", config::GROUP),
        "kind": kind,
        "metadata": {"name": name},
        "spec": spec,
    });
    if let Some(status) = status {
        object["status"] = status;
    }
    object
}

fn namespace(name: &str, labels: &Value) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name, "labels": labels},
    })
}

/// Returns the machine config pool of a role, not paused.
fn pool(role: &str) -> Value {
    json!({
        "apiVersion": format!("{}/v1", machine_config::GROUP),
        "kind": "MachineConfigPool",
        "metadata": {
            "name": role,
            "labels": {format!("pools.operator.machineconfiguration.openshift.io/{role}"): ""},
        },
        "spec": {
            "machineConfigSelector": {"matchLabels": {labels::MACHINE_CONFIG_ROLE: role}},
            "nodeSelector": {"matchLabels": {labels::node_role(role): ""}},
            "paused": false,
        },
    })
}

/// Returns the subscription of some other operator. The stack's operator has none: nothing here would follow a change of it.
fn subscription() -> Value {
    json!({
        "apiVersion": format!("{OLM_GROUP}/{OLM_VERSION}"),
        "kind": "Subscription",
        "metadata": {"name": "web-terminal", "namespace": OPERATORS},
        "spec": {
            "name": "web-terminal",
            "channel": "fast",
            "installPlanApproval": "Automatic",
            "source": "redhat-operators",
            "sourceNamespace": "openshift-marketplace",
        },
        "status": {"state": "AtLatestKnown"},
    })
}

/// Returns a Prometheus that reads nothing: a pod with its name, its labels and its account, from which connections can be tried
/// (scenarios-serial.md 9.8). It prefers the control plane, where it is in the way of no scenario. Unlike the real one it belongs to a
/// Deployment, because nothing on the embedded lane follows stateful sets.
fn monitoring() -> [Value; 3] {
    let labels =
        json!({"app.kubernetes.io/name": "prometheus", "app.kubernetes.io/instance": "k8s"});
    let on_control_plane = json!({"weight": 100, "preference": {
        "matchExpressions": [{"key": labels::CONTROL_PLANE, "operator": "Exists"}],
    }});
    let account = json!({
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": PROMETHEUS, "namespace": MONITORING},
    });
    let deployment = json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": PROMETHEUS, "namespace": MONITORING, "labels": labels},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "serviceAccountName": PROMETHEUS,
                    "affinity": {"nodeAffinity": {
                        "preferredDuringSchedulingIgnoredDuringExecution": [on_control_plane],
                    }},
                    "tolerations": [{"key": labels::CONTROL_PLANE, "operator": "Exists"}],
                    "containers": [{
                        "name": "prometheus",
                        "image": names::STACK_IMAGE,
                        "command": ["/bin/sleep", "infinity"],
                    }],
                },
            },
        },
    });
    let monitored = json!({"openshift.io/cluster-monitoring": "true"});
    [namespace(MONITORING, &monitored), account, deployment]
}
