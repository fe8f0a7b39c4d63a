//! `kubectl cordon` and `kubectl drain`.

use serde_json::json;

use super::harness::{TestCluster, daemon_set, deployment, sleeper};

#[tokio::test(flavor = "multi_thread")]
#[ignore = "real: kubectl"]
async fn cordoned_node_takes_no_pods_until_it_is_uncordoned() {
    let cluster = TestCluster::up(1).await;
    assert_eq!(
        cluster.ok(&["cordon", "worker-0"]).await,
        "node/worker-0 cordoned\n"
    );
    assert_eq!(
        cluster.ok(&["cordon", "worker-0"]).await,
        "node/worker-0 already cordoned\n"
    );
    let nodes = cluster.ok(&["get", "nodes", "--no-headers"]).await;
    assert!(nodes.contains("Ready,SchedulingDisabled"), "{nodes}");
    cluster.apply(&deployment("web", 1)).await;
    let unschedulable = ["get", "events", "--field-selector=reason=FailedScheduling"];
    let message = cluster
        .eventually(&unschedulable, |out| out.contains("pod/web-"))
        .await;
    assert!(
        message.contains("1 node(s) were unschedulable"),
        "{message}"
    );
    assert_eq!(
        cluster.ok(&["uncordon", "worker-0"]).await,
        "node/worker-0 uncordoned\n"
    );
    cluster
        .ok(&["rollout", "status", "deployment/web", "--timeout=30s"])
        .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "real: kubectl"]
async fn drain_moves_pods_as_far_as_their_budget_lets_it_and_leaves_daemons() {
    let cluster = TestCluster::up(2).await;
    cluster.apply(&daemon_set("agent")).await;
    cluster
        .ok(&["rollout", "status", "ds/agent", "--timeout=30s"])
        .await;
    // All pods of the Deployment run on the node to be drained.
    cluster.ok(&["cordon", "worker-1"]).await;
    cluster.apply(&deployment("web", 2)).await;
    cluster
        .ok(&["rollout", "status", "deployment/web", "--timeout=30s"])
        .await;
    cluster.ok(&["uncordon", "worker-1"]).await;
    cluster
        .ok(&[
            "create",
            "pdb",
            "web",
            "--selector=app=web",
            "--min-available=2",
        ])
        .await;
    let covered = [
        "get",
        "pdb",
        "web",
        "-o",
        "jsonpath={.status.currentHealthy}",
    ];
    cluster.eventually(&covered, |out| out == "2").await;

    let refused = cluster.refused(&["drain", "worker-0"]).await;
    let daemons =
        "cannot delete DaemonSet-managed Pods (use --ignore-daemonsets to ignore): default/agent-";
    assert!(refused.contains(daemons), "{refused}");
    let drain = ["drain", "worker-0", "--ignore-daemonsets"];
    let refused = cluster
        .refused(&[&drain[..], &["--timeout=2s"]].concat())
        .await;
    assert!(
        refused.contains("Cannot evict pod as it would violate the pod's disruption budget."),
        "{refused}"
    );
    assert!(
        refused.contains("ignoring DaemonSet-managed Pods: default/agent-"),
        "{refused}"
    );
    let on = |node: &str| format!("--field-selector=spec.nodeName={node}");
    let there = cluster
        .ok(&[
            "get",
            "pods",
            "-l",
            "app=web",
            &on("worker-0"),
            "-o",
            "name",
        ])
        .await;
    assert_eq!(there.lines().count(), 2, "{there}");

    let patch = r#"{"spec":{"minAvailable":1}}"#;
    cluster
        .ok(&["patch", "pdb", "web", "--type=merge", "-p", patch])
        .await;
    let drained = cluster.ok(&[&drain[..], &["--timeout=50s"]].concat()).await;
    assert!(
        drained.starts_with("node/worker-0 already cordoned\n"),
        "{drained}"
    );
    assert!(drained.ends_with("node/worker-0 drained\n"), "{drained}");
    assert_eq!(drained.matches(" evicted\n").count(), 2, "{drained}");
    cluster
        .ok(&["rollout", "status", "deployment/web", "--timeout=30s"])
        .await;
    let moved = cluster
        .ok(&[
            "get",
            "pods",
            "-l",
            "app=web",
            &on("worker-1"),
            "-o",
            "name",
        ])
        .await;
    assert_eq!(moved.lines().count(), 2, "{moved}");
    let stays = cluster
        .ok(&["get", "pods", &on("worker-0"), "-o", "name"])
        .await;
    assert!(
        stays.lines().count() == 1 && stays.starts_with("pod/agent-"),
        "{stays}"
    );
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "real: kubectl"]
async fn drain_takes_pods_that_nobody_brings_back_only_by_force() {
    let cluster = TestCluster::up(1).await;
    let mut spec = sleeper("v1");
    spec["volumes"] = json!([{"name": "scratch", "emptyDir": {}}]);
    let bare =
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "bare"}, "spec": spec});
    cluster.apply(&bare).await;
    cluster
        .ok(&["wait", "--for=condition=Ready", "pod/bare", "--timeout=30s"])
        .await;
    let refused = cluster.refused(&["drain", "worker-0"]).await;
    let local = "cannot delete Pods with local storage (use --delete-emptydir-data to override): default/bare";
    assert!(refused.contains(local), "{refused}");
    let drain = [
        "drain",
        "worker-0",
        "--delete-emptydir-data",
        "--timeout=50s",
    ];
    let refused = cluster.refused(&drain).await;
    let alone = "cannot delete cannot delete Pods that declare no controller (use --force to override): default/bare";
    assert!(refused.contains(alone), "{refused}");
    cluster.ok(&[&drain[..], &["--force"]].concat()).await;
    let gone = cluster.refused(&["get", "pod", "bare"]).await;
    assert_eq!(
        gone,
        "Error from server (NotFound): pods \"bare\" not found\n"
    );
}
