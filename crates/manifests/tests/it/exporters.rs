//! Compares the other objects of the exporters field by field with the literals of operator.md 6.2 and 6.3.

use std::collections::BTreeMap;

use api::operator::PodsFingerprinting;
use api::operator::v1::{NodeGroup, NodeGroupConfig};
use k8s_openapi::api::core::v1::Toleration;
use manifests::platform::Platform;
use manifests::rte::{self, Image, NodeSelection, Pool};
use manifests::to_value;
use rstest::rstest;
use serde_json::{Value, json};

pub(crate) fn options(platform: Platform) -> rte::Options {
    let mut options = rte::Options::new("ns", platform, "image");
    options.image.pull_policy = Some("Always".into());
    options
}

pub(crate) fn pool(config: NodeGroupConfig) -> Pool {
    let group = NodeGroup {
        config: Some(config),
        ..NodeGroup::default()
    };
    let nodes = NodeSelection::Labels(BTreeMap::from([("role".to_owned(), String::new())]));
    Pool {
        name: "cr-pool".into(),
        nodes,
        config: group.normalized_config(),
        config_hash: "SHA256:1".into(),
        config_is_partial: false,
        custom_selinux_policy: false,
    }
}

pub(crate) fn daemon_set(options: &rte::Options, pool: Pool) -> Value {
    to_value(&rte::Set::new(options, &[pool]).daemon_sets[0])
}

pub(crate) fn fingerprinting(value: PodsFingerprinting) -> NodeGroupConfig {
    NodeGroupConfig {
        pods_fingerprinting: Some(value),
        ..NodeGroupConfig::default()
    }
}

pub(crate) fn pod(set: &Value) -> &Value {
    &set["spec"]["template"]["spec"]
}

#[test]
fn exporter_pods_are_described_in_full() {
    let set = daemon_set(
        &options(Platform::Kubernetes),
        pool(NodeGroupConfig::default()),
    );
    assert_eq!(
        set["metadata"],
        json!({"name": "cr-pool", "namespace": "ns"})
    );
    assert_eq!(
        set["spec"]["selector"],
        json!({"matchLabels": {"name": "resource-topology"}})
    );
    assert_eq!(
        set["spec"]["updateStrategy"],
        json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%"}})
    );
    assert_eq!(
        set["spec"]["template"]["metadata"],
        json!({"labels": {"name": "resource-topology"}, "annotations": {"configmap.hash": "SHA256:1"}})
    );
    let pod = pod(&set);
    assert_eq!(pod["nodeSelector"], json!({"role": ""}));
    assert_eq!(pod["priorityClassName"], "system-node-critical");
    assert_eq!(pod["serviceAccountName"], "rte");
    assert_eq!(
        pod["securityContext"],
        json!({"seccompProfile": {"type": "RuntimeDefault"}})
    );
    assert_eq!(
        pod["readinessGates"],
        json!([{"conditionType": "PodresourcesFetched"}, {"conditionType": "NodeTopologyUpdated"}])
    );
    assert_eq!(
        pod["affinity"],
        json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
            {"labelSelector": {"matchLabels": {"name": "resource-topology"}}, "topologyKey": "kubernetes.io/hostname"},
        ]}})
    );
    assert_eq!(pod.get("tolerations"), None);
    let [exporter, helper] = &pod["containers"].as_array().unwrap()[..] else {
        panic!("two containers")
    };
    is_described_in_full(exporter);
    assert_eq!(
        pod["volumes"],
        json!([
            {"name": "host-sys", "hostPath": {"path": "/sys", "type": "Directory"}},
            {"name": "host-podresources", "hostPath": {"path": "/var/lib/kubelet/pod-resources", "type": "Directory"}},
            {"name": "host-run-rte", "hostPath": {"path": "/run/rte", "type": "DirectoryOrCreate"}},
            {"name": "run-pfpstatus", "emptyDir": {"medium": "Memory", "sizeLimit": "8Mi"}},
            {"name": "rte-metrics-service-cert", "secret": {"secretName": "rte-metrics-service-cert", "optional": true}},
            {"name": "rte-config-volume", "configMap": {"name": "cr-pool", "optional": true}},
        ])
    );
    assert_eq!(
        *helper,
        json!({
            "name": "shared-pool-container", "image": "image", "imagePullPolicy": "Always", "command": ["/bin/sleep"],
            "args": ["infinity"], "terminationMessagePolicy": "FallbackToLogsOnError",
            "securityContext": {
                "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}, "readOnlyRootFilesystem": true,
                "runAsNonRoot": true, "runAsUser": 65532,
            },
        })
    );
}

