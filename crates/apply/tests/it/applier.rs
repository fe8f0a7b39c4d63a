//! What the applier writes, checked against the objects that the API server stores.

use apply::{Applier, Outcome};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};

use crate::server;

fn config_map(data: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "default", "labels": {"ours": "1"}}, "data": data})
}

fn deployment(env: &Value) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d", "namespace": "default"},
        "spec": {
            "selector": {"matchLabels": {"app": "d"}},
            "template": {
                "metadata": {"labels": {"app": "d"}},
                "spec": {"containers": [{"name": "c", "image": "i", "env": env, "ports": [{"containerPort": 1}]}]},
            },
        },
    })
}

#[tokio::test]
async fn objects_are_written_only_when_they_differ() {
    let plane = server().await;
    let client = plane.client().await.unwrap();
    let applier = Applier::new(client.clone());
    let outcome = async |object: Value| applier.apply(&object).await.unwrap().outcome;

    // created, found up to date, changed, found up to date
    assert_eq!(
        outcome(config_map(&json!({"k": "1"}))).await,
        Outcome::Created
    );
    assert_eq!(
        outcome(config_map(&json!({"k": "1"}))).await,
        Outcome::Unchanged
    );
    assert_eq!(
        outcome(config_map(&json!({"l": "2"}))).await,
        Outcome::Updated
    );
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    let live = maps.get("a").await.unwrap();
    assert_eq!(
        live.data.unwrap().into_iter().collect::<Vec<_>>(),
        [("l".to_owned(), "2".to_owned())],
        "old keys are gone"
    );

    // foreign changes to our fields are reverted, foreign labels stay
    let patch = json!({"metadata": {"labels": {"theirs": "1", "ours": "no"}}, "data": {"l": "3"}});
    maps.patch("a", &PatchParams::default(), &Patch::Merge(patch))
        .await
        .unwrap();
    assert_eq!(
        outcome(config_map(&json!({"l": "2"}))).await,
        Outcome::Updated
    );
    let live = maps.get("a").await.unwrap();
    assert_eq!(
        (
            live.labels()["ours"].as_str(),
            live.labels()["theirs"].as_str()
        ),
        ("1", "1")
    );

    // defaults of the API server are no difference, not even for a new applier
    assert_eq!(
        outcome(deployment(&json!([{"name": "E", "value": "1"}]))).await,
        Outcome::Created
    );
    let fresh = Applier::new(client.clone());
    let again = fresh
        .apply(&deployment(&json!([{"name": "E", "value": "1"}])))
        .await
        .unwrap();
    assert_eq!(again.outcome, Outcome::Unchanged);
    // a field that is no longer desired is removed
    assert_eq!(outcome(deployment(&json!(null))).await, Outcome::Updated);
    assert_eq!(outcome(deployment(&json!(null))).await, Outcome::Unchanged);

    // deletion reports whether the object existed
    assert!(applier.delete(&config_map(&json!({}))).await.unwrap());
    assert!(!applier.delete(&config_map(&json!({}))).await.unwrap());
    assert_eq!(
        outcome(config_map(&json!({}))).await,
        Outcome::Created,
        "nothing is remembered of what was deleted"
    );
}

#[tokio::test]
async fn failures_name_the_object_and_the_cause() {
    let plane = server().await;
    let applier = Applier::new(plane.client().await.unwrap());
    let mut object = config_map(&json!({}));
    object["metadata"]["namespace"] = json!("nowhere");
    let error = applier.apply(&object).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "failed to apply (v1, Kind=ConfigMap) nowhere/a"
    );
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert!(
        cause.contains("namespaces \"nowhere\" not found"),
        "{cause}"
    );
    let error = applier
        .apply(&json!({"kind": "ConfigMap"}))
        .await
        .unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("object without kind, version or name")
    );
}
