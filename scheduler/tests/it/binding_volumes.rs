//! Pods with claims, tested through the API server. Unless a real controller runs, the tests themselves create volumes and bind claims.

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::cluster::{Cluster, NAMESPACE, PROFILE};

const CLASS: &str = "local";

async fn create<K>(api: Api<K>, object: Value)
where
    K: Clone + DeserializeOwned + Serialize + std::fmt::Debug,
{
    let object = serde_json::from_value(object).unwrap();
    api.create(&PostParams::default(), &object).await.unwrap();
}

/// Starts a cluster with two nodes with zones, and a claim that waits for its pod, of a class with this provisioner.
async fn with_claim(provisioner: &str) -> Cluster {
    let cluster = Cluster::start().await;
    for node in ["worker-0", "worker-1"] {
        cluster.node(node, "16", "32Gi").await;
        cluster.topology(node, &[(8, 16), (8, 16)], &[]).await;
    }
    let class = json!({
        "metadata": {"name": CLASS},
        "provisioner": provisioner,
        "volumeBindingMode": "WaitForFirstConsumer",
    });
    create::<StorageClass>(Api::all(cluster.client.clone()), class).await;
    let claim = json!({
        "metadata": {"name": "data"},
        "spec": {
            "storageClassName": CLASS,
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        },
    });
    create(claims(&cluster), claim).await;
    cluster
}

fn claims(cluster: &Cluster) -> Api<PersistentVolumeClaim> {
    Api::namespaced(cluster.client.clone(), "default")
}

fn volumes(cluster: &Cluster) -> Api<PersistentVolume> {
    Api::all(cluster.client.clone())
}

/// Creates a local volume of a node.
async fn with_volume(cluster: &Cluster, name: &str, node: &str) {
    let term = json!({"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]});
    let volume = json!({
        "metadata": {"name": name},
        "spec": {
            "storageClassName": CLASS,
            "capacity": {"storage": "2Gi"},
            "accessModes": ["ReadWriteOnce"],
            "local": {"path": "/disk"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
        },
    });
    create(volumes(cluster), volume).await;
    let status = Patch::Merge(json!({"status": {"phase": "Available"}}));
    volumes(cluster)
        .patch_status(name, &PatchParams::default(), &status)
        .await
        .unwrap();
}

/// Grants the scheduler the rights that an administrator has to add to those from the operator.
async fn grant(cluster: &Cluster) {
    let name = "volume-binder";
    let kinds = ["persistentvolumes", "persistentvolumeclaims"];
    let role = json!({
        "metadata": {"name": name},
        "rules": [{"apiGroups": [""], "resources": kinds, "verbs": ["patch"]}],
    });
    create::<ClusterRole>(Api::all(cluster.client.clone()), role).await;
    let binding = json!({
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "ServiceAccount", "namespace": NAMESPACE, "name": api::names::SCHEDULER}],
    });
    create::<ClusterRoleBinding>(Api::all(cluster.client.clone()), binding).await;
}

async fn pod_with_claim(cluster: &Cluster, name: &str) {
    cluster
        .pod_with(name, "1", |pod| {
            pod["spec"]["volumes"] =
                json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]);
        })
        .await;
}

/// Waits until the pod's condition has this reason and a message that contains this text.
async fn waits(cluster: &Cluster, name: &str, reason: &str, text: &str) {
    let condition = async || {
        let pod = cluster.pods().get(name).await;
        let status = pod.map_err(|error| error.to_string())?.status;
        let conditions = status.unwrap_or_default().conditions.unwrap_or_default();
        let is_it = conditions.iter().any(|condition| {
            condition.type_ == "PodScheduled"
                && condition.reason.as_deref() == Some(reason)
                && condition
                    .message
                    .as_deref()
                    .is_some_and(|message| message.contains(text))
        });
        is_it
            .then_some(())
            .ok_or_else(|| json!(conditions).to_string())
    };
    cluster.eventually(condition).await;
}

