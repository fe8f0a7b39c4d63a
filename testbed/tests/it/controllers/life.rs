//! Nodes that fall silent or are deleted, jobs, and endpoints.

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Endpoints, Node, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use serde_json::json;
use sim::controllers::Options;

use super::harness::{Cluster, deployment, make, until, until_all};

fn taints(node: Option<&Node>) -> Vec<String> {
    let taints = node
        .and_then(|node| node.spec.clone())
        .and_then(|spec| spec.taints)
        .unwrap_or_default();
    let mut words: Vec<String> = taints
        .into_iter()
        .map(|taint| format!("{}:{}", taint.key, taint.effect))
        .collect();
    words.sort();
    words
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_node_becomes_unknown_and_loses_the_pods_that_do_not_stay() {
    let options = Options {
        node_grace: Duration::from_secs(5),
        ..Options::default()
    };
    let cluster = Cluster::with(&["a"], options).await;
    let pods: Api<Pod> = cluster.api();
    let container = json!([{"name": "main", "image": "pause"}]);
    let stays = json!([{"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"}]);
    let leaves = json!([{"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1}]);
    for (name, tolerations) in [("stays", stays), ("leaves", leaves)] {
        // The pods are bound at creation, because the node may fall silent before a scheduler handles them.
        make(&pods, json!({"metadata": {"name": name}, "spec": {"nodeName": "a", "containers": container, "tolerations": tolerations}})).await;
    }
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    let node = until(&nodes, "a", |node| {
        taints(node)
            == [
                "node.kubernetes.io/unreachable:NoExecute",
                "node.kubernetes.io/unreachable:NoSchedule",
            ]
    })
    .await
    .unwrap();
    let ready = node
        .status
        .unwrap()
        .conditions
        .unwrap()
        .into_iter()
        .find(|held| held.type_ == "Ready")
        .unwrap();
    assert_eq!(
        (
            ready.status.as_str(),
            ready.reason.as_deref(),
            ready.message.as_deref()
        ),
        (
            "Unknown",
            Some("NodeStatusUnknown"),
            Some("Kubelet stopped posting node status.")
        )
    );
    until(&pods, "leaves", |pod| pod.is_none()).await;
    assert_eq!(
        cluster
            .event_messages("leaves", "TaintManagerEviction")
            .await,
        ["Marking for deletion Pod default/leaves"]
    );
    let kept = pods.get("stays").await.unwrap();
    assert!(kept.metadata.deletion_timestamp.is_none());
    // The node becomes ready again.
    let status = json!({"status": {"conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady",
        "lastHeartbeatTime": "2026-01-01T00:01:00Z", "lastTransitionTime": "2026-01-01T00:01:00Z"}]}});
    nodes
        .patch_status("a", &PatchParams::default(), &Patch::Merge(status))
        .await
        .unwrap();
    until(&nodes, "a", |node| taints(node).is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cordon_is_a_taint_and_pods_of_a_gone_node_go() {
    let options = Options {
        gone_grace: Duration::from_millis(100),
        ..Options::default()
    };
    let cluster = Cluster::with(&["a"], options).await;
    let pods: Api<Pod> = cluster.api();
    make(&pods, json!({"metadata": {"name": "one"}, "spec": {"containers": [{"name": "main", "image": "pause"}]}})).await;
    until(&pods, "one", |pod| {
        pod.and_then(|pod| pod.spec.as_ref()?.node_name.as_ref())
            .is_some()
    })
    .await;
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    nodes.cordon("a").await.unwrap();
    until(&nodes, "a", |node| {
        taints(node) == ["node.kubernetes.io/unschedulable:NoSchedule"]
    })
    .await;
    nodes.uncordon("a").await.unwrap();
    until(&nodes, "a", |node| taints(node).is_empty()).await;
    nodes.delete("a", &DeleteParams::default()).await.unwrap();
    until(&pods, "one", |pod| pod.is_none()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_runs_to_its_end_and_is_removed_in_time() {
    let cluster = Cluster::start(&["a"]).await;
    let jobs: Api<Job> = cluster.api();
    let job = |name: &str, play: &str, limit: i32| {
        json!({"metadata": {"name": name}, "spec": {
            "completions": 3, "parallelism": 2, "backoffLimit": limit,
            "template": {"metadata": {"annotations": {"play": play}},
                "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "pause"}]}},
        }})
    };
    let condition = |job: Option<&Job>, kind: &str| -> Option<String> {
        let conditions = job?.status.as_ref()?.conditions.clone()?;
        conditions
            .into_iter()
            .find(|held| held.type_ == kind && held.status == "True")
            .and_then(|held| held.reason)
    };
    make(&jobs, job("good", "Succeeded", 6)).await;
    let done = until(&jobs, "good", |job| condition(job, "Complete").is_some())
        .await
        .unwrap();
    assert_eq!(
        condition(Some(&done), "Complete").as_deref(),
        Some("CompletionsReached")
    );
    let status = done.status.unwrap();
    assert_eq!(
        (status.succeeded, status.failed, status.active),
        (Some(3), None, None)
    );
    let pods = until_all(&cluster.api::<Pod>(), "job-name=good", |pods| {
        pods.len() == 3
    })
    .await;
    assert!(pods.iter().all(|pod| pod.finalizers().is_empty()));
    make(&jobs, job("bad", "Failed", 0)).await;
    let done = until(&jobs, "bad", |job| condition(job, "Failed").is_some()).await;
    assert_eq!(
        condition(done.as_ref(), "Failed").as_deref(),
        Some("BackoffLimitExceeded")
    );
    let patch = Patch::Merge(json!({"spec": {"ttlSecondsAfterFinished": 0}}));
    jobs.patch("good", &PatchParams::default(), &patch)
        .await
        .unwrap();
    until(&jobs, "good", |job| job.is_none()).await;
    until_all(&cluster.api::<Pod>(), "job-name=good", <[_]>::is_empty).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_has_the_addresses_of_its_pods() {
    let cluster = Cluster::start(&["a"]).await;
    make(&cluster.api::<Deployment>(), deployment("web", 1)).await;
    let services: Api<Service> = cluster.api();
    make(&services, json!({"metadata": {"name": "web"}, "spec": {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}]}})).await;
    let endpoints: Api<Endpoints> = cluster.api();
    let address = |found: Option<&Endpoints>| -> Option<(String, i32)> {
        let subset = found?.subsets.clone()?.into_iter().next()?;
        Some((
            subset.addresses?.first()?.ip.clone(),
            subset.ports?.first()?.port,
        ))
    };
    until(&endpoints, "web", |found| {
        address(found) == Some(("127.0.0.9".to_owned(), 8080))
    })
    .await;
    let slices: Api<EndpointSlice> = cluster.api();
    until_all(&slices, "kubernetes.io/service-name=web", |slices| {
        slices.len() == 1
            && slices[0].endpoints.first().is_some_and(|endpoint| {
                endpoint.addresses == ["127.0.0.9"]
                    && endpoint
                        .conditions
                        .as_ref()
                        .and_then(|conditions| conditions.ready)
                        == Some(true)
            })
    })
    .await;
    // what somebody deletes comes again
    let first = endpoints.get("web").await.unwrap().uid();
    let at_once = DeleteParams::default();
    endpoints.delete("web", &at_once).await.unwrap();
    until(&endpoints, "web", |found| {
        address(found).is_some() && found.and_then(kube::ResourceExt::uid) != first
    })
    .await;
    let of_web = ListParams::default().labels("kubernetes.io/service-name=web");
    let first = slices.list(&of_web).await.unwrap().items.remove(0);
    slices.delete(&first.name_any(), &at_once).await.unwrap();
    until_all(&slices, "kubernetes.io/service-name=web", |slices| {
        slices.len() == 1 && slices[0].uid() != first.uid()
    })
    .await;
    services
        .delete("web", &DeleteParams::default())
        .await
        .unwrap();
    until(&endpoints, "web", |found| found.is_none()).await;
    until_all(&slices, "kubernetes.io/service-name=web", <[_]>::is_empty).await;
}
