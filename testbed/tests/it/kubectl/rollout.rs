//! `kubectl rollout` of Deployments and DaemonSets.

use super::harness::{TestCluster, daemon_set, deployment, image};

const IMAGE_OF_POD: &str = "jsonpath={.spec.template.spec.containers[0].image}";

#[tokio::test(flavor = "multi_thread")]
#[ignore = "real: kubectl"]
async fn rollouts_of_a_deployment_are_followed_listed_undone_and_repeated() {
    let cluster = TestCluster::up(2).await;
    cluster.apply(&deployment("web", 2)).await;
    let status = ["rollout", "status", "deployment/web", "--timeout=50s"];
    let result = cluster.ok(&status).await;
    assert!(
        result.ends_with("deployment \"web\" successfully rolled out\n"),
        "{result}"
    );
    let second = format!("main={}", image("v2"));
    cluster
        .ok(&["set", "image", "deployment/web", &second])
        .await;
    cluster
        .ok(&[
            "annotate",
            "deployment/web",
            "kubernetes.io/change-cause=the second",
        ])
        .await;
    let result = cluster.ok(&status).await;
    assert!(
        result.ends_with("deployment \"web\" successfully rolled out\n"),
        "{result}"
    );
    let known = |out: &str| out.contains("the second");
    let history = cluster
        .eventually(&["rollout", "history", "deployment/web"], known)
        .await;
    assert_eq!(
        history,
        "deployment.apps/web \nREVISION  CHANGE-CAUSE\n1         <none>\n2         the second\n\n"
    );
    let one = cluster
        .ok(&["rollout", "history", "deployment/web", "--revision=1"])
        .await;
    assert!(
        one.starts_with("deployment.apps/web with revision #1\nPod Template:\n"),
        "{one}"
    );
    assert!(one.contains(&image("v1")), "{one}");

    let undone = cluster.ok(&["rollout", "undo", "deployment/web"]).await;
    assert_eq!(undone, "deployment.apps/web rolled back\n");
    cluster.ok(&status).await;
    let now = cluster
        .ok(&["get", "deployment/web", "-o", IMAGE_OF_POD])
        .await;
    assert_eq!(now, image("v1"));
    let third = |out: &str| out.contains("\n3 ") && !out.contains("\n1 ");
    cluster
        .eventually(&["rollout", "history", "deployment/web"], third)
        .await;
    let refused = cluster
        .refused(&["rollout", "undo", "deployment/web", "--to-revision=9"])
        .await;
    assert_eq!(
        refused,
        "error: unable to find specified revision 9 in history\n"
    );

    let names = ["get", "pods", "-l", "app=web", "-o", "name"];
    let before = cluster
        .eventually(&names, |out| out.lines().count() == 2)
        .await;
    cluster.ok(&["rollout", "pause", "deployment/web"]).await;
    let refused = cluster
        .refused(&["rollout", "restart", "deployment/web"])
        .await;
    assert!(
        refused.contains("can't restart paused deployment"),
        "{refused}"
    );
    cluster.ok(&["rollout", "resume", "deployment/web"]).await;
    let restarted = cluster.ok(&["rollout", "restart", "deployment/web"]).await;
    assert_eq!(restarted, "deployment.apps/web restarted\n");
    cluster.ok(&status).await;
    cluster
        .eventually(&names, |out| {
            out.lines().count() == 2 && !out.lines().any(|pod| before.contains(pod))
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "real: kubectl"]
async fn rollouts_of_a_daemon_set_are_followed_listed_undone_and_repeated() {
    let cluster = TestCluster::up(2).await;
    cluster.apply(&daemon_set("agent")).await;
    let status = ["rollout", "status", "ds/agent", "--timeout=50s"];
    let result = cluster.ok(&status).await;
    assert!(
        result.ends_with("daemon set \"agent\" successfully rolled out\n"),
        "{result}"
    );
    let second = format!("main={}", image("v2"));
    cluster.ok(&["set", "image", "ds/agent", &second]).await;
    let result = cluster.ok(&status).await;
    assert!(
        result.ends_with("daemon set \"agent\" successfully rolled out\n"),
        "{result}"
    );
    let history = cluster.ok(&["rollout", "history", "ds/agent"]).await;
    assert_eq!(
        history,
        "daemonset.apps/agent \nREVISION  CHANGE-CAUSE\n1         <none>\n2         <none>\n\n"
    );
    let one = cluster
        .ok(&["rollout", "history", "ds/agent", "--revision=1"])
        .await;
    assert!(one.contains(&image("v1")), "{one}");
    let undone = cluster
        .ok(&["rollout", "undo", "ds/agent", "--to-revision=1"])
        .await;
    assert_eq!(undone, "daemonset.apps/agent rolled back\n");
    cluster.ok(&status).await;
    let now = cluster.ok(&["get", "ds/agent", "-o", IMAGE_OF_POD]).await;
    assert_eq!(now, image("v1"));
    let third = |out: &str| out.contains("\n3 ") && !out.contains("\n1 ");
    cluster
        .eventually(&["rollout", "history", "ds/agent"], third)
        .await;
    let restarted = cluster.ok(&["rollout", "restart", "ds/agent"]).await;
    assert_eq!(restarted, "daemonset.apps/agent restarted\n");
    cluster.ok(&status).await;
    let updated = cluster
        .ok(&[
            "get",
            "ds/agent",
            "-o",
            "jsonpath={.status.updatedNumberScheduled}",
        ])
        .await;
    assert_eq!(updated, "2");
}
