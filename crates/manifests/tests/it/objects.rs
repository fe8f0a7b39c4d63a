//! The objects field by field, against the literals (operator.md 6).

use std::collections::BTreeMap;

use api::operator::v1::{NodeGroup, NodeGroupConfig};
use api::operator::{InfoRefreshMode, InfoRefreshPause, LogLevel, PodsFingerprinting};
use api::scheduler::v1::{CacheResyncDetectionMode, SchedulerInformerMode, ScoringStrategyType};
use k8s_openapi::api::core::v1::Toleration;
use manifests::platform::{Platform, TlsSettings};
use manifests::rte::{Image, NodeSelection, Pool};
use manifests::scheduler::config::Settings;
use manifests::{operator, rte, scheduler, to_value};
use rstest::rstest;
use serde_json::{Value, json};

const CIPHERS: &str = "--metrics-tls-cipher-suites=TLS_AES_128_GCM_SHA256,TLS_AES_256_GCM_SHA384,TLS_CHACHA20_POLY1305_SHA256,\
TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,\
TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256";

fn options(platform: Platform) -> rte::Options {
    rte::Options {
        namespace: "ns".into(),
        platform,
        image: Image {
            reference: "image".into(),
            pull_policy: Some("Always".into()),
            run_as_root: true,
        },
        log_level: LogLevel::Normal,
        tls: TlsSettings::intermediate(),
        api_server_ports: vec![6443],
    }
}

fn pool(config: NodeGroupConfig) -> Pool {
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
        custom_selinux_policy: false,
    }
}

fn daemon_set(options: &rte::Options, pool: Pool) -> Value {
    to_value(&rte::Set::new(options, &[pool]).daemon_sets[0])
}

fn pod(set: &Value) -> &Value {
    &set["spec"]["template"]["spec"]
}

fn args(set: &Value) -> Vec<&str> {
    pod(set)["containers"][0]["args"]
        .as_array()
        .unwrap()
        .iter()
        .map(|arg| arg.as_str().unwrap())
        .collect()
}

#[test]
fn default_arguments_are_those_of_the_reference_in_its_order() {
    let set = daemon_set(
        &options(Platform::OpenShift),
        pool(NodeGroupConfig::default()),
    );
    assert_eq!(
        args(&set),
        [
            "--sleep-interval=10s",
            "--sysfs=/host-sys",
            "--podresources-socket=unix:///host-podresources/kubelet.sock",
            "-v=2",
            "--pods-fingerprint",
            "--metrics-mode=httptls",
            "--metrics-tls-min-version=VersionTLS12",
            CIPHERS,
            "--refresh-node-resources",
            "--pods-fingerprint-method=with-exclusive-resources",
            "--add-nrt-owner=false",
        ]
    );
}

#[test]
fn plain_kubernetes_adds_the_kubelets_file() {
    let set = daemon_set(
        &options(Platform::Kubernetes),
        pool(NodeGroupConfig::default()),
    );
    assert_eq!(
        args(&set)[5],
        "--kubelet-config-file=/host-var-lib-kubelet/config.yaml"
    );
    assert_eq!(args(&set).len(), 12);
}

fn mode(mode: InfoRefreshMode, period: &str) -> NodeGroupConfig {
    NodeGroupConfig {
        info_refresh_mode: Some(mode),
        info_refresh_period: Some(period.into()),
        ..NodeGroupConfig::default()
    }
}

fn fingerprinting(value: PodsFingerprinting) -> NodeGroupConfig {
    NodeGroupConfig {
        pods_fingerprinting: Some(value),
        ..NodeGroupConfig::default()
    }
}

#[rstest]
#[case::periodic(mode(InfoRefreshMode::Periodic, "1m"), &["--sleep-interval=1m0s"], &["--notify-file=/run/rte/notify", "--notify-file=/host-run-rte/notify"])]
#[case::zero(mode(InfoRefreshMode::Periodic, "0"), &["--sleep-interval=0s"], &[])]
#[case::both(mode(InfoRefreshMode::PeriodicAndEvents, "7s"), &["--sleep-interval=7s", "--notify-file=/run/rte/notify"], &[])]
#[case::events(mode(InfoRefreshMode::Events, "7s"), &["--sleep-interval=10s", "--notify-file=/run/rte/notify"], &["--sleep-interval=7s"])]
#[case::all_pods(fingerprinting(PodsFingerprinting::Enabled), &["--pods-fingerprint", "--pods-fingerprint-method=all"], &["--pods-fingerprint=false"])]
#[case::no_fingerprint(
    fingerprinting(PodsFingerprinting::Disabled),
    &["--pods-fingerprint=false"],
    &["--pods-fingerprint", "--pods-fingerprint-method=with-exclusive-resources"]
)]
#[case::paused(
    NodeGroupConfig { info_refresh_pause: Some(InfoRefreshPause::Enabled), ..NodeGroupConfig::default() },
    &["--no-publish"],
    &[]
)]
#[case::not_paused(NodeGroupConfig::default(), &[], &["--no-publish"])]
fn settings_reach_the_command_line(
    #[case] config: NodeGroupConfig,
    #[case] present: &[&str],
    #[case] absent: &[&str],
) {
    let set = daemon_set(&options(Platform::Kubernetes), pool(config));
    let args = args(&set);
    for wanted in present {
        assert!(args.contains(wanted), "{wanted} in {args:?}");
    }
    for unwanted in absent {
        assert!(!args.contains(unwanted), "{unwanted} in {args:?}");
    }
}

