//! Placing pods, tested through the API server.

use serde_json::json;

use crate::cluster::{Cluster, PROFILE};

const INVALID: &str = "0/1 nodes are available: 1 invalid node topology data.";
const NO_ZONE: &str = "0/2 nodes are available: 2 cannot align container.";

#[tokio::test(flavor = "multi_thread")]
async fn pods_go_where_a_zone_fits_and_wait_where_none_does() {
    let cluster = Cluster::start().await;
    for node in ["worker-0", "worker-1"] {
        cluster.node(node, "16", "32Gi").await;
    }
    cluster.topology("worker-0", &[(4, 8), (4, 8)], &[]).await;
    cluster.topology("worker-1", &[(2, 8), (6, 8)], &[]).await;
    let mut scheduler = cluster.scheduler("first", |_| {});

    cluster.pod("fits-one", PROFILE, None, "5").await;
    assert_eq!(cluster.placed("fits-one").await, "worker-1");
    let scheduled = cluster.eventually(async || {
        cluster
            .events("fits-one", "Scheduled")
            .await
            .pop()
            .ok_or_else(|| "no event".to_owned())
    });
    let scheduled = scheduled.await;
    assert_eq!(
        scheduled.note.as_deref(),
        Some("Successfully assigned default/fits-one to worker-1")
    );
    assert_eq!(scheduled.reporting_controller.as_deref(), Some(PROFILE));
    assert_eq!(scheduled.action.as_deref(), Some("Binding"));

    // A pod of the same size: the zone is charged until the NRT shows the first pod.
    cluster.pod("waits", PROFILE, None, "5").await;
    cluster.rejected("waits", NO_ZONE, 2).await;
    let notes = cluster.events("waits", "FailedScheduling").await;
    let note = notes[0].note.as_deref().unwrap();
    assert!(
        note.contains(" Nodes: worker-0: cannot align container main: cpu wanted 5000m, zone 0 has 4000m, zone 1 has 4000m; worker-1: "),
        "{note}"
    );
    // The NRT shows the first pod, but there still is no room.
    cluster
        .topology("worker-1", &[(2, 8), (1, 7)], &["fits-one"])
        .await;
    cluster.rejected("waits", NO_ZONE, 3).await;
    // An NRT with a free zone is enough to wake the pod.
    cluster.topology("worker-0", &[(8, 8), (4, 8)], &[]).await;
    assert_eq!(cluster.placed("waits").await, "worker-0");

    // Pods of other schedulers are left alone.
    cluster.pod("other", "default-scheduler", None, "1").await;
    cluster.pod("last", PROFILE, None, "1").await;
    cluster.placed("last").await;
    assert!(
        cluster
            .pods()
            .get("other")
            .await
            .unwrap()
            .spec
            .unwrap()
            .node_name
            .is_none()
    );
    assert_eq!(scheduler.stop(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_pods_close_a_node_until_accounted_for_also_after_a_restart() {
    let cluster = Cluster::start().await;
    cluster.node("worker-0", "16", "32Gi").await;
    cluster.topology("worker-0", &[(8, 8), (8, 8)], &[]).await;
    cluster
        .pod("foreign", "default-scheduler", Some("worker-0"), "2")
        .await;
    let mut scheduler = cluster.scheduler("first", |_| {});
    cluster.pod("ours", PROFILE, None, "4").await;
    cluster.rejected("ours", INVALID, 2).await;
    assert_eq!(scheduler.stop(), Some(0));

    let _second = cluster.scheduler("second", |_| {});
    cluster.rejected("ours", INVALID, 3).await;
    cluster
        .topology("worker-0", &[(6, 7), (8, 8)], &["foreign"])
        .await;
    assert_eq!(cluster.placed("ours").await, "worker-0");

    // The placed pod is charged to both zones until it is gone.
    cluster.pod("large", PROFILE, None, "5").await;
    cluster
        .rejected(
            "large",
            "0/1 nodes are available: 1 cannot align container.",
            1,
        )
        .await;
    cluster.delete("ours").await;
    assert_eq!(cluster.placed("large").await, "worker-0");
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_without_topology_take_everything_and_new_ones_are_followed() {
    let cluster = Cluster::start().await;
    cluster.node("bare", "4", "8Gi").await;
    let scheduler = cluster.scheduler("first", |_| {});
    cluster.pod("first", PROFILE, None, "3").await;
    assert_eq!(cluster.placed("first").await, "bare");
    cluster.pod("second", PROFILE, None, "3").await;
    cluster
        .rejected("second", "0/1 nodes are available: 1 Insufficient cpu.", 1)
        .await;
    cluster.node("late", "16", "32Gi").await;
    assert_eq!(cluster.placed("second").await, "late");
    cluster
        .topology("late", &[(2, 8), (2, 8)], &["second"])
        .await;
    // pods and topologies come on separate watches, so a pod created now might arrive before the topology
    cluster.has_flushed(&scheduler, "late").await;
    cluster.pod("third", PROFILE, None, "3").await;
    cluster
        .rejected(
            "third",
            "0/2 nodes are available: 1 Insufficient cpu, 1 cannot align container.",
            1,
        )
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_leader_places_and_hands_over_when_it_stops() {
    let cluster = Cluster::start().await;
    cluster.node("worker-0", "16", "32Gi").await;
    let elect =
        |config: &mut serde_json::Value| config["leaderElection"]["leaderElect"] = json!(true);
    let mut first = cluster.scheduler("first", elect);
    cluster.pod("one", PROFILE, None, "1").await;
    cluster.placed("one").await;
    let mut second = cluster.scheduler("second", elect);
    cluster
        .eventually(async || {
            let log = second.log();
            if log.contains("All caches are synced") {
                Ok(())
            } else {
                Err(log)
            }
        })
        .await;
    cluster.pod("two", PROFILE, None, "1").await;
    cluster.placed("two").await;
    assert!(!second.log().contains("Successfully bound"));
    assert_eq!(first.stop(), Some(0));
    cluster.pod("three", PROFILE, None, "1").await;
    cluster.placed("three").await;
    cluster.has_bound(&second).await;
    assert_eq!(second.stop(), Some(0));
}
