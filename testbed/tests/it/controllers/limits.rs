//! Quotas that follow what is used, and claims that stay while a pod uses them.

use apiserver::faults::{Fault, Rule, Selector};
use k8s_openapi::api::core::v1::{
    ConfigMap, PersistentVolume, PersistentVolumeClaim, Pod, ResourceQuota, Service,
};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::harness::{Cluster, make, until};

fn pod(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"terminationGracePeriodSeconds": 0,
        "containers": [{"name": "main", "image": "pause", "resources": {"requests": {"cpu": "100m"}}}]}})
}

/// Waits until a quota tells these used amounts.
async fn uses(quotas: &Api<ResourceQuota>, expected: &[(&str, &str)]) {
    until(quotas, "q", |quota| {
        let status = quota.and_then(|quota| quota.status.as_ref());
        let used = status.and_then(|status| status.used.as_ref());
        used.is_some_and(|used| {
            expected
                .iter()
                .all(|(name, amount)| used.get(*name).is_some_and(|known| known.0 == *amount))
        })
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quota_counts_what_comes_and_what_goes() {
    let cluster = Cluster::start(&["a"]).await;
    let quotas: Api<ResourceQuota> = cluster.api();
    let pods: Api<Pod> = cluster.api();
    let maps: Api<ConfigMap> = cluster.api();
    make(&maps, json!({"metadata": {"name": "before"}})).await;
    let hard = json!({"pods": "2", "requests.cpu": "1", "count/configmaps": "5", "services.nodeports": "1"});
    make(
        &quotas,
        json!({"metadata": {"name": "q"}, "spec": {"hard": hard}}),
    )
    .await;
    // what was there before counts, too: the certificate of the cluster and this one
    uses(&quotas, &[("count/configmaps", "2"), ("pods", "0")]).await;

    for name in ["one", "two"] {
        make(&pods, pod(name)).await;
    }
    uses(&quotas, &[("pods", "2"), ("requests.cpu", "200m")]).await;
    let third: Pod = serde_json::from_value(pod("three")).unwrap();
    let refused = pods.create(&PostParams::default(), &third).await;
    let message = refused.unwrap_err().to_string();
    assert!(
        message.contains("exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2"),
        "{message}"
    );

    pods.delete("one", &DeleteParams::default()).await.unwrap();
    maps.delete("before", &DeleteParams::default())
        .await
        .unwrap();
    uses(
        &quotas,
        &[
            ("pods", "1"),
            ("requests.cpu", "100m"),
            ("count/configmaps", "1"),
        ],
    )
    .await;
    make(&pods, pod("three")).await;

    let services: Api<Service> = cluster.api();
    let two_ports = json!({"metadata": {"name": "s"}, "spec": {"type": "NodePort", "ports": [{"name": "a", "port": 1}, {"name": "b", "port": 2}]}});
    let service: Service = serde_json::from_value(two_ports).unwrap();
    let refused = services.create(&PostParams::default(), &service).await;
    let message = refused.unwrap_err().to_string();
    assert!(
        message.contains("requested: services.nodeports=2"),
        "{message}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quota_counts_what_a_resized_pod_takes_and_gives_back() {
    let cluster = Cluster::start(&["a"]).await;
    let (quotas, pods): (Api<ResourceQuota>, Api<Pod>) = (cluster.api(), cluster.api());
    let hard = json!({"metadata": {"name": "q"}, "spec": {"hard": {"requests.cpu": "300m"}}});
    make(&quotas, hard).await;
    uses(&quotas, &[("requests.cpu", "0")]).await;
    make(&pods, pod("p")).await;
    let resize = async |cpu: &str| {
        let change = json!({"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}]}});
        let (parameters, patch) = (PatchParams::default(), Patch::Strategic(change));
        pods.patch_subresource("resize", "p", &parameters, &patch)
            .await
    };
    resize("250m").await.unwrap();
    uses(&quotas, &[("requests.cpu", "250m")]).await;
    let message = resize("400m").await.unwrap_err().to_string();
    let expected = "exceeded quota: q, requested: requests.cpu=150m, used: requests.cpu=250m, limited: requests.cpu=300m";
    assert!(message.contains(expected), "{message}");
    resize("50m").await.unwrap();
    uses(&quotas, &[("requests.cpu", "50m")]).await;
}

/// Makes the claims `used` and `unused`.
async fn claims(cluster: &Cluster) -> Api<PersistentVolumeClaim> {
    let claims = cluster.api();
    let spec =
        json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    for name in ["used", "unused"] {
        make::<PersistentVolumeClaim>(&claims, json!({"metadata": {"name": name}, "spec": spec}))
            .await;
    }
    claims
}

/// Returns a pod with the claim `used`.
fn user() -> Value {
    let mut user = pod("user");
    user["spec"]["volumes"] =
        json!([{"name": "data", "persistentVolumeClaim": {"claimName": "used"}}]);
    user
}

/// Deletes both claims, and asserts that `used` is there when `unused` has gone.
async fn only_the_used_one_stays(claims: &Api<PersistentVolumeClaim>) {
    for name in ["used", "unused"] {
        claims.delete(name, &DeleteParams::default()).await.unwrap();
    }
    until(claims, "unused", |claim| claim.is_none()).await;
    let kept = claims.get("used").await.unwrap();
    assert!(kept.metadata.deletion_timestamp.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_goes_when_the_last_pod_that_uses_it_has_gone() {
    let cluster = Cluster::start(&["a"]).await;
    let claims = claims(&cluster).await;
    let pods: Api<Pod> = cluster.api();
    make(&pods, user()).await;
    // no pod without a node keeps a claim
    until(&pods, "user", |pod| {
        let node = pod.and_then(|pod| pod.spec.as_ref()?.node_name.as_ref());
        node.is_some()
    })
    .await;

    only_the_used_one_stays(&claims).await;
    pods.delete("user", &DeleteParams::default()).await.unwrap();
    until(&claims, "used", |claim| claim.is_none()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_stays_although_no_watch_has_brought_its_pod_yet() {
    let cluster = Cluster::start(&["a"]).await;
    let claims = claims(&cluster).await;
    let watches = Selector::resource("", "pods").verbs(&["watch"]);
    let faults = cluster.server.faults();
    let frozen = faults.add(Rule::new(watches, Fault::Freeze));
    let pods: Api<Pod> = cluster.api();
    let mut user = user();
    user["spec"]["nodeName"] = json!("a");
    make(&pods, user).await;

    only_the_used_one_stays(&claims).await;
    faults.remove(frozen);
    pods.delete("user", &DeleteParams::default()).await.unwrap();
    until(&claims, "used", |claim| claim.is_none()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_goes_when_no_claim_is_bound_to_it() {
    let cluster = Cluster::start(&[]).await;
    let volumes: Api<PersistentVolume> = Api::all(cluster.client.clone());
    let phase = async |name: &str, phase: &str| {
        let status = Patch::Merge(json!({"status": {"phase": phase}}));
        let params = PatchParams::default();
        volumes.patch_status(name, &params, &status).await.unwrap();
    };
    for name in ["bound", "free"] {
        let spec = json!({"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
            "hostPath": {"path": "/tmp/none"}});
        make(&volumes, json!({"metadata": {"name": name}, "spec": spec})).await;
    }
    phase("bound", "Bound").await;
    for name in ["bound", "free"] {
        let at_once = DeleteParams::default();
        volumes.delete(name, &at_once).await.unwrap();
    }
    Box::pin(until(&volumes, "free", |volume| volume.is_none())).await;
    let kept = volumes.get("bound").await.unwrap();
    assert!(kept.metadata.deletion_timestamp.is_some());
    phase("bound", "Released").await;
    Box::pin(until(&volumes, "bound", |volume| volume.is_none())).await;
}
