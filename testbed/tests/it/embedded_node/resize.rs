//! Resources of pods that change while they run.

use cluster_spec::kubelet::KubeletSettings;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

use super::harness::{TestNode, condition, restarts};

fn pod(name: &str, resources: &Value, policy: &Value) -> Value {
    json!({"metadata": {"name": name}, "spec": {"terminationGracePeriodSeconds": 2, "containers": [
        {"name": "c", "command": ["/bin/sleep", "1000"], "resources": resources, "resizePolicy": policy},
    ]}})
}

/// Requests and limits of a Guaranteed container.
fn equal(cpu: &str, memory: &str) -> Value {
    let amounts = json!({"cpu": cpu, "memory": memory});
    json!({"requests": amounts, "limits": amounts})
}

async fn resize(setup: &TestNode, name: &str, resources: &Value) -> kube::Result<Pod> {
    let change = json!({"spec": {"containers": [{"name": "c", "resources": resources}]}});
    let (parameters, patch) = (PatchParams::default(), Patch::Strategic(change));
    let pods = setup.pods();
    pods.patch_subresource("resize", name, &parameters, &patch)
        .await
}

/// Returns what the status says of the only container.
fn container(pod: &Pod) -> Value {
    let status = serde_json::to_value(&pod.status).unwrap();
    status["containerStatuses"][0].clone()
}

/// Returns reason and message of the condition that the node does not allocate the present resources.
fn pending(pod: &Pod) -> Option<(String, String)> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let found = conditions.iter().find(|condition| {
        condition.type_ == "PodResizePending"
            && condition.observed_generation == pod.metadata.generation
    })?;
    Some((found.reason.clone()?, found.message.clone()?))
}

async fn ready(setup: &TestNode, name: &str) -> Pod {
    let is_ready = |pod: &Pod| condition(pod, "Ready") == "True";
    setup.until(name, "is ready", is_ready).await
}

/// Waits until a container has resources, and nothing is left to do.
async fn has(setup: &TestNode, name: &str, resources: &Value) -> Pod {
    let done = |pod: &Pod| {
        container(pod)["resources"] == *resources
            && container(pod)["allocatedResources"] == resources["requests"]
            && condition(pod, "PodResizeInProgress").is_empty()
            && pod.status.as_ref().unwrap().observed_generation == pod.metadata.generation
    };
    setup.until(name, "has its resources", done).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_gets_other_resources_while_it_runs() {
    let setup = TestNode::up_with(KubeletSettings::unmanaged()).await;
    let policy = json!([{"resourceName": "cpu", "restartPolicy": "NotRequired"},
        {"resourceName": "memory", "restartPolicy": "RestartContainer"}]);
    setup.create(pod("p", &equal("1", "64Mi"), &policy)).await;
    let before = ready(&setup, "p").await;
    resize(&setup, "p", &equal("2", "64Mi")).await.unwrap();
    let after = has(&setup, "p", &equal("2", "64Mi")).await;
    assert_eq!(
        container(&before)["containerID"],
        container(&after)["containerID"]
    );
    let summary = r#"{"containers":[{"name":"c","resources":{"limits":{"cpu":"2","memory":"64Mi"},"requests":{"cpu":"2","memory":"64Mi"}}}],"generation":2}"#;
    for (reason, what) in [
        ("ResizeStarted", "started"),
        ("ResizeCompleted", "completed"),
    ] {
        setup
            .event(reason, &format!("Pod resize {what}: {summary}"))
            .await;
    }

    resize(&setup, "p", &equal("2", "32Mi")).await.unwrap();
    let after = has(&setup, "p", &equal("2", "32Mi")).await;
    assert_eq!(restarts(&after), 1);
    setup
        .event("Killing", "Container c resize requires restart")
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resize_waits_for_room_or_is_never_possible() {
    let setup = TestNode::up_with(KubeletSettings::unmanaged()).await;
    for (name, cpus) in [("p", "1"), ("other", "40")] {
        setup
            .create(pod(name, &equal(cpus, "64Mi"), &json!([])))
            .await;
        ready(&setup, name).await;
    }
    resize(&setup, "p", &equal("1000", "64Mi")).await.unwrap();
    let is_pending = |expected: &'static str| {
        move |pod: &Pod| pending(pod).is_some_and(|(reason, _)| reason == expected)
    };
    let told = setup.until("p", "is told", is_pending("Infeasible")).await;
    let (_, why) = pending(&told).unwrap();
    let expected = "Node didn't have enough capacity: cpu, requested: 1000000, capacity: ";
    assert!(why.starts_with(expected), "{why}");
    assert_eq!(container(&told)["resources"], equal("1", "64Mi"));

    resize(&setup, "p", &equal("20", "64Mi")).await.unwrap();
    let told = setup.until("p", "waits", is_pending("Deferred")).await;
    let (_, why) = pending(&told).unwrap();
    let expected =
        "Node didn't have enough resource: cpu, requested: 20000, used: 40000, capacity: ";
    assert!(why.starts_with(expected), "{why}");
    let deletion = setup.pods().delete("other", &DeleteParams::default()).await;
    deletion.unwrap();
    let after = has(&setup, "p", &equal("20", "64Mi")).await;
    assert_eq!(condition(&after, "PodResizePending"), "");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_with_exclusive_cpus_keeps_them() {
    let setup = TestNode::up().await;
    setup
        .create(pod("p", &equal("2", "64Mi"), &json!([])))
        .await;
    ready(&setup, "p").await;
    let cpus = setup.node.containers()[0].cpus.clone();
    resize(&setup, "p", &equal("4", "64Mi")).await.unwrap();
    let told = setup
        .until("p", "is told", |pod| pending(pod).is_some())
        .await;
    let why = "Resize is infeasible for Guaranteed Pods alongside CPU Manager policy \"static\"";
    assert_eq!(
        pending(&told),
        Some(("Infeasible".to_owned(), why.to_owned()))
    );
    assert_eq!(container(&told)["resources"], equal("2", "64Mi"));
    resize(&setup, "p", &equal("2", "64Mi")).await.unwrap();
    let is_told = |pod: &Pod| condition(pod, "PodResizePending").is_empty();
    setup.until("p", "asks for what it has", is_told).await;
    assert_eq!(setup.node.containers()[0].cpus, cpus);
    assert_eq!(setup.node.containers()[0].attempt, 0);
}
