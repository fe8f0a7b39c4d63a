use serde_json::{Value, json};

use super::*;
use crate::testing;

/// A Lease that was renewed so many seconds ago.
fn lease(run: &str, age: i64, ledger: Option<&str>) -> Value {
    let renewed = Timestamp::now() - k8s_openapi::jiff::SignedDuration::from_secs(age);
    let annotations = ledger.map_or_else(|| json!({}), |path| json!({LEDGER: path, HOST: host()}));
    json!({
        "metadata": {"name": NAME, "namespace": NAMESPACE, "resourceVersion": "7", "uid": "u", "annotations": annotations},
        "spec": {"holderIdentity": run, "leaseDurationSeconds": 30, "renewTime": MicroTime(renewed)},
    })
}

fn namespace(run: &str, name: &str) -> Value {
    json!({
        "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
        "metadata": {"name": name, "labels": {RUN_LABEL: run}},
    })
}

/// An API server with these objects, on which a run with the id `mine` takes the cluster. Returns what it said, and the requests.
async fn take(lease: Option<Value>, namespaces: Vec<Value>) -> (Result<(), String>, Vec<String>) {
    let (client, log) = testing::client(move |method, path| match (method, path) {
        ("GET", path) if path.ends_with("/namespaces") => (
            200,
            json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList", "metadata": {}, "items": namespaces}),
        ),
        ("GET", _) => lease
            .clone()
            .map_or_else(testing::not_found, |lease| (200, lease)),
        _ => (200, json!({"metadata": {"name": NAME}})),
    });
    let (stream, _) = testing::stream();
    let notes = crate::recorder::Recorder::new(&stream, "setup").note_sender();
    let taken = Claim::take(&client, "mine", &Interrupt::default(), notes).await;
    let requests = log.lock().expect("requests").clone();
    let said = taken
        .map(drop)
        .map_err(|error| error.into_failure("").message);
    (said, requests)
}

fn writes(requests: &[String]) -> Vec<&str> {
    let writes = requests.iter().filter(|line| !line.starts_with("GET "));
    writes.map(String::as_str).collect()
}

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";

#[tokio::test]
async fn a_cluster_without_marks_is_taken() {
    let (said, requests) = take(None, Vec::new()).await;
    assert_eq!(said, Ok(()));
    assert_eq!(writes(&requests), [format!("POST {LEASES}")]);
}

#[tokio::test]
async fn the_lease_of_a_dead_run_that_changed_nothing_does_not_block() {
    let (said, requests) = take(Some(lease("dead", 31, None)), Vec::new()).await;
    assert_eq!(said, Ok(()));
    assert_eq!(writes(&requests), [format!("PUT {LEASES}/{NAME}")]);
}

#[tokio::test]
async fn a_lease_whose_creation_nobody_answered_is_the_runs_own() {
    let (said, requests) = take(Some(lease("mine", 0, None)), Vec::new()).await;
    assert_eq!(said, Ok(()));
    assert_eq!(writes(&requests), [format!("PUT {LEASES}/{NAME}")]);
}

#[tokio::test]
async fn a_run_that_renews_its_lease_keeps_others_away() {
    let (said, requests) = take(Some(lease("other", 3, Some("/x/events.jsonl"))), Vec::new()).await;
    let why = said.expect_err("it is alive");
    assert!(why.starts_with("run other uses this cluster: "), "{why}");
    assert!(
        why.ends_with("numaresources-tests cleanup --events /x/events.jsonl"),
        "{why}"
    );
    assert_eq!(writes(&requests), Vec::<&str>::new());
}

#[tokio::test]
async fn what_dead_runs_left_is_named_with_the_command_that_puts_it_back() {
    let (said, requests) = take(
        Some(lease("dead", 31, Some("/x y/events.jsonl"))),
        vec![namespace("dead", "e2e-a"), namespace("older", "e2e-b")],
    )
    .await;
    assert_eq!(
        said,
        Err(
            "run dead and older ended without undoing what it changed on this cluster: Lease kube-system/numaresources-tests, \
             Namespace e2e-a, Namespace e2e-b; nothing was changed. Put the cluster back first: \
             numaresources-tests cleanup --events '/x y/events.jsonl'; numaresources-tests cleanup --run older"
                .to_owned()
        )
    );
    assert_eq!(writes(&requests), Vec::<&str>::new());
}

#[tokio::test]
async fn only_the_lease_of_the_run_is_deleted() {
    for (holder, deleted) in [("mine", 1), ("other", 0)] {
        let (client, log) = testing::client(move |method, _| match method {
            "GET" => (200, lease(holder, 0, None)),
            _ => (
                200,
                json!({"kind": "Status", "apiVersion": "v1", "status": "Success"}),
            ),
        });
        free(&client, "mine").await.expect("the server answers");
        let requests = log.lock().expect("requests").clone();
        assert_eq!(writes(&requests).len(), deleted, "{requests:?}");
    }
}
