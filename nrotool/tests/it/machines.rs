//! must-gather on an OpenShift of real kubelets, whose nodes have what an OpenShift's machines have: an audit log, and `systemctl` that answers.

use api::names::STACK_IMAGE;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams, ObjectMeta};
use serde_json::{Value, json};
use testbed::eventually;
use testbed::lane::Lane;

use crate::stack::{Stack, WITHIN};

const NAMESPACE: &str = "openshift-machine-config-operator";
const REFUSED: &str =
    "type=AVC msg=audit(1.000:1): avc:  denied  { connectto } for  pid=7 comm=\"resource-topolo\"";
const SOCKET: &str =
    "type=PATH msg=audit(1.000:2): item=0 name=\"/var/lib/kubelet/pod-resources/kubelet.sock\"";
const OTHER: &str = "type=USER_LOGIN msg=audit(1.000:3): pid=1 uid=0";

/// The pod of the Machine Config Operator on a node: it has the root directory of the node below `/rootfs`. Here some files of that directory are
/// from a ConfigMap, because the machines of this cluster have no audit log and do not run systemd.
fn daemon(node: &str) -> Value {
    let file = |path: &str, key: &str| json!({"name": "files", "mountPath": path, "subPath": key});
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": format!("machine-config-daemon-{node}"), "namespace": NAMESPACE,
            "labels": {"k8s-app": "machine-config-daemon"},
        },
        "spec": {
            "nodeName": node,
            "terminationGracePeriodSeconds": 0,
            "tolerations": [{"operator": "Exists"}],
            "containers": [{
                "name": "machine-config-daemon", "image": STACK_IMAGE, "command": ["/bin/sleep", "infinity"],
                "securityContext": {"privileged": true, "runAsUser": 0},
                "volumeMounts": [
                    {"name": "rootfs", "mountPath": "/rootfs"},
                    file("/rootfs/usr/bin/systemctl", "systemctl"),
                    file("/rootfs/var/log/audit/audit.log", "audit.log"),
                ],
            }],
            "volumes": [
                {"name": "rootfs", "hostPath": {"path": "/"}},
                {"name": "files", "configMap": {"name": "files", "defaultMode": 0o755}},
            ],
        },
    })
}

/// Returns the nodes that have exporters.
async fn nodes(stack: &Stack) -> Vec<String> {
    let pods: Api<Pod> = Api::all(stack.client());
    let exporters = ListParams::default().labels("name=resource-topology");
    let exporters = pods.list(&exporters).await.unwrap().items;
    let nodes = exporters.into_iter();
    nodes
        .map(|pod| pod.spec.unwrap().node_name.unwrap())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "real: root and the Kubernetes programs"]
async fn metrics_and_what_selinux_says_are_read_on_real_machines() {
    let stack = Stack::up_on(Lane::Local, &["--flavour", "openshift"]).await;
    let nodes = nodes(&stack).await;
    assert_eq!(nodes.len(), 2);
    let applier = apply::Applier::new(stack.client());
    let metadata = |name: &str, namespace: Option<&str>| ObjectMeta {
        name: Some(name.to_owned()),
        namespace: namespace.map(str::to_owned),
        ..ObjectMeta::default()
    };
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata(NAMESPACE, None)});
    let log = [REFUSED, SOCKET, OTHER]
        .map(|line| format!("{line}\n"))
        .concat();
    let files = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata("files", Some(NAMESPACE)),
        "data": {
            "systemctl": "#!/bin/sh\necho \"systemctl $*\"\n",
            "audit.log": log,
        },
    });
    for object in [namespace, files] {
        applier.apply(&object).await.unwrap();
    }
    let pods: Api<Pod> = Api::namespaced(stack.client(), NAMESPACE);
    for node in &nodes {
        applier.apply(&daemon(node)).await.unwrap();
    }
    eventually(WITHIN, async || {
        let pods = pods.list(&ListParams::default()).await.unwrap().items;
        let phases = pods.iter().map(|pod| pod.status.clone()?.phase);
        let running = phases.filter(|phase| phase.as_deref() == Some("Running"));
        match running.count() {
            2 => Ok(()),
            _ => Err(format!("{pods:#?}")),
        }
    })
    .await
    .unwrap();

    let files = stack.gather("gathered", &[]).await;
    let text = |path: &str| {
        let found = files.iter().find(|(file, _)| file == path);
        found.map_or_else(|| panic!("{path} is missing"), |(_, text)| text.as_str())
    };
    // the stand-in for an OpenShift does not have that kind
    assert_eq!(text("errors.txt"), "featuregates: 404 page not found\n");
    stack.assert_metrics(&files).await;
    stack.assert_no_account().await;
    for node in &nodes {
        let of_node = |file: &str| text(&format!("selinux_info/{node}/{file}"));
        let contexts: Vec<&str> = of_node("contexts").lines().collect();
        assert_eq!(contexts.len(), 3, "{contexts:?}");
        let socket = contexts
            .iter()
            .find(|line| line.ends_with(" /var/lib/kubelet/pod-resources/kubelet.sock"));
        // the column of the label is there, and without SELinux it has a question mark
        let socket = socket.unwrap_or_else(|| panic!("{contexts:?}"));
        assert!(socket.starts_with("? "), "{socket}");
        assert_eq!(
            of_node("kubelet_systemctl_show"),
            "systemctl show kubelet.service\n"
        );
        assert_eq!(
            of_node("kubelet_systemctl_cat"),
            "systemctl cat kubelet.service\n"
        );
        assert_eq!(of_node("audit_selinux.log"), format!("{REFUSED}\n"));
        assert_eq!(of_node("audit_podresources.log"), format!("{SOCKET}\n"));
    }
    stack.down();
}
