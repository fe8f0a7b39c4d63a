//! Evictions and the budgets that allow them.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt as _;
use kube::api::{Api, EvictParams};
use serde_json::json;

use super::harness::{Cluster, deployment, make, until, until_all};

/// Returns the allowed disruptions and the numbers of current healthy, desired healthy and expected pods.
fn counts(budget: Option<&PodDisruptionBudget>) -> Option<[i32; 4]> {
    let status = budget?.status.as_ref()?;
    Some([
        status.disruptions_allowed,
        status.current_healthy,
        status.desired_healthy,
        status.expected_pods,
    ])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_budget_allows_one_eviction_and_the_next_when_the_pod_is_replaced() {
    let cluster = Cluster::start(&["a"]).await;
    make(&cluster.api::<Deployment>(), deployment("web", 2)).await;
    let budgets: Api<PodDisruptionBudget> = cluster.api();
    make(&budgets, json!({"metadata": {"name": "web"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}})).await;
    until(&budgets, "web", |found| counts(found) == Some([1, 2, 1, 2])).await;

    // With the node cordoned, the replacement cannot be scheduled yet.
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    nodes.cordon("a").await.unwrap();
    // A client that retries after 429 would wait for the replacement.
    let pods: Api<Pod> = Api::namespaced(cluster.client_without_retries().await, "default");
    let there = until_all(&pods, "app=web", |pods| pods.len() == 2).await;
    let [first, second] = [0, 1].map(|index| there[index].name_any());
    pods.evict(&first, &EvictParams::default()).await.unwrap();
    until(&pods, &first, |pod| pod.is_none()).await;
    until(&budgets, "web", |found| counts(found) == Some([0, 1, 1, 2])).await;
    let refused = pods.evict(&second, &EvictParams::default()).await;
    let kube::Error::Api(status) = refused.unwrap_err() else {
        panic!("refused for another reason");
    };
    assert_eq!(status.code, 429);
    assert_eq!(
        status.message,
        "Cannot evict pod as it would violate the pod's disruption budget."
    );
    let causes = status.details.unwrap().causes;
    assert_eq!(causes[0].reason, "DisruptionBudget");
    assert_eq!(
        causes[0].message,
        "The disruption budget web needs 1 healthy pods and has 1 currently"
    );

    nodes.uncordon("a").await.unwrap();
    until(&budgets, "web", |found| counts(found) == Some([1, 2, 1, 2])).await;
    pods.evict(&second, &EvictParams::default()).await.unwrap();
    until(&pods, &second, |pod| pod.is_none()).await;
    until(&budgets, "web", |found| counts(found) == Some([1, 2, 1, 2])).await;
}
