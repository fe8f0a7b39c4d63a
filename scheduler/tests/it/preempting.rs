//! Preemption, tested through the API server.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::ResourceExt as _;
use kube::api::{Api, PostParams};
use serde_json::json;

use crate::cluster::{Cluster, PROFILE};

async fn with_classes(cluster: &Cluster) {
    let classes: Api<PriorityClass> = Api::all(cluster.client.clone());
    for (name, value) in [("low", 1), ("middle", 5), ("high", 1000), ("patient", 1000)] {
        let policy = match name {
            "patient" => "Never",
            _ => "PreemptLowerPriority",
        };
        let class = json!({"metadata": {"name": name}, "value": value, "preemptionPolicy": policy});
        let class = serde_json::from_value(class).unwrap();
        classes
            .create(&PostParams::default(), &class)
            .await
            .unwrap();
    }
}

/// Creates a pod of a class that takes this many seconds to terminate, bound if a node is named.
async fn pod(
    cluster: &Cluster,
    name: &str,
    class: &str,
    node: Option<&str>,
    cpu: &str,
    grace: i64,
) {
    cluster
        .pod_with(name, cpu, |pod| {
            let spec = &mut pod["spec"];
            spec["priorityClassName"] = json!(class);
            spec["nodeName"] = json!(node);
            spec["terminationGracePeriodSeconds"] = json!(grace);
        })
        .await;
}

/// Waits until a pod is gone or being deleted, and checks the condition that gives the reason.
async fn preempted(cluster: &Cluster, name: &str) {
    cluster
        .eventually(async || {
            let Some(pod) = cluster.pods().get_opt(name).await.unwrap() else {
                return Ok(());
            };
            if pod.metadata.deletion_timestamp.is_none() {
                return Err(format!("{name} stays: {:?}", pod.status));
            }
            let status = pod.status.unwrap_or_default();
            let condition = status
                .conditions
                .into_iter()
                .flatten()
                .find(|condition| condition.type_ == "DisruptionTarget")
                .ok_or("no condition")?;
            let message = format!("{PROFILE}: preempting to accommodate a higher priority pod");
            assert_eq!(
                (condition.reason.as_deref(), condition.message),
                (Some("PreemptionByScheduler"), Some(message))
            );
            Ok(())
        })
        .await;
}

