use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use super::*;
use crate::testing;

/// An NRT of a node without pods.
fn nrt() -> Value {
    json!({
        "apiVersion": "topology.node.k8s.io/v1alpha2", "kind": "NodeResourceTopology",
        "metadata": {"name": "n", "resourceVersion": "1"},
        // rte.md 6.3, vector 1
        "attributes": [{"name": "nodeTopologyPodsFingerprint", "value": "pfp0v001ef46db3751d8e999"}],
        "zones": [{"name": "node-0", "type": "Node", "resources": [
            {"name": "cpu", "capacity": "4", "allocatable": "4", "available": "4"},
        ]}],
    })
}

/// A pod that holds CPUs of the node.
fn pod() -> Value {
    json!({
        "metadata": {"name": "p", "namespace": "ns"},
        "spec": {"nodeName": "n", "containers": [
            {"name": "c", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}},
        ]},
        "status": {"phase": "Running", "qosClass": "Guaranteed"},
    })
}

/// Returns a context of a cluster that answers so, with limits of milliseconds.
fn context(
    facts: Facts,
    answer: impl Fn(&str, &str) -> (u16, Value) + Send + Sync + 'static,
) -> Context {
    let (client, _) = testing::client(answer);
    let (stream, _) = testing::stream();
    let cluster = Cluster {
        client,
        run: "run".to_owned(),
        facts,
        deadlines: Deadlines::default().scaled(0.001),
        between_polls: Duration::ZERO,
    };
    let recorder = Recorder::new(&stream, "area/name");
    Context::new(Rc::new(cluster), recorder, "ns".to_owned())
}

/// Returns a context of a cluster with one NRT and these pods.
fn cluster_with(pods: Value) -> Context {
    context(Facts::default(), move |_, path| {
        let list = |items: Value| (200, json!({"metadata": {}, "items": items}));
        match path.rsplit('/').next() {
            Some("noderesourcetopologies") => list(json!([nrt()])),
            Some("pods") => list(pods.clone()),
            Some("nodes") => list(json!([])),
            _ => (200, nrt()),
        }
    })
}

#[tokio::test]
async fn zones_are_not_as_before_while_their_nrt_is_older_than_the_pods() {
    let before = cluster_with(json!([])).topology("n").await.unwrap();
    let settled = cluster_with(json!([])).restored(&before).await;
    assert!(settled.is_ok(), "{settled:?}");
    let stale = cluster_with(json!([pod()])).restored(&before).await;
    let Err(StepError::Failed(failure)) = stale else {
        panic!("{stale:?}");
    };
    let seen = failure.seen.unwrap_or_default();
    assert!(seen.contains("but the API's pods have"), "{seen}");
}

#[tokio::test]
async fn a_resource_that_the_set_up_found_and_that_is_gone_fails_the_scenario() {
    let found = Facts {
        scheduler_resource: true,
        ..Facts::default()
    };
    let ctx = context(found, |_, _| testing::not_found());
    let message = |error: StepError| match error {
        StepError::Failed(failure) => failure.message,
        other => format!("{other:?}"),
    };
    assert_eq!(
        message(ctx.operator_resource().await.unwrap_err()),
        "NUMAResourcesOperator numaresourcesoperator is gone"
    );
    assert_eq!(
        message(ctx.scheduler_resource().await.unwrap_err()),
        "NUMAResourcesScheduler numaresourcesscheduler is gone"
    );
    let rolled_out = ctx.operands_rolled_out().await;
    assert!(
        matches!(rolled_out, Err(StepError::Failed(_))),
        "{rolled_out:?}"
    );
}

#[tokio::test]
async fn a_scheduler_without_a_resource_skips_what_is_about_the_resource() {
    let ctx = context(Facts::default(), |_, _| testing::not_found());
    let missing = ctx.scheduler_resource().await;
    assert!(matches!(missing, Err(StepError::Skip(_))), "{missing:?}");
}

#[tokio::test]
async fn pods_of_a_complete_deployment_are_those_that_completed_it() {
    // the pod gets its node and the deployment is complete after this many requests
    for requests_before in 1..=4 {
        let seen = AtomicUsize::new(0);
        let ctx = context(Facts::default(), move |_, path| {
            let runs = seen.fetch_add(1, Ordering::Relaxed) >= requests_before;
            let (phase, node, available) = if runs {
                ("Running", json!("n"), 1)
            } else {
                ("Pending", json!(null), 0)
            };
            let pod = json!({
                "metadata": {"name": "p", "namespace": "ns"},
                "spec": {"nodeName": node, "containers": []}, "status": {"phase": phase},
            });
            let deployment = json!({
                "metadata": {"name": "d", "namespace": "ns", "generation": 1},
                "spec": {"replicas": 1, "selector": {}, "template": {}},
                "status": {"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "availableReplicas": available},
            });
            match path.rsplit('/').next() {
                Some("pods") => (200, json!({"metadata": {}, "items": [pod]})),
                _ => (200, deployment),
            }
        });
        let labels = BTreeMap::from([("app".to_owned(), "d".to_owned())]);
        let pods = ctx.deployment_complete("d", &labels).await.unwrap();
        let nodes: Vec<_> = pods.iter().map(checks::node_of).collect();
        assert_eq!(nodes, [Some("n")], "after {requests_before} requests");
    }
}
