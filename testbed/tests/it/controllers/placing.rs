//! The default scheduler.

use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use rstest::rstest;
use serde_json::{Value, json};

use super::harness::{Cluster, make, until};

fn pod(name: &str, spec: Value) -> Value {
    let mut spec = spec;
    if spec["containers"].is_null() {
        spec["containers"] = json!([{"name": "main", "image": "pause"}]);
    }
    json!({"metadata": {"name": name, "labels": {"app": name}}, "spec": spec})
}

fn asking(cpu: &str) -> Value {
    json!([{"name": "main", "image": "pause", "resources": {"requests": {"cpu": cpu}}}])
}

fn node_of(pod: Option<&Pod>) -> Option<String> {
    pod?.spec.clone()?.node_name
}

fn refusal(pod: Option<&Pod>) -> Option<String> {
    let conditions = pod?.status.as_ref()?.conditions.clone()?;
    conditions
        .into_iter()
        .find(|condition| condition.type_ == "PodScheduled" && condition.status == "False")?
        .message
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_gets_a_node_and_an_event_tells_it() {
    let cluster = Cluster::start(&["a"]).await;
    let pods: Api<Pod> = cluster.api();
    make(&pods, pod("one", json!({}))).await;
    until(&pods, "one", |pod| node_of(pod).is_some()).await;
    let api: Api<k8s_openapi::api::core::v1::Event> = cluster.api();
    let events = super::harness::until_all(&api, "", |events| {
        events
            .iter()
            .any(|event| event.reason.as_deref() == Some("Scheduled"))
    })
    .await;
    let event = events
        .iter()
        .find(|event| event.reason.as_deref() == Some("Scheduled"))
        .unwrap();
    assert_eq!(
        event.message.as_deref(),
        Some("Successfully assigned default/one to a")
    );
    assert_eq!(
        event.reporting_component.as_deref(),
        Some("default-scheduler")
    );
    assert_eq!(event.action.as_deref(), Some("Binding"));
}

#[rstest]
#[case::room(
    json!({"containers": asking("5")}),
    "0/2 nodes are available: 2 Insufficient cpu. preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling.",
)]
#[case::selector(
    json!({"nodeSelector": {"disk": "ssd"}}),
    "0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector. preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling.",
)]
#[case::one_node(
    json!({"containers": asking("5"), "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]}]}}}}),
    "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) didn't satisfy plugin(s) [NodeAffinity]. preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling.",
)]
#[case::neighbours(
    json!({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"labelSelector": {"matchLabels": {"app": "nobody"}}, "topologyKey": "kubernetes.io/hostname"}]}}}),
    "0/2 nodes are available: 2 node(s) didn't match pod affinity rules. preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling.",
)]
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_pod_says_why(#[case] spec: Value, #[case] expected: &str) {
    let cluster = Cluster::start(&["a", "b"]).await;
    let pods: Api<Pod> = cluster.api();
    make(&pods, pod("one", spec)).await;
    let refused = until(&pods, "one", |pod| refusal(pod).is_some()).await;
    assert_eq!(refusal(refused.as_ref()).as_deref(), Some(expected));
    let messages = cluster.event_messages("one", "FailedScheduling").await;
    assert_eq!(messages, [expected]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_pod_is_tried_again_when_something_changes() {
    let cluster = Cluster::start(&[]).await;
    let pods: Api<Pod> = cluster.api();
    make(&pods, pod("one", json!({"containers": asking("3")}))).await;
    until(&pods, "one", |pod| {
        refusal(pod).as_deref() == Some("no nodes available to schedule pods")
    })
    .await;
    cluster.add_node("a").await;
    until(&pods, "one", |pod| node_of(pod).is_some()).await;
    make(&pods, pod("two", json!({"containers": asking("3")}))).await;
    let refused = until(&pods, "two", |pod| refusal(pod).is_some()).await;
    assert_eq!(
        refusal(refused.as_ref()).as_deref(),
        Some(
            "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."
        )
    );
    pods.delete("one", &DeleteParams::default()).await.unwrap();
    until(&pods, "two", |pod| node_of(pod).is_some()).await;
    // A cordoned node takes no pods until it is uncordoned.
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    let cordon = |value: bool| Patch::Merge(json!({"spec": {"unschedulable": value}}));
    nodes
        .patch("a", &PatchParams::default(), &cordon(true))
        .await
        .unwrap();
    pods.delete("two", &DeleteParams::default()).await.unwrap();
    make(&pods, pod("three", json!({}))).await;
    until(&pods, "three", |pod| refusal(pod).is_some()).await;
    nodes
        .patch("a", &PatchParams::default(), &cordon(false))
        .await
        .unwrap();
    until(&pods, "three", |pod| node_of(pod).is_some()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_keep_their_distance_and_the_emptier_node_is_taken() {
    let cluster = Cluster::start(&["a", "b"]).await;
    let pods: Api<Pod> = cluster.api();
    let apart = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"labelSelector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]}, "topologyKey": "kubernetes.io/hostname"}]}});
    let mut on = Vec::new();
    for name in ["one", "two"] {
        make(&pods, pod(name, json!({"affinity": apart}))).await;
        on.push(node_of(
            until(&pods, name, |pod| node_of(pod).is_some())
                .await
                .as_ref(),
        ));
    }
    assert_ne!(on[0], on[1]);
    // The anti-affinity of the existing pods rejects the new one, although it has none itself.
    make(&pods, pod("three", json!({}))).await;
    let refused = until(&pods, "three", |pod| refusal(pod).is_some()).await;
    assert!(refusal(refused.as_ref()).unwrap().starts_with(
        "0/2 nodes are available: 2 node(s) didn't satisfy existing pods anti-affinity rules."
    ));
    for name in ["one", "two", "three"] {
        pods.delete(name, &DeleteParams::default()).await.unwrap();
        until(&pods, name, |pod| pod.is_none()).await;
    }
    make(&pods, pod("large", json!({"containers": asking("2")}))).await;
    let large = node_of(
        until(&pods, "large", |pod| node_of(pod).is_some())
            .await
            .as_ref(),
    );
    make(&pods, pod("small", json!({"containers": asking("1")}))).await;
    let small = node_of(
        until(&pods, "small", |pod| node_of(pod).is_some())
            .await
            .as_ref(),
    );
    assert_ne!(large, small);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_important_pod_takes_the_place_of_the_least_important_one() {
    let cluster = Cluster::start(&["a"]).await;
    let classes: Api<PriorityClass> = Api::all(cluster.client.clone());
    make(
        &classes,
        json!({"metadata": {"name": "high"}, "value": 1000}),
    )
    .await;
    make(
        &classes,
        json!({"metadata": {"name": "middle"}, "value": 10}),
    )
    .await;
    let pods: Api<Pod> = cluster.api();
    make(
        &pods,
        pod(
            "middle",
            json!({"containers": asking("2"), "priorityClassName": "middle"}),
        ),
    )
    .await;
    make(&pods, pod("low", json!({"containers": asking("2")}))).await;
    for name in ["middle", "low"] {
        until(&pods, name, |pod| node_of(pod).is_some()).await;
    }
    make(
        &pods,
        pod(
            "high",
            json!({"containers": asking("2"), "priorityClassName": "high"}),
        ),
    )
    .await;
    until(&pods, "high", |pod| node_of(pod).is_some()).await;
    assert!(pods.get_opt("low").await.unwrap().is_none());
    let middle = pods.get("middle").await.unwrap();
    assert!(
        middle.metadata.deletion_timestamp.is_none(),
        "{}",
        middle.name_any()
    );
    let messages = cluster.event_messages("low", "Preempted").await;
    assert!(
        messages.len() == 1 && messages[0].ends_with("on node a"),
        "{messages:?}"
    );
}