/// Binds the claim, as the volume controller does once a volume names its claim.
async fn bind_claim(cluster: &Cluster, volume: &str) {
    let bound = json!({
        "metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
        "spec": {"volumeName": volume},
    });
    claims(cluster)
        .patch("data", &PatchParams::default(), &Patch::Merge(bound))
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_waits_gets_the_disk_of_a_node_and_its_pod_goes_there_once_it_is_bound() {
    let cluster = with_claim("kubernetes.io/no-provisioner").await;
    with_volume(&cluster, "disk", "worker-1").await;
    grant(&cluster).await;
    let _scheduler = cluster.scheduler("first", |_| {});
    pod_with_claim(&cluster, "p").await;
    let given = cluster
        .eventually(async || {
            let volume = volumes(&cluster).get("disk").await.unwrap();
            let owner = volume.spec.and_then(|spec| spec.claim_ref);
            owner.ok_or_else(|| "the volume has no claim".to_owned())
        })
        .await;
    let claim = claims(&cluster).get("data").await.unwrap();
    assert_eq!(given.name.as_deref(), Some("data"));
    assert_eq!(given.uid, claim.metadata.uid);
    // other pods do not wait
    cluster.pod("other", PROFILE, None, "1").await;
    cluster.placed("other").await;
    let pod = cluster.pods().get("p").await.unwrap();
    assert_eq!(pod.spec.unwrap().node_name, None);
    let controller = cluster.volume_controller();
    if controller.is_none() {
        bind_claim(&cluster, "disk").await;
    }
    assert_eq!(cluster.placed("p").await, "worker-1");
    let claim = claims(&cluster).get("data").await.unwrap();
    let volume = claim.spec.and_then(|spec| spec.volume_name);
    assert_eq!(volume.as_deref(), Some("disk"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_whose_volume_is_to_be_made_is_told_its_node_and_given_up_when_nobody_makes_it() {
    let cluster = with_claim("example.com/disks").await;
    grant(&cluster).await;
    let _scheduler = cluster.scheduler("first", |config| {
        let args = json!({"name": "VolumeBinding", "args": {"bindTimeoutSeconds": 2}});
        config["profiles"][0]["pluginConfig"]
            .as_array_mut()
            .unwrap()
            .push(args);
    });
    pod_with_claim(&cluster, "p").await;
    let text = "binding volumes: not bound within 2 s";
    waits(&cluster, "p", "SchedulerError", text).await;
    let claim = claims(&cluster).get("data").await.unwrap();
    let annotations = claim.metadata.annotations.unwrap_or_default();
    let node = annotations["volume.kubernetes.io/selected-node"].clone();
    // the volume is created at last, on the selected node
    with_volume(&cluster, "disk", &node).await;
    bind_claim(&cluster, "disk").await;
    assert_eq!(cluster.placed("p").await, node);
}

#[tokio::test(flavor = "multi_thread")]
async fn where_volumes_may_not_be_written_the_pod_says_what_is_missing() {
    let cluster = with_claim("kubernetes.io/no-provisioner").await;
    let _scheduler = cluster.scheduler("first", |_| {});
    pod_with_claim(&cluster, "p").await;
    let text = "2 node(s) didn't find available persistent volumes to bind";
    waits(&cluster, "p", "Unschedulable", text).await;
    // a new volume wakes the pod
    with_volume(&cluster, "disk", "worker-0").await;
    let text = "needs the verb patch on persistentvolumes";
    waits(&cluster, "p", "SchedulerError", text).await;
    grant(&cluster).await;
    let owner = async || {
        let volume = volumes(&cluster).get("disk").await.unwrap();
        let owner = volume.spec.and_then(|spec| spec.claim_ref);
        owner.ok_or_else(|| "the volume has no claim".to_owned())
    };
    cluster.eventually(owner).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_right_to_see_volumes_pods_without_claims_are_placed_all_the_same() {
    let cluster = with_claim("kubernetes.io/no-provisioner").await;
    cluster.forbid("storage.k8s.io", "csinodes").await;
    cluster.forbid("", "persistentvolumes").await;
    let _scheduler = cluster.scheduler("first", |_| {});
    pod_with_claim(&cluster, "p").await;
    cluster.pod("other", PROFILE, None, "1").await;
    cluster.placed("other").await;
    let text = "volumes cannot be checked: persistentvolumes";
    waits(&cluster, "p", "Unschedulable", text).await;
}
