//! Compares the objects of the scheduler field by field with the literals of operator.md 6.4 and 6.5.

use api::operator::LogLevel;
use manifests::platform::{Platform, TlsSettings};
use manifests::scheduler::config::Settings;
use manifests::{scheduler, to_value};
use serde_json::json;

pub(crate) fn scheduler_options(platform: Platform) -> scheduler::Options {
    let options = scheduler::Options::new("ns", platform, "image");
    scheduler::Options {
        replicas: 3,
        log_level: LogLevel::Debug,
        tls: TlsSettings {
            min_version: "VersionTLS13".into(),
            cipher_suites: String::new(),
        },
        api_server_ports: vec![6443, 443],
        config: Settings {
            leader_elect: true,
            ..options.config
        },
        ..options
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
    let uid = json!({"name": "POD_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}});
    assert_eq!(
        container["env"],
        json!([uid, {"name": "PFP_STATUS_DUMP", "value": "/run/pfpstatus"}])
    );
    let health = json!({"path": "/healthz", "port": 10259, "scheme": "HTTPS"});
    for probe in ["livenessProbe", "readinessProbe"] {
        assert_eq!(container[probe]["httpGet"], health, "{probe}");
    }
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
    // plain Kubernetes assigns no user by itself
    assert_eq!(pod["securityContext"]["runAsUser"], 65532);
    let amounts = json!({"cpu": "600m", "memory": "1200Mi"});
    assert_eq!(
        pod["containers"][0]["resources"],
        json!({"requests": amounts, "limits": amounts})
    );
    let variables = pod["containers"][0]["env"].as_array().unwrap();
    assert!(variables.iter().all(|it| it["name"] != "PFP_STATUS_DUMP"));
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
