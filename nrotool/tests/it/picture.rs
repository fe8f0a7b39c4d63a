//! `nrt` and the other readers on recorded objects.

use serde_json::{Value, json};

use crate::server::{Server, node, pod, topology};

#[tokio::test]
async fn the_picture_of_recorded_objects() {
    let server = Server::start().await;
    let ended = server.tool(&["nrt"]).await;
    assert_eq!(ended.code, Some(1));
    assert!(
        ended
            .stderr
            .contains("the cluster has no NodeResourceTopology"),
        "{ended:?}"
    );

    let server = Server::start().await.with_definitions().await;
    server
        .record(&[
            node("worker-0", &json!({})),
            node("worker-1", &json!({})),
            topology("worker-0", &[4, 8], &[("left", 0)]),
            pod("left", "4", Some("worker-0")),
            pod("waits", "6", None),
            pod("too-large", "9", None),
        ])
        .await;
    let ended = server.tool(&["nrt", "--width", "80"]).await;
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    for line in [
        "worker-0 policy single-numa-node, scope container",
        "  default/left/main  cpu=4 memory=1Gi",
        "Without NodeResourceTopology: worker-1",
        "default/waits Guaranteed, topo-aware-scheduler cpu=6 memory=1Gi",
        "  worker-0: fits in zone 1",
        "  worker-0: no: zone 0 for container main: cpu 4 left, wanted 9; zone 1 for",
    ] {
        assert!(
            ended.stdout.contains(line),
            "{line:?} is not in\n{}",
            ended.stdout
        );
    }
    assert!(!ended.stdout.contains('\x1b'), "colours without a terminal");

    let ended = server
        .tool(&["nrt", "-o", "json", "--node", "worker-0"])
        .await;
    let picture: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(picture["nodes"][0]["fingerprint"], "matches");
    assert_eq!(picture["nodes"][0]["zones"][0]["holders"][0]["pod"], "left");
    assert_eq!(picture["withoutTopology"], json!([]));
    assert_eq!(picture["pending"][1]["nodes"][0]["zones"], json!([1]));

    let ended = server.tool(&["nrt", "--node", "worker-9"]).await;
    assert_eq!(ended.code, Some(1));
    assert!(ended.stderr.contains("named worker-9"), "{ended:?}");
}

#[tokio::test]
async fn platform_and_settings_are_read() {
    let server = Server::start().await;
    let ended = server.tool(&["lsplatform"]).await;
    assert_eq!(
        (ended.code, ended.stdout.as_str()),
        (Some(0), "Kubernetes\n")
    );
    let is = async |name| {
        server
            .tool(&["lsplatform", "--is-platform", name])
            .await
            .code
    };
    assert_eq!(
        (is("kubernetes").await, is("HyperShift").await),
        (Some(0), Some(1))
    );

    let ended = server.tool(&["catkubeletconfmap", "--wait", "10ms"]).await;
    assert_eq!(ended.code, Some(1));
    let missing = "there is no ConfigMap numaresources/numaresourcesoperator-worker";
    assert!(ended.stderr.contains(missing), "{ended:?}");
    let config =
        "kubelet:\n  topologyManagerPolicy: single-numa-node\n  topologyManagerScope: pod\n";
    server
        .record(&[
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "numaresources"}}),
            json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": "numaresourcesoperator-worker", "namespace": "numaresources"},
                "data": {"config.yaml": config},
            }),
        ])
        .await;
    let ended = server
        .tool(&["catkubeletconfmap", "--prefix", "E2E_"])
        .await;
    assert_eq!(
        ended.stdout,
        "E2E_TOPOLOGY_MANAGER_POLICY=single-numa-node\nE2E_TOPOLOGY_MANAGER_SCOPE=pod\n"
    );

    let ended = server.tool(&["schedlogs"]).await;
    assert_eq!(ended.code, Some(1));
    assert!(
        ended
            .stderr
            .contains("no scheduler runs in namespace numaresources"),
        "{ended:?}"
    );
    let ended = server.tool(&["inspectfeatures"]).await;
    assert!(
        ended
            .stderr
            .contains("app=numaresources-operator is running"),
        "{ended:?}"
    );
}
