//! StatefulSets.

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

use super::harness::{Cluster, make, template, until, until_all};

fn stateful_set(name: &str, replicas: i32, spec: &Value) -> Value {
    let mut set = json!({"metadata": {"name": name}, "spec": {
        "replicas": replicas, "serviceName": name, "selector": {"matchLabels": {"app": name}}, "template": template(name)}});
    let fields = set["spec"].as_object_mut().unwrap();
    fields.extend(spec.as_object().cloned().unwrap_or_default());
    set
}

fn settled(set: &StatefulSet, ready: i32, updated: i32) -> bool {
    let status = set.status.clone().unwrap_or_default();
    status.observed_generation == set.metadata.generation
        && status.replicas == ready
        && status.ready_replicas.unwrap_or(0) == ready
        && status.updated_replicas.unwrap_or(0) == updated
}

async fn until_settled(cluster: &Cluster, name: &str, ready: i32, updated: i32) -> StatefulSet {
    let sets: Api<StatefulSet> = cluster.api();
    let is_settled =
        |set: Option<&StatefulSet>| set.is_some_and(|set| settled(set, ready, updated));
    until(&sets, name, is_settled).await.unwrap()
}

async fn patch(cluster: &Cluster, name: &str, spec: Value) {
    let sets: Api<StatefulSet> = cluster.api();
    let spec = Patch::Merge(json!({"spec": spec}));
    let params = PatchParams::default();
    sets.patch(name, &params, &spec).await.unwrap();
}

/// Returns the names of the pods of a set, and which of them have a label of a later template.
async fn names(cluster: &Cluster, app: &str, count: usize) -> Vec<String> {
    let selected = format!("app={app}");
    let api: Api<Pod> = cluster.api();
    let pods = until_all(&api, &selected, |pods| pods.len() == count).await;
    let called = |pod: &Pod| match pod.labels().get("version") {
        Some(version) => format!("{}:{version}", pod.name_any()),
        None => pod.name_any(),
    };
    pods.iter().map(called).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_pods_of_a_set_come_in_order_and_go_backwards() {
    let cluster = Cluster::start(&["a"]).await;
    let sets: Api<StatefulSet> = cluster.api();
    let mut set = stateful_set("db", 2, &json!({"ordinals": {"start": 5}}));
    // such a pod is not ready before somebody says so
    set["spec"]["template"]["metadata"]["annotations"] = json!({"play": "Pending"});
    make(&sets, set).await;
    let has_one = |set: Option<&StatefulSet>| {
        set.and_then(|set| set.status.as_ref())
            .is_some_and(|status| status.replicas == 1)
    };
    until(&sets, "db", has_one).await;
    assert_eq!(names(&cluster, "db", 1).await, ["db-5"]);
    let pods: Api<Pod> = cluster.api();
    let ready = json!({"status": {"phase": "Running", "conditions": [
        {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
    let params = PatchParams::default();
    pods.patch_status("db-5", &params, &Patch::Merge(ready))
        .await
        .unwrap();
    let two = until_all(&pods, "app=db", |pods| pods.len() == 2).await;
    let spec = two[1].spec.clone().unwrap();
    assert_eq!(two[1].name_any(), "db-6");
    assert_eq!(two[1].labels()["apps.kubernetes.io/pod-index"], "6");
    assert_eq!(spec.hostname.as_deref(), Some("db-6"));
    assert_eq!(spec.subdomain.as_deref(), Some("db"));
    patch(&cluster, "db", json!({"replicas": 1})).await;
    until_settled(&cluster, "db", 1, 1).await;
    assert_eq!(names(&cluster, "db", 1).await, ["db-5"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_template_replaces_the_pods_above_the_partition() {
    let cluster = Cluster::start(&["a"]).await;
    let sets: Api<StatefulSet> = cluster.api();
    make(&sets, stateful_set("db", 3, &json!({}))).await;
    let before = until_settled(&cluster, "db", 3, 3).await.status.unwrap();
    let partition = |partition: i32| json!({"type": "RollingUpdate", "rollingUpdate": {"partition": partition}});
    let version = |version: &str| json!({"metadata": {"labels": {"version": version}}});
    let change = json!({"updateStrategy": partition(2), "template": version("2")});
    patch(&cluster, "db", change).await;
    let partly = until_settled(&cluster, "db", 3, 1).await.status.unwrap();
    assert_eq!(names(&cluster, "db", 3).await, ["db-0", "db-1", "db-2:2"]);
    assert_eq!(partly.current_revision, before.current_revision);
    assert_ne!(partly.update_revision, before.update_revision);
    patch(&cluster, "db", json!({"updateStrategy": partition(0)})).await;
    let after = until_settled(&cluster, "db", 3, 3).await.status.unwrap();
    assert_eq!(after.current_revision, partly.update_revision);
    let on_delete = json!({"type": "OnDelete", "rollingUpdate": null});
    let change = json!({"updateStrategy": on_delete, "template": version("3")});
    patch(&cluster, "db", change).await;
    until_settled(&cluster, "db", 3, 0).await;
    let pods: Api<Pod> = cluster.api();
    pods.delete("db-1", &DeleteParams::default()).await.unwrap();
    until_settled(&cluster, "db", 3, 1).await;
    assert_eq!(
        names(&cluster, "db", 3).await,
        ["db-0:2", "db-1:3", "db-2:2"]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_come_with_the_pods_and_go_as_the_policy_says() {
    let cluster = Cluster::start(&["a"]).await;
    let sets: Api<StatefulSet> = cluster.api();
    let claims: Api<PersistentVolumeClaim> = cluster.api();
    let spec = json!({
        "podManagementPolicy": "Parallel",
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Delete"},
        "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}],
    });
    make(&sets, stateful_set("db", 2, &spec)).await;
    let called = |claims: &[PersistentVolumeClaim]| -> Vec<String> {
        claims.iter().map(PersistentVolumeClaim::name_any).collect()
    };
    let two = |claims: &[PersistentVolumeClaim]| claims.len() == 2;
    let made = until_all(&claims, "app=db", two).await;
    assert_eq!(called(&made), ["data-db-0", "data-db-1"]);
    // nothing binds the claims, and no pod of a parallel set waits for another
    assert_eq!(names(&cluster, "db", 2).await, ["db-0", "db-1"]);
    patch(&cluster, "db", json!({"replicas": 1})).await;
    let one = |claims: &[PersistentVolumeClaim]| claims.len() == 1;
    let kept = until_all(&claims, "app=db", one).await;
    assert_eq!(called(&kept), ["data-db-0"]);
    sets.delete("db", &DeleteParams::default()).await.unwrap();
    names(&cluster, "db", 0).await;
    let kept = until_all(&claims, "app=db", one).await;
    assert_eq!(called(&kept), ["data-db-0"]);
}
