//! must-gather on recorded objects: what it collects, what it leaves out, and what it does where it is refused.

use serde_json::{Value, json};
use testbed::configz::ConfigzKubelet;
use testbed::lane::Lane;

use crate::server::{Server, node, pod, read_all, topology};

/// Planted in every place that a secret may be in: none of it may be collected.
const PLANTED: &str = "hunter2-planted";

/// Objects of a stack, with planted secrets.
fn objects(kubelet: &Value) -> Vec<Value> {
    let applied = json!({"data": {"password": PLANTED}}).to_string();
    let mut exporter = pod("rte-x", "1", Some("worker-0"));
    exporter["metadata"] = json!({
        "name": "rte-x", "namespace": "numa", "labels": {"name": "resource-topology"},
        "annotations": {"kubectl.kubernetes.io/last-applied-configuration": applied},
    });
    exporter["spec"]["containers"][0]["env"] =
        json!([{"name": "API_TOKEN", "value": PLANTED}, {"name": "KEPT", "value": "kept-value"}]);
    exporter["spec"]["containers"][0]["args"] = json!(["--v=2", format!("--password={PLANTED}")]);
    vec![
        node("worker-0", kubelet),
        topology("worker-0", &[4, 8], &[]),
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "numa"}}),
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}}),
        json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "planted-secret", "namespace": "numa"},
            "stringData": {"plain": PLANTED},
        }),
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings", "namespace": "numa"},
            "data": {"config.yaml": format!("kubelet: {{}}\nclient-secret: |\n  {PLANTED}\n"), "token": PLANTED},
        }),
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "elsewhere", "namespace": "other"}, "data": {"a": "b"},
        }),
        exporter,
        json!({
            "apiVersion": "nodetopology.openshift.io/v1", "kind": "NUMAResourcesOperator", "metadata": {"name": "numaresourcesoperator"},
            "spec": {"nodeGroups": [{"poolName": "worker"}]},
        }),
    ]
}

#[tokio::test]
async fn what_is_collected_and_what_is_not() {
    let server = Server::start_on(Lane::Embedded)
        .await
        .with_definitions()
        .await;
    let settings = json!({"topologyManagerPolicy": "single-numa-node", "maxPods": 110});
    let kubelet = ConfigzKubelet::start(settings).await.unwrap();
    server.record(&objects(&kubelet.node_status())).await;

    let (ended, root) = server.gather("all", &[]).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let files = read_all(&root);
    let text = |path: &str| {
        let found = files.iter().find(|(file, _)| file == path);
        let names: Vec<&String> = files.iter().map(|(file, _)| file).collect();
        &found
            .unwrap_or_else(|| panic!("{path} is not among {names:#?}"))
            .1
    };
    // the original's layout (scenarios-other.md 5)
    for path in [
        "cluster-scoped-resources/apiextensions.k8s.io/customresourcedefinitions/noderesourcetopologies.topology.node.k8s.io.yaml",
        "cluster-scoped-resources/apiextensions.k8s.io/customresourcedefinitions/numaresourcesoperators.nodetopology.openshift.io.yaml",
        "cluster-scoped-resources/apiextensions.k8s.io/customresourcedefinitions/numaresourcesschedulers.nodetopology.openshift.io.yaml",
        "cluster-scoped-resources/nodetopology.openshift.io/numaresourcesoperators/numaresourcesoperator.yaml",
        "cluster-scoped-resources/topology.node.k8s.io/noderesourcetopologies/worker-0.yaml",
        "cluster-scoped-resources/core/nodes/worker-0.yaml",
        "namespaces/numa/numa.yaml",
        "namespaces/numa/core/pods.yaml",
        "namespaces/numa/core/events.yaml",
        "namespaces/numa/core/configmaps.yaml",
        "namespaces/numa/apps/daemonsets.yaml",
        "namespaces/numa/apps/deployments.yaml",
        "namespaces/numa/pods/rte-x/rte-x.yaml",
        "nrt.txt",
        "nrt.json",
    ] {
        assert!(!text(path).is_empty(), "{path}");
    }
    assert!(text("version").starts_with("numaresources-operator/must-gather\n"));
    let platform: Value = serde_json::from_str(text("platform.json")).unwrap();
    assert_eq!(platform["platform"], "Kubernetes");
    let kubelet: Value = serde_json::from_str(text("kubelets/worker-0/configz.json")).unwrap();
    assert_eq!(kubelet["kubeletconfig"]["maxPods"], 110);
    let topology: Value = serde_yaml::from_str(text(
        "cluster-scoped-resources/topology.node.k8s.io/noderesourcetopologies/worker-0.yaml",
    ))
    .unwrap();
    assert_eq!(topology["kind"], "NodeResourceTopology");
    assert_eq!(topology["zones"][1]["name"], "node-1");
    let pods: Value = serde_yaml::from_str(text("namespaces/numa/core/pods.yaml")).unwrap();
    assert_eq!(
        (&pods["kind"], &pods["items"][0]["kind"]),
        (&json!("PodList"), &json!("Pod"))
    );
    let variables = &pods["items"][0]["spec"]["containers"][0]["env"];
    assert_eq!(
        variables,
        &json!([{"name": "API_TOKEN", "value": "REDACTED"}, {"name": "KEPT", "value": "kept-value"}])
    );
    assert!(text("index.html").contains("<a href=\"nrt.txt\">"));

    for (path, text) in &files {
        assert!(!text.contains(PLANTED), "{path}:\n{text}");
        assert!(!text.contains("planted-secret"), "{path}");
        assert!(
            !path.contains("secrets/") && !path.starts_with("namespaces/other"),
            "{path}"
        );
    }

    // a folder with something in it is left alone
    let (ended, _) = server.gather("all", &[]).await;
    assert_eq!(ended.code, Some(1));
    assert!(
        ended.stderr.contains("is not empty: name another folder"),
        "{ended:?}"
    );
    let (_, root) = server.gather("given", &["--namespace", "other"]).await;
    assert!(root.join("namespaces/other/core/configmaps.yaml").is_file());
    assert!(root.join("namespaces/numa").is_dir());
}