/// Checks the container that publishes.
fn is_described_in_full(exporter: &Value) {
    assert_eq!(exporter["name"], "resource-topology-exporter");
    assert_eq!(
        exporter["command"],
        json!(["/bin/resource-topology-exporter"])
    );
    assert_eq!(
        exporter["securityContext"],
        json!({
            "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}, "readOnlyRootFilesystem": true,
            "runAsUser": 0, "runAsGroup": 0,
        })
    );
    assert_eq!(
        exporter["resources"],
        json!({"requests": {"memory": "32Mi"}, "limits": {"memory": "128Mi"}})
    );
    assert_eq!(
        exporter["ports"],
        json!([{"name": "metrics-port", "containerPort": 2112}])
    );
    assert_eq!(
        exporter["env"],
        json!([
            {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
            {"name": "REFERENCE_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
            {"name": "REFERENCE_POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "REFERENCE_CONTAINER_NAME", "value": "shared-pool-container"},
            {"name": "METRICS_PORT", "value": "2112"},
            {"name": "PFP_STATUS_DUMP", "value": "/run/pfpstatus"},
        ])
    );
    assert_eq!(
        exporter["volumeMounts"],
        json!([
            {"name": "host-sys", "mountPath": "/host-sys", "readOnly": true, "recursiveReadOnly": "IfPossible"},
            {"name": "host-podresources", "mountPath": "/host-podresources", "readOnly": true},
            {"name": "host-run-rte", "mountPath": "/host-run-rte"},
            {"name": "run-pfpstatus", "mountPath": "/run/pfpstatus"},
            {"name": "rte-metrics-service-cert", "mountPath": "/etc/secrets/rte/", "readOnly": true},
            {"name": "rte-config-volume", "mountPath": "/etc/resource-topology-exporter/", "readOnly": true},
        ])
    );
}

#[test]
fn openshift_pods_name_their_constraints_and_need_the_secret() {
    let set = daemon_set(
        &options(Platform::OpenShift),
        pool(NodeGroupConfig::default()),
    );
    let annotations = &set["spec"]["template"]["metadata"]["annotations"];
    assert_eq!(
        annotations["openshift.io/required-scc"],
        "resource-topology-exporter-v2"
    );
    let security = &pod(&set)["containers"][0]["securityContext"];
    assert_eq!(
        security["seLinuxOptions"],
        json!({"type": "container_device_plugin_t", "level": "s0"})
    );
    let secret = pod(&set)["volumes"]
        .as_array()
        .unwrap()
        .iter()
        .find(|volume| volume["name"] == "rte-metrics-service-cert")
        .unwrap();
    assert_eq!(secret["secret"].get("optional"), None);
}

/// A node group with the annotation `selinux-policy: custom` (operator.md 3.1).
#[test]
fn pods_under_the_legacy_policy_name_its_constraints_and_type() {
    let pool = Pool {
        custom_selinux_policy: true,
        ..pool(NodeGroupConfig::default())
    };
    let set = daemon_set(&options(Platform::OpenShift), pool);
    let annotations = &set["spec"]["template"]["metadata"]["annotations"];
    assert_eq!(
        annotations["openshift.io/required-scc"],
        "resource-topology-exporter"
    );
    let security = &pod(&set)["containers"][0]["securityContext"];
    assert_eq!(
        security["seLinuxOptions"],
        json!({"type": "rte.process", "level": "s0"})
    );
}

#[rstest]
#[case::openshift(Platform::OpenShift)]
#[case::hypershift(Platform::HyperShift)]
fn constraints_of_openshift_come_before_the_pods(#[case] platform: Platform) {
    let set = rte::Set::new(&options(platform), &[pool(NodeGroupConfig::default())]);
    let objects = set.objects();
    let kinds: Vec<&str> = objects[5..]
        .iter()
        .map(|object| object["kind"].as_str().unwrap())
        .collect();
    assert_eq!(
        kinds,
        [
            "ValidatingAdmissionPolicy",
            "ValidatingAdmissionPolicyBinding",
            "NetworkPolicy",
            "NetworkPolicy",
            "NetworkPolicy",
            "SecurityContextConstraints",
            "SecurityContextConstraints",
            "DaemonSet",
            "Service"
        ]
    );
    let described = |name: &str, selinux: &str, volumes: Value| {
        json!({
            "apiVersion": "security.openshift.io/v1",
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
            "seccompProfiles": ["runtime/default"],
            "seLinuxContext": {"type": "MustRunAs", "seLinuxOptions": {"level": "s0", "type": selinux}},
            "supplementalGroups": {"type": "RunAsAny"},
            "users": ["system:serviceaccount:ns:rte"],
            "volumes": volumes,
        })
    };
    let few = json!([
        "configMap",
        "downwardAPI",
        "emptyDir",
        "hostPath",
        "projected",
        "secret"
    ]);
    assert_eq!(
        objects[10],
        described("resource-topology-exporter", "rte.process", json!(["*"]))
    );
    assert_eq!(
        objects[11],
        described(
            "resource-topology-exporter-v2",
            "container_device_plugin_t",
            few
        )
    );
}

/// The original uses only the labels of a pool's node selector. Without labels its pods run on every node.
#[test]
fn pods_follow_expressions_of_a_pools_selector() {
    let selector = serde_json::from_value(json!({
        "matchLabels": {"role": ""},
        "matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}],
    }));
    let set = daemon_set(
        &options(Platform::OpenShift),
        Pool {
            nodes: NodeSelection::Selector(selector.unwrap()),
            ..pool(NodeGroupConfig::default())
        },
    );
    assert_eq!(pod(&set)["nodeSelector"], json!({"role": ""}));
    assert_eq!(
        pod(&set)["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"],
        json!([{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}]}])
    );
}

#[test]
fn pods_follow_selection_tolerations_and_fingerprinting() {
    let tolerations = vec![Toleration {
        key: Some("k".into()),
        operator: Some("Exists".into()),
        ..Toleration::default()
    }];
    let config = NodeGroupConfig {
        tolerations,
        ..fingerprinting(PodsFingerprinting::Disabled)
    };
    let set = daemon_set(
        &options(Platform::Kubernetes),
        Pool {
            nodes: NodeSelection::NotControlPlane,
            ..pool(config)
        },
    );
    let pod = pod(&set);
    assert_eq!(
        pod["tolerations"],
        json!([{"key": "k", "operator": "Exists"}])
    );
    assert_eq!(pod.get("nodeSelector"), None);
    assert_eq!(
        pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"],
        json!([{"matchExpressions": [{"key": "node-role.kubernetes.io/control-plane", "operator": "DoesNotExist"}]}])
    );
    let names: Vec<&str> = pod["volumes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|volume| volume["name"].as_str().unwrap())
        .collect();
    assert!(!names.contains(&"run-pfpstatus"), "{names:?}");
    // flaw 2 of the original: without the secret the metrics are served with a certificate that no client trusts
    assert!(names.contains(&"rte-metrics-service-cert"), "{names:?}");
    let env = pod["containers"][0]["env"].as_array().unwrap();
    assert!(
        !env.iter()
            .any(|variable| variable["name"] == "PFP_STATUS_DUMP")
    );
}

#[rstest]
#[case::as_built("localhost/numaresources/stack:dev", true)]
#[case::pushed_by_digest("registry.example:5000/team/numaresources/stack@sha256:09", true)]
#[case::without_a_tag("registry.example:5000/numaresources/stack", true)]
#[case::of_the_original("quay.io/openshift-kni/resource-topology-exporter:v1", false)]
#[case::of_another_name("registry.example/other-numaresources/stack:1", false)]
#[case::of_a_tag("registry.example/exporter:numaresources/stack", false)]
fn image_of_the_stack_is_known_by_its_name_in_any_registry(
    #[case] reference: &str,
    #[case] expected: bool,
) {
    assert_eq!(rte::is_stack(reference), expected);
}

#[test]
fn image_of_the_administrators_choice_keeps_its_user_and_policy() {
    let image = Image {
        reference: "mine".into(),
        pull_policy: None,
        is_own: false,
        is_stack: false,
    };
    let set = daemon_set(
        &rte::Options {
            image,
            ..options(Platform::Kubernetes)
        },
        pool(NodeGroupConfig::default()),
    );
    let container = &pod(&set)["containers"][0];
    assert_eq!(container["image"], "mine");
    assert_eq!(container.get("imagePullPolicy"), None);
    // the original's exporter knows no such flag, and ends
    let args = container["args"].as_array().unwrap();
    assert!(!args.contains(&json!("--metrics-auth")), "{args:?}");
    for container in pod(&set)["containers"].as_array().unwrap() {
        let security = &container["securityContext"];
        assert_eq!(security["allowPrivilegeEscalation"], false, "{security}");
        for user in ["runAsUser", "runAsGroup", "runAsNonRoot"] {
            assert_eq!(security.get(user), None, "{security}");
        }
    }
}

#[test]
fn exporter_set_has_every_object_in_order() {
    let set = rte::Set::new(
        &options(Platform::Kubernetes),
        &[pool(NodeGroupConfig::default())],
    );
    let objects = set.objects();
    let names: Vec<String> = objects
        .iter()
        .map(|object| {
            format!(
                "{} {}",
                object["kind"].as_str().unwrap(),
                object["metadata"]["name"].as_str().unwrap()
            )
        })
        .collect();
    assert_eq!(
        names,
        [
            "ServiceAccount rte",
            "Role rte",
            "RoleBinding rte",
            "ClusterRole rte",
            "ClusterRoleBinding rte",
            "ValidatingAdmissionPolicy numaresources-rte-own-node",
            "ValidatingAdmissionPolicyBinding numaresources-rte-own-node",
            "NetworkPolicy rte-egress-to-api-server",
            "NetworkPolicy ingress-to-rte-metrics",
            "NetworkPolicy rte-default-deny-all",
            "DaemonSet cr-pool",
            "Service numaresources-rte-metrics-service",
        ]
    );
    assert_eq!(
        objects[3]["rules"],
        json!([
            {"apiGroups": ["topology.node.k8s.io"], "resources": ["noderesourcetopologies"], "verbs": ["create", "update", "patch", "get", "list"]},
            {"apiGroups": [""], "resources": ["nodes"], "verbs": ["watch", "list"]},
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["watch"]},
            {"apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"], "verbs": ["create"]},
            {"apiGroups": ["authorization.k8s.io"], "resources": ["subjectaccessreviews"], "verbs": ["create"]},
        ])
    );
    assert_eq!(
        objects[7]["spec"]["egress"],
        json!([{"ports": [{"port": 6443, "protocol": "TCP"}]}])
    );
    assert_eq!(
        objects[8]["spec"]["ingress"],
        json!([{"ports": [{"port": 2112, "protocol": "TCP"}]}])
    );
    assert_eq!(
        objects[9]["spec"]["policyTypes"],
        json!(["Ingress", "Egress"])
    );
    let service = &objects[11];
    assert_eq!(
        service["metadata"]["labels"],
        json!({"name": "resource-topology"})
    );
    assert_eq!(
        service["spec"]["ports"],
        json!([{"name": "metrics-port", "port": 2112, "protocol": "TCP", "targetPort": "metrics-port"}])
    );
}
