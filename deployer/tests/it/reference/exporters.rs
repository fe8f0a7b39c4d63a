//! Component `topology-updater`, type RTE, on plain Kubernetes (deployer.md 5.1, 5.2).

use rstest::rstest;
use serde_json::{Value, json};

use super::{
    HYPERSHIFT, KUBERNETES, OPENSHIFT, Rendered, assert_policy, item, names, plain_verbs, subject,
};

const NAMESPACE: &str = "tas-topology-updater";
const SET: &str = "resource-topology-exporter";

/// Returns the objects with a configuration of the exporters.
fn configured(platform: &str, text: &str) -> Rendered {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("rte.yaml");
    std::fs::write(&file, text).unwrap();
    Rendered::new(&format!("{platform} --rte-config-file={}", file.display()))
}

fn exporter(rendered: &Rendered) -> &Value {
    item(&rendered.pods("DaemonSet", SET)["containers"], SET)
}

#[test]
fn the_namespace_is_the_same_on_every_platform() {
    for platform in [KUBERNETES, OPENSHIFT, HYPERSHIFT] {
        let rendered = Rendered::new(platform);
        let namespace = rendered.object("Namespace", NAMESPACE);
        // ours: the page has no labels; with these `remove` knows its own, and a cluster that forbids host paths elsewhere allows them here
        assert_eq!(
            namespace["metadata"]["labels"],
            json!({"app.kubernetes.io/managed-by": "deployer", "pod-security.kubernetes.io/enforce": "privileged"})
        );
    }
}

#[test]
fn the_account_may_do_what_the_page_says() {
    let rendered = Rendered::new(KUBERNETES);
    let account = rendered.object("ServiceAccount", "rte");
    assert_eq!(account["metadata"]["namespace"], NAMESPACE);
    let role = rendered.object("Role", "rte");
    assert_eq!(role["metadata"]["namespace"], NAMESPACE);
    assert_eq!(plain_verbs(role, "", "pods"), "get");
    assert_eq!(plain_verbs(role, "", "pods/status"), "update");
    let binding = rendered.object("RoleBinding", "rte");
    assert_eq!(binding["roleRef"]["name"], "rte");
    assert_eq!(binding["roleRef"]["kind"], "Role");
    assert_eq!(subject(binding), (&json!(NAMESPACE), &json!("rte")));
    let role = rendered.object("ClusterRole", "rte");
    assert_eq!(
        plain_verbs(role, "topology.node.k8s.io", "noderesourcetopologies"),
        // ours: `patch`, without which every patch of the original is refused
        "create get list patch update"
    );
    assert_eq!(plain_verbs(role, "", "nodes"), "list watch");
    // ours: changes of pods are published at once, and metrics are only for those who may read them
    assert_eq!(plain_verbs(role, "", "pods"), "watch");
    assert_eq!(
        plain_verbs(role, "authentication.k8s.io", "tokenreviews"),
        "create"
    );
    assert_eq!(
        plain_verbs(role, "authorization.k8s.io", "subjectaccessreviews"),
        "create"
    );
    assert_eq!(role["rules"].as_array().unwrap().len(), 5);
    let binding = rendered.object("ClusterRoleBinding", "rte");
    assert_eq!(binding["roleRef"]["name"], "rte");
    assert_eq!(binding["roleRef"]["kind"], "ClusterRole");
    assert_eq!(subject(binding), (&json!(NAMESPACE), &json!("rte")));
}

#[test]
fn the_configuration_is_there_only_if_it_is_given_and_verbatim() {
    let without = Rendered::new(KUBERNETES);
    assert!(!without.names("ConfigMap").contains(&"rte-config"));
    let text = "# as it is\nexcludeList:\n  '*': [ sample.com/device ]\n";
    let with = configured(KUBERNETES, text);
    let map = with.object("ConfigMap", "rte-config");
    assert_eq!(map["metadata"]["namespace"], NAMESPACE);
    assert_eq!(map["data"], json!({"config.yaml": text}));
}

#[test]
fn network_policies_are_the_three_of_the_page() {
    let rendered = Rendered::new(KUBERNETES);
    let pods = json!({"name": "resource-topology"});
    let none = &Value::Null;
    assert_policy(
        rendered.object("NetworkPolicy", "rte-default-deny-all"),
        &pods,
        &json!(["Ingress", "Egress"]),
        none,
        none,
    );
    assert_policy(
        rendered.object("NetworkPolicy", "rte-egress-to-api-server"),
        &pods,
        &json!(["Egress"]),
        &json!([{"ports": [{"port": 6443, "protocol": "TCP"}]}]),
        none,
    );
    assert_policy(
        rendered.object("NetworkPolicy", "ingress-to-rte-metrics"),
        &pods,
        &json!(["Ingress"]),
        none,
        &json!([{"ports": [{"port": 2112, "protocol": "TCP"}]}]),
    );
}