/// Flaw 3 of the original: it watches a file of the container's own. The period stays with events alone, as there: it is the safety net.
#[rstest]
#[case::periodic(InfoRefreshMode::Periodic, &["/host-run-rte"])]
#[case::both(InfoRefreshMode::PeriodicAndEvents, &["/host-run-rte", "/run/rte"])]
#[case::events(InfoRefreshMode::Events, &["/host-run-rte", "/run/rte"])]
fn notification_file_is_the_hosts(#[case] refresh: InfoRefreshMode, #[case] expected: &[&str]) {
    let set = daemon_set(&options(Platform::Kubernetes), pool(mode(refresh, "7s")));
    let mounts = pod(&set)["containers"][0]["volumeMounts"].clone();
    let mounts = mounts.as_array().unwrap().iter();
    let of_host = mounts.filter(|mount| mount["name"] == "host-run-rte");
    let paths: Vec<&str> = of_host
        .map(|mount| mount["mountPath"].as_str().unwrap())
        .collect();
    assert_eq!(paths, expected);
}

#[rstest]
#[case::unset(LogLevel::Unset, "-v=2")]
#[case::normal(LogLevel::Normal, "-v=2")]
#[case::debug(LogLevel::Debug, "-v=4")]
#[case::trace(LogLevel::Trace, "-v=6")]
#[case::trace_all(LogLevel::TraceAll, "-v=8")]
fn log_level_is_a_verbosity(#[case] log_level: LogLevel, #[case] arg: &str) {
    let set = daemon_set(
        &rte::Options {
            log_level,
            ..options(Platform::Kubernetes)
        },
        pool(NodeGroupConfig::default()),
    );
    assert_eq!(args(&set)[3], arg);
}

#[test]
fn empty_tls_settings_leave_their_flags_out() {
    let tls = TlsSettings {
        min_version: "VersionTLS13".into(),
        cipher_suites: String::new(),
    };
    let set = daemon_set(
        &rte::Options {
            tls,
            ..options(Platform::Kubernetes)
        },
        pool(NodeGroupConfig::default()),
    );
    assert!(args(&set).contains(&"--metrics-tls-min-version=VersionTLS13"));
    assert!(
        !args(&set)
            .iter()
            .any(|arg| arg.starts_with("--metrics-tls-cipher-suites"))
    );
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
    assert_eq!(exporter["name"], "resource-topology-exporter");
    assert_eq!(
        exporter["command"],
        json!(["/bin/resource-topology-exporter"])
    );
    assert_eq!(
        exporter["securityContext"],
        json!({"runAsUser": 0, "runAsGroup": 0})
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
            {"name": "host-sys", "mountPath": "/host-sys", "readOnly": true},
            {"name": "host-podresources", "mountPath": "/host-podresources"},
            {"name": "host-run-rte", "mountPath": "/host-run-rte"},
            {"name": "host-var-lib-kubelet", "mountPath": "/host-var-lib-kubelet", "readOnly": true},
            {"name": "run-pfpstatus", "mountPath": "/run/pfpstatus"},
            {"name": "rte-metrics-service-cert", "mountPath": "/etc/secrets/rte/", "readOnly": true},
            {"name": "rte-config-volume", "mountPath": "/etc/resource-topology-exporter/"},
        ])
    );
    assert_eq!(
        pod["volumes"],
        json!([
            {"name": "host-sys", "hostPath": {"path": "/sys", "type": "Directory"}},
            {"name": "host-podresources", "hostPath": {"path": "/var/lib/kubelet/pod-resources", "type": "Directory"}},
            {"name": "host-run-rte", "hostPath": {"path": "/run/rte", "type": "DirectoryOrCreate"}},
            {"name": "host-var-lib-kubelet", "hostPath": {"path": "/var/lib/kubelet", "type": "Directory"}},
            {"name": "run-pfpstatus", "emptyDir": {"medium": "Memory", "sizeLimit": "8Mi"}},
            {"name": "rte-metrics-service-cert", "secret": {"secretName": "rte-metrics-service-cert", "optional": true}},
            {"name": "rte-config-volume", "configMap": {"name": "cr-pool", "optional": true}},
        ])
    );
    assert_eq!(
        *helper,
        json!({
            "name": "shared-pool-container", "image": "image", "imagePullPolicy": "Always", "command": ["/bin/sh", "-c", "--"],
            "args": ["while true; do sleep 30s; done"], "terminationMessagePolicy": "FallbackToLogsOnError",
        })
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
        objects[8],
        described("resource-topology-exporter", "rte.process", json!(["*"]))
    );
    assert_eq!(
        objects[9],
        described(
            "resource-topology-exporter-v2",
            "container_device_plugin_t",
            few
        )
    );
}