#[tokio::test]
async fn what_is_refused_is_listed_and_the_rest_is_collected() {
    let server = Server::start().await.with_definitions().await;
    // nobody listens there
    let gone = json!({
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}], "daemonEndpoints": {"kubeletEndpoint": {"Port": 1}},
    });
    server.record(&objects(&gone)).await;
    let group = "rbac.authorization.k8s.io";
    let account = json!({"name": "helper", "namespace": "other"});
    server
        .record(&[
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account}),
            json!({
                "apiVersion": format!("{group}/v1"), "kind": "ClusterRole", "metadata": {"name": "helper"},
                "rules": [
                    {"apiGroups": [""], "resources": ["nodes", "pods", "configmaps"], "verbs": ["get", "list"]},
                    {"apiGroups": [""], "resources": ["nodes/proxy"], "verbs": ["get"]},
                ],
            }),
            json!({
                "apiVersion": format!("{group}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": "helper"},
                "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "helper"},
                "subjects": [{"kind": "ServiceAccount", "name": "helper", "namespace": "other"}],
            }),
        ])
        .await;
    let few = server
        .inner
        .account_kubeconfig("other", "helper")
        .await
        .unwrap();
    let kubeconfig = server.files.path().join("few");
    testbed::api_server::write(&few, &kubeconfig).unwrap();
    let kubeconfig = kubeconfig.to_str().unwrap();

    let (ended, root) = server
        .gather("few-rights", &["--kubeconfig", kubeconfig])
        .await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let errors = fs_err::read_to_string(root.join("errors.txt")).unwrap();
    for part in [
        "noderesourcetopologies: ",
        "customresourcedefinitions: ",
        "settings of the kubelet of worker-0: ",
        "namespace numa: ",
        "events of namespace numa: ",
    ] {
        assert!(
            errors.lines().any(|line| line.starts_with(part)),
            "{part:?} is not in\n{errors}"
        );
    }
    assert!(root.join("namespaces/numa/core/pods.yaml").is_file());
    assert!(
        root.join("cluster-scoped-resources/core/nodes/worker-0.yaml")
            .is_file()
    );
    assert!(
        ended
            .stderr
            .contains("parts could not be had, see errors.txt"),
        "{ended:?}"
    );

    // without a server nothing can be collected
    let kubeconfig = server.files.path().join("nowhere");
    let nowhere = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "k", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
    });
    fs_err::write(&kubeconfig, nowhere.to_string()).unwrap();
    let kubeconfig = kubeconfig.to_str().unwrap();
    let arguments = ["--kubeconfig", kubeconfig, "--timeout", "2"];
    let (ended, root) = server.gather("nothing", &arguments).await;
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(
        ended.stderr.contains("nothing could be collected"),
        "{ended:?}"
    );
    let errors = fs_err::read_to_string(root.join("errors.txt")).unwrap();
    assert!(errors.contains("platform: "), "{errors}");
}