async fn nominated(cluster: &Cluster, name: &str) -> String {
    let node = async || {
        let pod: Pod = cluster.pods().get(name).await.unwrap();
        let status = pod.status.unwrap_or_default();
        status
            .nominated_node_name
            .ok_or_else(|| format!("{:?}", status.conditions))
    };
    cluster.eventually(node).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_of_lower_priority_gives_way_and_nobody_else_takes_its_place() {
    let cluster = Cluster::start().await;
    with_classes(&cluster).await;
    cluster.node("bare", "4", "8Gi").await;
    pod(&cluster, "slow", "low", Some("bare"), "3", 3600).await;
    let _scheduler = cluster.scheduler("first", |_| {});
    pod(&cluster, "urgent", "high", None, "3", 0).await;
    preempted(&cluster, "slow").await;
    assert_eq!(nominated(&cluster, "urgent").await, "bare");
    let urgent = cluster.pods().get("urgent").await.unwrap();
    let event = cluster
        .eventually(async || {
            let mut events = cluster.events("slow", "Preempted").await;
            events.pop().ok_or_else(|| "no event".to_owned())
        })
        .await;
    let uid = urgent.uid().unwrap();
    assert_eq!(
        event.note,
        Some(format!("Preempted by pod {uid} on node bare"))
    );
    assert_eq!(event.reporting_controller.as_deref(), Some(PROFILE));
    assert_eq!(event.related.and_then(|related| related.uid), Some(uid));
    cluster
        .rejected(
            "urgent",
            "0/1 nodes are available: 1 Insufficient cpu. preemption: not eligible due to a terminating pod on the nominated node.",
            1,
        )
        .await;
    // a pod of equal priority gets neither the CPU that is left nor the room that preemption makes
    pod(&cluster, "equal", "high", None, "2", 0).await;
    cluster
        .rejected("equal", "0/1 nodes are available: 1 Insufficient cpu.", 1)
        .await;
    cluster.delete("slow").await;
    assert_eq!(cluster.placed("urgent").await, "bare");
    cluster
        .rejected(
            "equal",
            "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod.",
            1,
        )
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disruption_budget_is_respected_where_another_pod_can_go() {
    let cluster = Cluster::start().await;
    with_classes(&cluster).await;
    for (node, guest, class) in [("a", "kept", "low"), ("b", "free", "middle")] {
        cluster.node(node, "4", "8Gi").await;
        pod(&cluster, guest, class, Some(node), "3", 0).await;
    }
    // without a controller the budget's status allows no disruption
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(cluster.client.clone(), "default");
    let budget = json!({
        "metadata": {"name": "budget"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "kept"}}},
    });
    let budget = serde_json::from_value(budget).unwrap();
    budgets
        .create(&PostParams::default(), &budget)
        .await
        .unwrap();
    let _scheduler = cluster.scheduler("first", |_| {});
    pod(&cluster, "urgent", "high", None, "3", 0).await;
    assert_eq!(cluster.placed("urgent").await, "b");
    assert!(cluster.pods().get_opt("free").await.unwrap().is_none());
    // if nothing else helps, the budget does not protect the pod
    pod(&cluster, "next", "high", None, "3", 0).await;
    assert_eq!(cluster.placed("next").await, "a");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_pod_whose_zone_suffices_gives_way_and_the_zone_must_be_seen_free() {
    let cluster = Cluster::start().await;
    with_classes(&cluster).await;
    cluster.node("worker-0", "16", "32Gi").await;
    for (name, cpu) in [("small", "4"), ("large", "6")] {
        pod(&cluster, name, "low", Some("worker-0"), cpu, 0).await;
    }
    // before the scheduler starts, because pod and topology come on separate watches and the pod might arrive first
    let both = BTreeMap::from([("small", 0), ("large", 1)]);
    let pods = ["small", "large"];
    cluster
        .topology_with("worker-0", &[(4, 15), (2, 15)], &pods, &both)
        .await;
    let _scheduler = cluster.scheduler("first", |config| {
        config["profiles"][0]["pluginConfig"][0]["args"]["preemptionMode"] = json!("Enabled");
    });
    pod(&cluster, "urgent", "high", None, "7", 0).await;
    preempted(&cluster, "small").await;
    assert_eq!(nominated(&cluster, "urgent").await, "worker-0");
    cluster
        .rejected(
            "urgent",
            "0/1 nodes are available: 1 cannot align container. preemption: not eligible due to a terminating pod on the nominated node.",
            2,
        )
        .await;
    assert!(cluster.pods().get_opt("large").await.unwrap().is_some());
    let left = BTreeMap::from([("large", 1)]);
    cluster
        .topology_with("worker-0", &[(8, 16), (2, 15)], &["large"], &left)
        .await;
    assert_eq!(cluster.placed("urgent").await, "worker-0");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_placement_or_permission_nobody_gives_way() {
    let cluster = Cluster::start().await;
    with_classes(&cluster).await;
    cluster.node("worker-0", "16", "32Gi").await;
    for name in ["first", "second"] {
        pod(&cluster, name, "low", Some("worker-0"), "6", 0).await;
    }
    let placed = BTreeMap::from([("first", 0), ("second", 1)]);
    cluster
        .topology_with(
            "worker-0",
            &[(2, 15), (2, 15)],
            &["first", "second"],
            &placed,
        )
        .await;
    let _scheduler = cluster.scheduler("first", |_| {});
    pod(&cluster, "urgent", "high", None, "4", 0).await;
    cluster
        .rejected(
            "urgent",
            "0/1 nodes are available: 1 cannot align container. preemption: 0/1 nodes are available: 1 cannot align container.",
            1,
        )
        .await;
    pod(&cluster, "patient", "patient", None, "10", 0).await;
    cluster
        .rejected(
            "patient",
            "0/1 nodes are available: 1 Insufficient cpu. preemption: not eligible due to preemptionPolicy=Never.",
            1,
        )
        .await;
}