/// The original heeds the labels of a pool's node selector only, and runs on every node where there are none.
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
    // flaw 2 of the original: without it the metrics are served with a certificate that nobody trusts
    assert!(names.contains(&"rte-metrics-service-cert"), "{names:?}");
    let env = pod["containers"][0]["env"].as_array().unwrap();
    assert!(
        !env.iter()
            .any(|variable| variable["name"] == "PFP_STATUS_DUMP")
    );
}

#[test]
fn image_of_the_administrators_choice_keeps_its_user_and_policy() {
    let image = Image {
        reference: "mine".into(),
        pull_policy: None,
        run_as_root: false,
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
    assert_eq!(
        (
            container.get("imagePullPolicy"),
            container.get("securityContext")
        ),
        (None, None)
    );
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
        ])
    );
    assert_eq!(
        objects[5]["spec"]["egress"],
        json!([{"ports": [{"port": 6443, "protocol": "TCP"}]}])
    );
    assert_eq!(
        objects[6]["spec"]["ingress"],
        json!([{"ports": [{"port": 2112, "protocol": "TCP"}]}])
    );
    assert_eq!(
        objects[7]["spec"]["policyTypes"],
        json!(["Ingress", "Egress"])
    );
    let service = &objects[9];
    assert_eq!(
        service["metadata"]["labels"],
        json!({"name": "resource-topology"})
    );
    assert_eq!(
        service["spec"]["ports"],
        json!([{"name": "metrics-port", "port": 2112, "protocol": "TCP", "targetPort": "metrics-port"}])
    );
}

fn scheduler_options(platform: Platform) -> scheduler::Options {
    scheduler::Options {
        namespace: "ns".into(),
        platform,
        image: "image".into(),
        replicas: 3,
        log_level: LogLevel::Debug,
        tls: TlsSettings {
            min_version: "VersionTLS13".into(),
            cipher_suites: String::new(),
        },
        dump_cache: true,
        guaranteed: false,
        api_server_ports: vec![6443, 443],
        config: Settings {
            namespace: "ns".into(),
            profile: None,
            cache_resync_seconds: 5,
            detection: CacheResyncDetectionMode::Relaxed,
            informer: SchedulerInformerMode::Dedicated,
            scoring: ScoringStrategyType::LeastAllocated,
            resources: Vec::new(),
            preemption: false,
            leader_elect: true,
        },
    }
}