#[test]
fn what_openshift_has_is_not_there() {
    let rendered = Rendered::new(KUBERNETES);
    assert!(rendered.names("SecurityContextConstraints").is_empty());
    assert!(rendered.names("MachineConfig").is_empty());
    let template = &rendered.object("DaemonSet", SET)["spec"]["template"];
    assert_eq!(
        template["metadata"]["annotations"]["openshift.io/required-scc"],
        Value::Null
    );
    assert_eq!(
        exporter(&rendered)["securityContext"]["seLinuxOptions"],
        Value::Null
    );
}

#[test]
fn the_pods_are_as_described() {
    let rendered = Rendered::new(KUBERNETES);
    let labels = json!({"name": "resource-topology"});
    let set = rendered.object("DaemonSet", SET);
    assert_eq!(set["metadata"]["namespace"], NAMESPACE);
    assert_eq!(set["spec"]["selector"]["matchLabels"], labels);
    assert_eq!(set["spec"]["template"]["metadata"]["labels"], labels);
    let pods = rendered.pods("DaemonSet", SET);
    assert_eq!(pods["priorityClassName"], "system-node-critical");
    assert_eq!(pods["serviceAccountName"], "rte");
    assert_eq!(
        pods["readinessGates"],
        json!([{"conditionType": "PodresourcesFetched"}, {"conditionType": "NodeTopologyUpdated"}])
    );
    assert_eq!(pods["tolerations"], Value::Null);
    assert_eq!(pods["nodeSelector"], Value::Null);
    assert_eq!(names(&pods["containers"]), [SET, "shared-pool-container"]);
    // ours: the image of the stack has the program, too
    let shared = item(&pods["containers"], "shared-pool-container");
    assert_eq!(shared["image"], exporter(&rendered)["image"]);
    assert_eq!(shared["command"], json!(["/bin/sleep"]));
    assert_eq!(shared["volumeMounts"], Value::Null);
    assert_eq!(shared["ports"], Value::Null);
}

#[test]
fn the_exporters_container_is_as_described() {
    let rendered = Rendered::new(KUBERNETES);
    let container = exporter(&rendered);
    assert_eq!(
        container["command"],
        json!(["/bin/resource-topology-exporter"])
    );
    assert_eq!(container["image"], "localhost/numaresources/stack:dev");
    assert_eq!(container["imagePullPolicy"], "Always");
    let present = Rendered::new(&format!("{KUBERNETES} --pull-if-not-present"));
    assert_eq!(exporter(&present)["imagePullPolicy"], "IfNotPresent");
    let env = &container["env"];
    assert_eq!(
        names(env),
        [
            "NODE_NAME",
            "REFERENCE_NAMESPACE",
            "REFERENCE_POD_NAME",
            "REFERENCE_CONTAINER_NAME",
            "METRICS_PORT",
            // ours: what must-gather collects
            "PFP_STATUS_DUMP",
        ]
    );
    let field = |name| &item(env, name)["valueFrom"]["fieldRef"]["fieldPath"];
    assert_eq!(field("NODE_NAME"), "spec.nodeName");
    assert_eq!(field("REFERENCE_NAMESPACE"), "metadata.namespace");
    assert_eq!(field("REFERENCE_POD_NAME"), "metadata.name");
    assert_eq!(
        item(env, "REFERENCE_CONTAINER_NAME")["value"],
        "shared-pool-container"
    );
    assert_eq!(item(env, "METRICS_PORT")["value"], "2112");
    assert_eq!(
        container["ports"],
        json!([{"name": "metrics-port", "containerPort": 2112}])
    );
}

