//! Component `topology-updater`, type NFD (deployer.md 6).

use rstest::rstest;
use serde_json::{Value, json};

use super::{HYPERSHIFT, KUBERNETES, OPENSHIFT, Rendered, item, names, plain_verbs, subject};

const NAME: &str = "nfd-topology-updater";
const NAMESPACE: &str = "node-feature-discovery";

fn rendered(flags: &str) -> Rendered {
    Rendered::new(&format!("{flags} --updater-type=NFD"))
}

#[test]
fn its_objects_are_these_on_every_platform() {
    for platform in [KUBERNETES, OPENSHIFT, HYPERSHIFT] {
        let rendered = rendered(platform);
        // ours: the original prints the namespace twice
        let namespace = rendered.object("Namespace", NAMESPACE);
        assert_eq!(namespace["apiVersion"], "v1");
        let account = rendered.object("ServiceAccount", NAME);
        assert_eq!(account["metadata"]["namespace"], NAMESPACE);
        for absent in ["SecurityContextConstraints", "MachineConfig"] {
            assert!(rendered.names(absent).is_empty(), "{platform}: {absent}");
        }
        let policies = rendered.names("NetworkPolicy");
        assert!(
            !policies.iter().any(|name| name.contains("nfd")),
            "{policies:?}"
        );
    }
}

#[test]
fn it_may_read_nodes_and_pods_and_write_topologies() {
    let rendered = rendered(KUBERNETES);
    let role = rendered.object("ClusterRole", NAME);
    assert_eq!(plain_verbs(role, "", "nodes"), "get list");
    assert_eq!(plain_verbs(role, "", "pods"), "get");
    assert_eq!(
        plain_verbs(role, "topology.node.k8s.io", "noderesourcetopologies"),
        "create get update"
    );
    assert_eq!(role["rules"].as_array().unwrap().len(), 3);
    let binding = rendered.object("ClusterRoleBinding", NAME);
    assert_eq!(binding["roleRef"]["name"], NAME);
    assert_eq!(subject(binding), (&json!(NAMESPACE), &json!(NAME)));
}

#[test]
fn its_daemon_set_is_as_described() {
    let rendered = rendered(KUBERNETES);
    let set = rendered.object("DaemonSet", NAME);
    assert_eq!(set["metadata"]["labels"], json!({"app": "nfd"}));
    let labels = json!({"app": NAME});
    assert_eq!(set["spec"]["selector"]["matchLabels"], labels);
    assert_eq!(set["spec"]["template"]["metadata"]["labels"], labels);
    let pods = rendered.pods("DaemonSet", NAME);
    assert_eq!(pods["dnsPolicy"], "ClusterFirstWithHostNet");
    assert_eq!(pods["hostNetwork"], Value::Null);
    assert_eq!(pods["serviceAccountName"], NAME);
    // ours: the API server fills in the deprecated alias `serviceAccount`
    assert_eq!(pods["serviceAccount"], Value::Null);
    assert_eq!(names(&pods["containers"]), [NAME]);
    let container = item(&pods["containers"], NAME);
    assert_eq!(
        container["image"],
        "registry.k8s.io/nfd/node-feature-discovery:v0.15.1"
    );
    assert_eq!(container["command"], json!([NAME]));
    assert_eq!(
        container["env"],
        json!([{"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}])
    );
    let security = &container["securityContext"];
    assert_eq!(security["allowPrivilegeEscalation"], false);
    assert_eq!(security["capabilities"], json!({"drop": ["ALL"]}));
    assert_eq!(security["readOnlyRootFilesystem"], true);
    assert_eq!(security["runAsUser"], 0);
    for (name, path, mounted) in [
        ("host-sys", "/sys", "/host-sys"),
        (
            "kubelet-podresources-conf",
            "/var/lib/kubelet/config.yaml",
            "/host-var/lib/kubelet/config.yaml",
        ),
        (
            "kubelet-podresources",
            "/var/lib/kubelet/pod-resources",
            "/host-var/lib/kubelet/pod-resources",
        ),
    ] {
        let volume = item(&pods["volumes"], name);
        assert_eq!(volume["hostPath"], json!({"path": path}), "no type");
        let mount = item(&container["volumeMounts"], name);
        assert_eq!(mount["mountPath"], mounted);
        assert_eq!(mount["readOnly"], Value::Null, "{name}");
    }
    assert_eq!(pods["volumes"].as_array().unwrap().len(), 3);
}

#[rstest]
#[case::usual("", &["--sleep-interval=10s", "-v=1", "--pods-fingerprint=true"])]
#[case::changed(
    "--updater-sync-period=1m --updater-verbose=3 --updater-pfp-enable=false",
    &["--sleep-interval=1m0s", "-v=3", "--pods-fingerprint=false"]
)]
#[case::no_period("--updater-sync-period=0", &["-v=1", "--pods-fingerprint=true"])]
fn its_arguments_are_in_the_order_of_the_page(#[case] flags: &str, #[case] middle: &[&str]) {
    let rendered = rendered(&format!("{KUBERNETES} {flags}"));
    let pods = rendered.pods("DaemonSet", NAME);
    let first = [
        "--kubelet-config-uri=file:///host-var/lib/kubelet/config.yaml",
        "--podresources-socket=unix:///host-var/lib/kubelet/pod-resources/kubelet.sock",
    ];
    let expected = [&first, middle, &["--kubelet-state-dir="]].concat();
    assert_eq!(pods["containers"][0]["args"], json!(expected));
}

#[test]
fn what_is_for_the_exporters_alone_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("rte.yaml");
    std::fs::write(&file, "excludeList: {}\n").unwrap();
    let given = format!("--rte-config-file={}", file.display());
    for flag in [given.as_str(), "--updater-notif-enable", "--updater-scc=v1"] {
        let (usual, other) = (
            rendered(OPENSHIFT),
            rendered(&format!("{OPENSHIFT} {flag}")),
        );
        assert_eq!(usual.0, other.0, "{flag}");
    }
}