#[test]
fn scheduler_deployment_is_described_in_full() {
    let set = scheduler::Set::new(&scheduler_options(Platform::OpenShift)).unwrap();
    let deployment = to_value(&set.deployment);
    assert_eq!(deployment["metadata"]["name"], "secondary-scheduler");
    assert_eq!(
        deployment["spec"]["strategy"],
        json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": "100%"}})
    );
    assert_eq!(deployment["spec"]["replicas"], 3);
    let template = &deployment["spec"]["template"];
    assert_eq!(
        template["metadata"]["annotations"],
        json!({
            "configmap.hash": manifests::hash::config_map(&set.config_map),
            "target.workload.openshift.io/management": "{\"effect\": \"PreferredDuringScheduling\"}",
        })
    );
    let pod = &template["spec"];
    assert_eq!(
        pod["securityContext"],
        json!({"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}})
    );
    assert_eq!(
        pod["topologySpreadConstraints"],
        json!([{
            "maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "secondary-scheduler"}}, "matchLabelKeys": ["pod-template-hash"],
        }])
    );
    assert_eq!(
        pod["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"],
        json!([{"weight": 1, "preference": {"matchExpressions": [{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}]}}])
    );
    let container = &pod["containers"][0];
    assert_eq!(container["command"], json!(["/bin/kube-scheduler"]));
    assert_eq!(
        container["args"],
        json!([
            "--config=/etc/kubernetes/config.yaml",
            "-v=4",
            "--tls-min-version=VersionTLS13",
            "--tls-cipher-suites="
        ])
    );
    assert_eq!(
        container["env"],
        json!([{"name": "PFP_STATUS_DUMP", "value": "/run/pfpstatus"}])
    );
    assert_eq!(
        container["resources"],
        json!({"requests": {"cpu": "150m", "memory": "500Mi"}})
    );
    assert_eq!(
        pod["volumes"],
        json!([
            {"name": "etckubernetes", "configMap": {"name": "topo-aware-scheduler-config"}},
            {"name": "runpfpstatus", "emptyDir": {"medium": "Memory", "sizeLimit": "64Mi"}},
        ])
    );
}

#[test]
fn scheduler_follows_its_options() {
    let options = scheduler::Options {
        guaranteed: true,
        dump_cache: false,
        ..scheduler_options(Platform::Kubernetes)
    };
    let set = scheduler::Set::new(&options).unwrap();
    let deployment = to_value(&set.deployment);
    let pod = &deployment["spec"]["template"]["spec"];
    // nobody else assigns a user there
    assert_eq!(pod["securityContext"]["runAsUser"], 65532);
    let amounts = json!({"cpu": "600m", "memory": "1200Mi"});
    assert_eq!(
        pod["containers"][0]["resources"],
        json!({"requests": amounts, "limits": amounts})
    );
    assert_eq!(pod["containers"][0].get("env"), None);
    let egress = to_value(&set.network_policies[1]);
    assert_eq!(
        egress["spec"]["egress"][0]["ports"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
}

#[test]
fn scheduler_set_has_every_object_in_order() {
    let set = scheduler::Set::new(&scheduler_options(Platform::Kubernetes)).unwrap();
    let names: Vec<String> = set
        .objects()
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
            "ServiceAccount secondary-scheduler",
            "ConfigMap topo-aware-scheduler-config",
            "ClusterRole topology-aware-scheduler",
            "ClusterRoleBinding topology-aware-scheduler",
            "Role topology-aware-scheduler-leader-elect",
            "RoleBinding topology-aware-scheduler-leader-elect",
            "Deployment secondary-scheduler",
            "NetworkPolicy scheduler-default-deny-all",
            "NetworkPolicy scheduler-egress-to-api-server",
        ]
    );
}

/// What the tests above say field by field, and nothing beside it. After a wanted change: `INSTA_UPDATE=always cargo test -p manifests`.
#[rstest]
#[case::kubernetes(Platform::Kubernetes)]
#[case::openshift(Platform::OpenShift)]
#[case::hypershift(Platform::HyperShift)]
fn installation_of_a_platform_is_as_it_was_reviewed(#[case] platform: Platform) {
    let operator = operator::Options {
        platform,
        ..operator::Options::default()
    };
    let pools = [pool(NodeGroupConfig::default())];
    let objects = [
        operator::Set::new(&operator).objects(),
        operator::network_policies("ns", &[6443])
            .iter()
            .map(to_value)
            .collect(),
        operator::monitoring("ns"),
        rte::Set::new(&options(platform), &pools).objects(),
        scheduler::Set::new(&scheduler_options(platform))
            .unwrap()
            .objects(),
    ];
    insta::assert_yaml_snapshot!(format!("installation_{platform}"), objects.concat());
}

#[test]
fn operator_may_do_everything_that_it_grants() {
    let cluster_wide = operator::rules::cluster_role();
    for rule in rte::cluster_role_rules()
        .iter()
        .chain(&scheduler::rules::cluster_role())
    {
        assert!(cluster_wide.contains(rule), "{rule:?}");
    }
    let namespaced = operator::rules::role();
    for rule in rte::role_rules()
        .iter()
        .chain(&scheduler::rules::leader_role())
    {
        assert!(namespaced.contains(rule), "{rule:?}");
    }
}

#[test]
fn operator_deployment_passes_environment_and_arguments() {
    let options = operator::Options {
        env: [("EXTRA".to_owned(), "1".to_owned())].into(),
        args: vec!["-platform=kubernetes".into()],
        ..operator::Options::default()
    };
    let deployment = to_value(&operator::Set::new(&options).deployment);
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["args"], json!(["-v=4", "-platform=kubernetes"]));
    assert_eq!(
        container["env"],
        json!([
            {"name": "PODNAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
            {"name": "EXTRA", "value": "1"},
        ])
    );
    assert_eq!(
        container["livenessProbe"]["httpGet"],
        json!({"path": "/healthz", "port": 8081})
    );
    assert_eq!(
        container["lifecycle"]["preStop"]["exec"]["command"],
        json!([
            "/bin/numaresources-operator",
            "-handle-lifecycle-event",
            "preStop"
        ])
    );
}
