//! Writing the object: which requests are sent when, and how refusals are handled.

use api::nrt::{AttributeInfo, ResourceInfo, Zone};
use axum::http::Method;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use prometheus_client::registry::Registry;
use rstest::rstest;
use rte::metrics::Metrics;
use rte::publish::content::{Content, Timing};
use rte::publish::publisher::{Options, Outcome, Publisher};
use rte::triggers::Trigger;
use serde_json::{Value, json};

use crate::api_server::{ApiServer, NRTS};

fn path() -> String {
    format!("{NRTS}/worker-0")
}

struct Scene {
    server: ApiServer,
    publisher: Publisher,
    registry: Registry,
}

impl Scene {
    fn new(patch_mode: bool, set_owner: bool) -> Self {
        let server = ApiServer::new();
        let mut registry = Registry::default();
        let metrics = Metrics::new("worker-0", &mut registry);
        let options = Options {
            name: "worker-0".to_owned(),
            patch_mode,
            patch_resync: 3,
            set_owner,
        };
        let publisher = Publisher::new(server.client(), options, metrics);
        Self {
            server,
            publisher,
            registry,
        }
    }

    /// Publishes. Returns the outcome and the methods of the requests.
    async fn publish(&mut self, content: &Content) -> (Option<Outcome>, String) {
        let outcome = self.publisher.publish(content).await;
        let requests: Vec<String> = self
            .server
            .requests()
            .iter()
            .map(|line| line.split_once(' ').unwrap().0.to_owned())
            .collect();
        (outcome.ok(), requests.join(" "))
    }

    fn nrt(&self) -> Value {
        self.server.get(&path()).unwrap()
    }

    #[track_caller]
    fn assert_metric(&self, line: &str) {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry).unwrap();
        assert!(
            text.lines().any(|found| found == line),
            "{line} not in\n{text}"
        );
    }
}

fn content(available: &str) -> Content {
    let quantity = |text: &str| Quantity(text.to_owned());
    Content {
        zones: vec![Zone {
            name: "node-0".to_owned(),
            zone_type: "Node".to_owned(),
            resources: vec![ResourceInfo {
                name: "cpu".to_owned(),
                capacity: quantity("4"),
                allocatable: quantity("3"),
                available: quantity(available),
            }],
            ..Zone::default()
        }],
        attributes: vec![AttributeInfo {
            name: "topologyManagerScope".to_owned(),
            value: "pod".to_owned(),
        }],
        fingerprint: Some("pfp0v001ef46db3751d8e999".to_owned()),
        trigger: Trigger::Periodic,
        timing: None,
    }
}

#[tokio::test]
async fn object_is_created_whole() {
    let mut scene = Scene::new(true, false);
    let (outcome, requests) = scene.publish(&content("2")).await;
    assert_eq!(
        (outcome, requests.as_str()),
        (Some(Outcome::Created), "GET POST")
    );
    let mut nrt = scene.nrt();
    nrt["metadata"]
        .as_object_mut()
        .unwrap()
        .remove("managedFields");
    assert_eq!(
        nrt,
        json!({
            "apiVersion": "topology.node.k8s.io/v1alpha2",
            "kind": "NodeResourceTopology",
            "metadata": {
                "name": "worker-0",
                "resourceVersion": "1",
                "annotations": {
                    "k8stopoawareschedwg/rte-update": "periodic",
                    "topology.node.k8s.io/fingerprint": "pfp0v001ef46db3751d8e999",
                },
            },
            "attributes": [{"name": "topologyManagerScope", "value": "pod"}],
            "zones": [{
                "name": "node-0",
                "type": "Node",
                "resources": [{"name": "cpu", "capacity": "4", "allocatable": "3", "available": "2"}],
            }],
        })
    );
    scene.assert_metric(
        "rte_noderesourcetopology_writes_total{node=\"worker-0\",operation=\"create\",trigger=\"periodic\"} 1",
    );
}