/// The flags of the page's table, in its order.
#[rstest]
#[case::usual(KUBERNETES, "", &[
    "--sleep-interval=10s",
    "--sysfs=/host-sys",
    "--podresources-socket=unix:///host-podresources/kubelet.sock",
    "-v=1",
    "--pods-fingerprint=true",
    "--kubelet-config-file=/host-var-lib-kubelet/config.yaml",
])]
#[case::everything(KUBERNETES, "--updater-sync-period=90s --updater-verbose=5 --updater-notif-enable --updater-pfp-enable=false", &[
    "--sleep-interval=1m30s",
    "--sysfs=/host-sys",
    "--podresources-socket=unix:///host-podresources/kubelet.sock",
    "-v=5",
    "--notify-file=/host-run-rte/notify",
    "--pods-fingerprint=false",
    "--kubelet-config-file=/host-var-lib-kubelet/config.yaml",
])]
#[case::no_period_on_openshift(OPENSHIFT, "--updater-sync-period=0", &[
    "--sysfs=/host-sys",
    "--podresources-socket=unix:///host-podresources/kubelet.sock",
    "-v=1",
    "--pods-fingerprint=true",
])]
fn the_arguments_of_the_page_are_there_in_its_order(
    #[case] platform: &str,
    #[case] flags: &str,
    #[case] expected: &[&str],
) {
    const OF_THE_PAGE: [&str; 7] = [
        "--sleep-interval",
        "--sysfs",
        "--podresources-socket",
        "-v",
        "--notify-file",
        "--pods-fingerprint",
        "--kubelet-config-file",
    ];
    let rendered = Rendered::new(&format!("{platform} {flags}"));
    let args = exporter(&rendered)["args"].as_array().unwrap();
    let name = |arg: &str| arg.split('=').next().unwrap_or_default().to_owned();
    let (ofs, others): (Vec<&str>, Vec<&str>) = args
        .iter()
        .filter_map(Value::as_str)
        .partition(|arg| OF_THE_PAGE.contains(&name(arg).as_str()));
    assert_eq!(ofs, expected);
    // ours
    for other in others {
        let known = [
            "--metrics-mode",
            "--metrics-auth",
            "--metrics-tls-min-version",
            "--metrics-tls-cipher-suites",
            "--refresh-node-resources",
            "--pods-fingerprint-method",
            "--add-nrt-owner",
        ];
        assert!(known.contains(&name(other).as_str()), "{other}");
    }
}

/// Returns the source of a volume and its mount in the exporter's container, if both are there.
fn volume(rendered: &Rendered, name: &str) -> Option<(Value, String, bool)> {
    let pods = rendered.pods("DaemonSet", SET);
    if !names(&pods["volumes"]).contains(&name) {
        assert!(!names(&exporter(rendered)["volumeMounts"]).contains(&name));
        return None;
    }
    let mut source = item(&pods["volumes"], name).clone();
    source.as_object_mut().unwrap().remove("name");
    let mount = item(&exporter(rendered)["volumeMounts"], name);
    let path = mount["mountPath"].as_str().unwrap().to_owned();
    Some((source, path, mount["readOnly"] == true))
}

fn host(path: &str, kind: &str) -> Value {
    json!({"hostPath": {"path": path, "type": kind}})
}

#[test]
fn the_volumes_of_the_page_are_there_when_it_says() {
    let usual = Rendered::new(KUBERNETES);
    assert_eq!(
        volume(&usual, "host-sys"),
        Some((host("/sys", "Directory"), "/host-sys".to_owned(), true))
    );
    assert_eq!(
        volume(&usual, "host-podresources"),
        // ours: read-only, which is enough to connect to the socket
        Some((
            host("/var/lib/kubelet/pod-resources", "Directory"),
            "/host-podresources".to_owned(),
            true
        ))
    );
    assert_eq!(volume(&usual, "rte-config-volume"), None);
    assert_eq!(volume(&usual, "host-run-rte"), None);
    // ours: of the kubelet's directory the file that is read, and nothing else
    assert_eq!(volume(&usual, "host-var-lib-kubelet"), None);
    assert_eq!(
        volume(&usual, "host-kubelet-config"),
        Some((
            host("/var/lib/kubelet/config.yaml", "File"),
            "/host-var-lib-kubelet/config.yaml".to_owned(),
            true
        ))
    );
    let configured = configured(KUBERNETES, "excludeList: {}\n");
    assert_eq!(
        volume(&configured, "rte-config-volume"),
        Some((
            json!({"configMap": {"name": "rte-config", "optional": true}}),
            "/etc/resource-topology-exporter/".to_owned(),
            true
        ))
    );
    let notified = Rendered::new(&format!("{KUBERNETES} --updater-notif-enable"));
    assert_eq!(
        volume(&notified, "host-run-rte"),
        Some((
            host("/run/rte", "DirectoryOrCreate"),
            "/host-run-rte".to_owned(),
            false
        ))
    );
    for platform in [OPENSHIFT, HYPERSHIFT] {
        let other = Rendered::new(platform);
        assert_eq!(volume(&other, "host-kubelet-config"), None, "{platform}");
    }
}
