//! What `render` prints: which objects in which order, and what flags change in them.

use rstest::rstest;
use serde_json::{Value, json};

use crate::process::{deployer, deployer_with};

const CONTROLLER: (&str, &str) = ("TAS_SCHEDULER_PLUGIN_CONTROLLER_IMAGE", "c");

pub(crate) fn documents(text: &str) -> Vec<Value> {
    assert!(text.starts_with("---\n"), "{text}");
    let parts = text.split("---\n").skip(1);
    parts
        .map(|part| serde_yaml::from_str(part).unwrap())
        .collect()
}

fn named(objects: &[Value]) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    objects
        .iter()
        .map(|object| {
            format!(
                "{} {}",
                text(&object["kind"]),
                text(&object["metadata"]["name"])
            )
        })
        .collect()
}

/// The order of the original (deployer.md 3), without what our scheduler does not need.
#[test]
fn everything_is_printed_in_the_order_of_the_original() {
    let objects = documents(&deployer("-P kubernetes:v1.30 render").stdout());
    assert_eq!(
        named(&objects),
        [
            "CustomResourceDefinition noderesourcetopologies.topology.node.k8s.io",
            "Namespace tas-topology-updater",
            "Role rte",
            "RoleBinding rte",
            "ClusterRole rte",
            "ClusterRoleBinding rte",
            "DaemonSet resource-topology-exporter",
            "ServiceAccount rte",
            "NetworkPolicy rte-egress-to-api-server",
            "NetworkPolicy ingress-to-rte-metrics",
            "NetworkPolicy rte-default-deny-all",
            "Service numaresources-rte-metrics-service",
            "ValidatingAdmissionPolicy numaresources-rte-own-node",
            "ValidatingAdmissionPolicyBinding numaresources-rte-own-node",
            "Namespace tas-scheduler",
            "ServiceAccount topology-aware-scheduler",
            "ClusterRole topology-aware-scheduler",
            "ClusterRoleBinding topology-aware-scheduler",
            "NetworkPolicy topology-aware-scheduler-default-deny-all",
            "NetworkPolicy topology-aware-scheduler-egress-to-api-server",
            "ConfigMap scheduler-config",
            "Role topology-aware-scheduler-leader-elect",
            "RoleBinding topology-aware-scheduler-leader-elect",
            "Deployment topology-aware-scheduler",
        ]
    );
    let nfd = documents(
        &deployer("-P kubernetes:v1.27 render topology-updater --updater-type=NFD").stdout(),
    );
    assert_eq!(
        named(&nfd),
        [
            "Namespace node-feature-discovery",
            "ServiceAccount nfd-topology-updater",
            "ClusterRole nfd-topology-updater",
            "ClusterRoleBinding nfd-topology-updater",
            "DaemonSet nfd-topology-updater",
        ]
    );
    let controller =
        deployer_with(&[CONTROLLER], "-P kubernetes:v1.27 render scheduler-plugin").stdout();
    let controller = named(&documents(&controller));
    assert_eq!(
        controller[0],
        "CustomResourceDefinition podgroups.scheduling.sigs.k8s.io"
    );
    assert_eq!(
        controller.last().unwrap(),
        "Deployment topology-aware-controller"
    );
}

#[rstest]
#[case::before("kubernetes:v1.29", 0)]
#[case::since("kubernetes:v1.30", 2)]
#[case::openshift("openshift:4.20.0", 2)]
fn exporters_are_kept_to_their_node_where_the_api_server_knows_how(
    #[case] platform: &str,
    #[case] expected: usize,
) {
    let rendered = deployer(&format!("-P {platform} render topology-updater")).stdout();
    let objects = documents(&rendered);
    let policies: Vec<&Value> = objects
        .iter()
        .filter(|object| object["metadata"]["name"] == "numaresources-rte-own-node")
        .collect();
    assert_eq!(policies.len(), expected, "{rendered}");
    let about = "system:serviceaccount:tas-topology-updater:rte";
    assert!(policies.is_empty() || policies[0].to_string().contains(about));
}

/// Returns the container of that name and the volumes of the workload with it.
fn container(text: &str, name: &str) -> (Value, Value) {
    let objects = documents(text);
    objects
        .iter()
        .find_map(|object| {
            let pod = &object["spec"]["template"]["spec"];
            let containers = pod["containers"].as_array()?;
            let found = containers
                .iter()
                .find(|container| container["name"] == name)?;
            Some((found.clone(), pod["volumes"].clone()))
        })
        .unwrap()
}

fn names(list: &Value) -> Vec<&str> {
    let items = list.as_array().unwrap().iter();
    items.map(|item| item["name"].as_str().unwrap()).collect()
}

#[rstest]
#[case::on("RTE", true)]
#[case::off("RTE", false)]
#[case::nfd_on("NFD", true)]
#[case::nfd_off("NFD", false)]
fn fingerprints_are_a_flag_of_the_updater(#[case] updater: &str, #[case] on: bool) {
    let flags =
        format!("-P kubernetes:v1.26 --updater-type={updater} --updater-pfp-enable={on} render");
    let rendered = deployer(&flags).stdout();
    assert!(
        rendered.contains(&format!("- --pods-fingerprint={on}\n")),
        "{rendered}"
    );
}