#[rstest]
#[case::patch_mode(true, Outcome::Patched, "PATCH", "GET")]
#[case::whole_objects(false, Outcome::Updated, "GET PUT", "GET")]
#[tokio::test]
async fn changes_are_written_and_nothing_else(
    #[case] patch_mode: bool,
    #[case] changed: Outcome,
    #[case] to_change: &str,
    #[case] to_confirm: &str,
) {
    let mut scene = Scene::new(patch_mode, false);
    scene.publish(&content("2")).await;
    let version = |scene: &Scene| scene.nrt()["metadata"]["resourceVersion"].clone();

    let before = version(&scene);
    let same = scene.publish(&content("2")).await;
    assert_eq!(same, (Some(Outcome::Unchanged), to_confirm.to_owned()));
    assert_eq!(version(&scene), before);

    let other = scene.publish(&content("1")).await;
    assert_eq!(other, (Some(changed), to_change.to_owned()));
    assert_eq!(scene.nrt()["zones"][0]["resources"][0]["available"], "1");
}

#[rstest]
#[case::patch_mode(true)]
#[case::whole_objects(false)]
#[tokio::test]
async fn deleted_or_edited_object_is_put_right_although_nothing_changed(#[case] patch_mode: bool) {
    let mut scene = Scene::new(patch_mode, false);
    scene.publish(&content("2")).await;

    scene.server.remove(&path());
    let (outcome, _) = scene.publish(&content("2")).await;
    assert_eq!(outcome, Some(Outcome::Created));

    scene.server.edit(&path(), &json!({"attributes": []}));
    let (outcome, _) = scene.publish(&content("2")).await;
    assert_eq!(outcome, Some(Outcome::Updated));
    assert_eq!(scene.nrt()["attributes"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn what_others_put_there_stays() {
    let mut scene = Scene::new(true, false);
    scene.server.put(
        &path(),
        json!({
            "apiVersion": "topology.node.k8s.io/v1alpha2",
            "kind": "NodeResourceTopology",
            "metadata": {"name": "worker-0", "labels": {"mine": "x"}, "annotations": {"other": "y"}},
            "topologyPolicies": ["None"],
            "zones": [],
        }),
    );
    scene.publish(&content("2")).await;
    let nrt = scene.nrt();
    assert_eq!(nrt["metadata"]["labels"]["mine"], "x");
    assert_eq!(nrt["metadata"]["annotations"]["other"], "y");
    assert_eq!(nrt["topologyPolicies"][0], "None");

    let without_fingerprint = Content {
        fingerprint: None,
        ..content("2")
    };
    scene.publish(&without_fingerprint).await;
    let annotations = scene.nrt()["metadata"]["annotations"].clone();
    assert_eq!(
        annotations.get("topology.node.k8s.io/fingerprint"),
        None,
        "{annotations}"
    );
    assert_eq!(annotations["other"], "y");
}

#[tokio::test]
async fn patch_of_an_object_that_somebody_changed_gives_way_to_an_update() {
    let mut scene = Scene::new(true, false);
    scene.publish(&content("2")).await;
    scene
        .server
        .edit(&path(), &json!({"metadata": {"labels": {"mine": "x"}}}));
    let outcome = scene.publish(&content("1")).await;
    assert_eq!(
        outcome,
        (Some(Outcome::Updated), "PATCH GET PUT".to_owned())
    );
    assert_eq!(scene.nrt()["metadata"]["labels"]["mine"], "x");
    scene.assert_metric(
        "rte_noderesourcetopology_patch_failures_total{node=\"worker-0\",trigger=\"send_patch\"} 1",
    );
}

#[tokio::test]
async fn after_enough_patches_the_whole_object_is_looked_at() {
    let mut scene = Scene::new(true, false);
    scene.publish(&content("9")).await;
    for available in ["8", "7", "6"] {
        assert_eq!(scene.publish(&content(available)).await.1, "PATCH");
    }
    assert_eq!(scene.publish(&content("5")).await.1, "GET PUT");
    assert_eq!(scene.publish(&content("4")).await.1, "PATCH");
}

#[tokio::test]
async fn role_without_patch_is_not_asked_again() {
    let mut scene = Scene::new(true, false);
    scene.publish(&content("2")).await;
    scene.server.refuse(Method::PATCH, 403);
    assert_eq!(scene.publish(&content("1")).await.1, "PATCH GET PUT");
    assert_eq!(scene.publish(&content("0")).await.1, "GET PUT");
}

#[rstest]
#[case::create(false, Method::POST, "create")]
#[case::update(true, Method::PUT, "update")]
#[tokio::test]
async fn conflict_is_answered_by_reading_once_more(
    #[case] exists: bool,
    #[case] method: Method,
    #[case] operation: &str,
) {
    let mut scene = Scene::new(false, false);
    if exists {
        scene.publish(&content("2")).await;
    }
    scene.server.refuse(method.clone(), 409);
    let (outcome, requests) = scene.publish(&content("1")).await;
    assert!(outcome.is_some());
    assert_eq!(requests, format!("GET {method} GET {method}"));
    scene.assert_metric(&format!(
        "rte_retries_total{{node=\"worker-0\",operation=\"{operation}\"}} 1"
    ));
}

#[rstest]
#[case::not_allowed(Method::GET, 403, "get")]
#[case::throttled(Method::POST, 429, "create")]
#[case::broken(Method::GET, 500, "get")]
#[tokio::test]
async fn refusal_is_told_and_the_next_publication_works(
    #[case] method: Method,
    #[case] code: u16,
    #[case] action: &str,
) {
    let mut scene = Scene::new(true, false);
    scene.server.refuse(method, code);
    let error = scene.publisher.publish(&content("2")).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("{action} failed for NRT instance")
    );
    let chain = daemon::log::chain(&error);
    assert!(chain.contains(&format!("refused with {code}")), "{chain}");
    scene.assert_metric(&format!(
        "rte_noderesourcetopology_write_failures_total{{node=\"worker-0\",operation=\"{action}\"}} 1"
    ));
    let (outcome, _) = scene.publish(&content("2")).await;
    assert_eq!(outcome, Some(Outcome::Created));
}

#[tokio::test(start_paused = true)]
async fn silence_of_the_server_is_told_after_a_while() {
    let mut scene = Scene::new(true, false);
    scene.server.fall_silent();
    let error = scene.publisher.publish(&content("2")).await.unwrap_err();
    let chain = daemon::log::chain(&error);
    assert_eq!(chain, "get failed for NRT instance: no answer within 20 s");
    scene.assert_metric(
        "rte_noderesourcetopology_write_failures_total{node=\"worker-0\",operation=\"get\"} 1",
    );
}

#[tokio::test]
async fn node_becomes_the_owner_and_a_node_that_came_anew_too() {
    let node = |uid: &str| json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "worker-0", "uid": uid}});
    let mut scene = Scene::new(false, true);
    scene.publish(&content("2")).await;
    assert_eq!(
        scene.nrt()["metadata"].get("ownerReferences"),
        None,
        "no such node"
    );

    for uid in ["uid-1", "uid-2"] {
        scene.server.put("/api/v1/nodes/worker-0", node(uid));
        scene.publish(&content("2")).await;
        assert_eq!(
            scene.nrt()["metadata"]["ownerReferences"],
            json!([{"apiVersion": "v1", "kind": "Node", "name": "worker-0", "uid": uid}])
        );
    }
}

#[tokio::test]
async fn timing_is_annotated_when_asked_for() {
    let mut scene = Scene::new(true, false);
    let timing = Timing {
        since_previous: std::time::Duration::from_millis(9_600),
        interval: goflags::GoDuration::from_seconds(60),
    };
    let timed = Content {
        timing: Some(timing),
        ..content("2")
    };
    scene.publish(&timed).await;
    let annotations = scene.nrt()["metadata"]["annotations"].clone();
    assert_eq!(annotations["k8stopoawareschedwg/sleep-duration"], "10s");
    assert_eq!(annotations["k8stopoawareschedwg/update-interval"], "1m0s");
    scene.publish(&content("2")).await;
    assert_eq!(
        scene.nrt()["metadata"]["annotations"]
            .as_object()
            .unwrap()
            .len(),
        2
    );
}