#[test]
fn flags_of_the_updater_reach_its_command_line_and_its_volumes() {
    let exporter = |flags: &str| {
        let rendered = deployer(&format!(
            "-P kubernetes:v1.30 render topology-updater {flags}"
        ));
        container(&rendered.stdout(), "resource-topology-exporter")
    };
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("rte.yaml");
    std::fs::write(&file, "excludeList: {}\n").unwrap();
    let flags = format!(
        "--updater-sync-period=90s --updater-verbose=5 --updater-notif-enable --pull-if-not-present --rte-config-file={}",
        file.display()
    );
    let (changed, volumes) = exporter(&flags);
    let args = changed["args"].as_array().unwrap();
    for arg in [
        "--sleep-interval=1m30s",
        "-v=5",
        "--notify-file=/host-run-rte/notify",
        "--kubelet-config-file=/host-var-lib-kubelet/config.yaml",
    ] {
        assert!(args.contains(&json!(arg)), "{arg} in {args:?}");
    }
    assert_eq!(changed["imagePullPolicy"], "IfNotPresent");
    let config =
        json!({"name": "rte-config-volume", "configMap": {"name": "rte-config", "optional": true}});
    assert!(volumes.as_array().unwrap().contains(&config), "{volumes}");
    assert!(names(&volumes).contains(&"host-run-rte"));
    let (usual, volumes) = exporter("--updater-sync-period=0");
    let args = usual["args"].to_string();
    assert!(
        !args.contains("sleep-interval") && !args.contains("notify-file"),
        "{args}"
    );
    assert_eq!(usual["imagePullPolicy"], "Always");
    for volume in ["host-run-rte", "rte-config-volume"] {
        assert!(!names(&volumes).contains(&volume), "{volumes}");
    }
    assert!(names(&volumes).contains(&"host-podresources"));
}

#[test]
fn flags_of_the_scheduler_reach_its_deployment() {
    let flags = "-P kubernetes:v1.30 render scheduler-plugin --sched-verbose=9 -R 2 --sched-profile-name=mine";
    let objects = documents(&deployer(flags).stdout());
    let of = |kind: &str| {
        objects
            .iter()
            .find(|object| object["kind"] == kind)
            .unwrap()
    };
    let pod = &of("Deployment")["spec"]["template"]["spec"];
    assert_eq!(of("Deployment")["spec"]["replicas"], 2);
    assert!(
        pod["containers"][0]["args"]
            .as_array()
            .unwrap()
            .contains(&json!("-v=9"))
    );
    let affinity =
        &pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    assert_eq!(
        affinity["nodeSelectorTerms"][0]["matchExpressions"],
        json!([{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}])
    );
    let config = of("ConfigMap")["data"]["scheduler-config.yaml"]
        .as_str()
        .unwrap();
    let config: Value = serde_yaml::from_str(config).unwrap();
    assert_eq!(config["profiles"][0]["schedulerName"], "mine");
    assert_eq!(config["leaderElection"]["leaderElect"], true);
    let role = serde_json::to_string(of("Role")).unwrap();
    assert!(role.contains("nrtmatch-scheduler"), "{role}");
    let free =
        deployer("-P kubernetes:v1.30 render scheduler-plugin --sched-ctrlplane-affinity=false");
    let free = documents(&free.stdout());
    let pod = &free.last().unwrap()["spec"]["template"]["spec"];
    assert_eq!(
        (&pod["affinity"], &pod["tolerations"]),
        (&Value::Null, &Value::Null)
    );
}

#[test]
fn openshift_has_its_own_objects_and_the_policy_only_where_something_needs_it() {
    let kinds = |flags: &str| {
        let text = deployer(&format!("{flags} render")).stdout();
        let objects = documents(&text);
        let has = |kind: &str| {
            objects
                .iter()
                .filter(|object| object["kind"] == kind)
                .count()
        };
        (
            has("MachineConfig"),
            has("SecurityContextConstraints"),
            text.contains("namespace: openshift-topology-aware-scheduler"),
        )
    };
    assert_eq!(kinds("-P openshift:4.20.0"), (0, 2, true));
    assert_eq!(kinds("-P openshift:4.20.0 --updater-scc=v1"), (1, 2, true));
    assert_eq!(
        kinds("-P openshift:4.20.0 --updater-cri-hooks-enable"),
        (1, 2, true)
    );
    assert_eq!(
        kinds("-P openshift:4.20.0 --updater-scc=v1 --updater-custom-selinux-policy=false"),
        (0, 2, true)
    );
    assert_eq!(kinds("-P hypershift:4.20.0 --updater-scc=v1"), (0, 2, true));
    assert_eq!(kinds("-P kubernetes:1.30 --updater-scc=v1"), (0, 0, false));
    let policy = deployer("-P openshift:4.18.1 render policy").stdout();
    assert!(policy.starts_with("(block rte"), "{policy}");
}
