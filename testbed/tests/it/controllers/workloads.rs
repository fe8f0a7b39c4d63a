//! Deployments, ReplicaSets, ReplicationControllers and DaemonSets.

use std::time::Instant;

use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet, Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::{Pod, ReplicationController};
use kube::ResourceExt as _;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};

use super::harness::{Cluster, deployment, make, template, until, until_all};

fn condition<'a>(deployment: &'a Deployment, kind: &str) -> Option<(&'a str, &'a str, &'a str)> {
    let condition = deployment
        .status
        .as_ref()?
        .conditions
        .iter()
        .flatten()
        .find(|condition| condition.type_ == kind)?;
    Some((
        &condition.status,
        condition.reason.as_deref()?,
        condition.message.as_deref()?,
    ))
}

fn complete(deployment: &Deployment, replicas: i32) -> bool {
    let status = deployment.status.clone().unwrap_or_default();
    status.observed_generation == deployment.metadata.generation
        && status.available_replicas.unwrap_or(0) == replicas
        && status.updated_replicas.unwrap_or(0) == replicas
        && status.replicas.unwrap_or(0) == replicas
}

async fn patch<K>(api: &Api<K>, name: &str, patch: Value) -> K
where
    K: Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    api.patch(name, &PatchParams::default(), &Patch::Merge(patch))
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deployment_gets_its_pods_and_says_so() {
    let cluster = Cluster::start(&["a", "b"]).await;
    let deployments: Api<Deployment> = cluster.api();
    make(&deployments, deployment("web", 3)).await;
    let done = until(&deployments, "web", |found| {
        found.is_some_and(|found| {
            complete(found, 3)
                && condition(found, "Progressing")
                    .is_some_and(|(_, reason, _)| reason == "NewReplicaSetAvailable")
        })
    })
    .await
    .unwrap();
    assert_eq!(
        condition(&done, "Available"),
        Some((
            "True",
            "MinimumReplicasAvailable",
            "Deployment has minimum availability."
        ))
    );
    assert_eq!(done.annotations()["deployment.kubernetes.io/revision"], "1");
    let sets: Api<ReplicaSet> = cluster.api();
    let sets = until_all(&sets, "app=web", |sets| sets.len() == 1).await;
    let set = &sets[0];
    let hash = &set.labels()["pod-template-hash"];
    assert_eq!(set.name_any(), format!("web-{hash}"));
    assert_eq!(
        set.annotations()["deployment.kubernetes.io/desired-replicas"],
        "3"
    );
    assert_eq!(
        set.annotations()["deployment.kubernetes.io/max-replicas"],
        "4"
    );
    let (_, _, message) = condition(&done, "Progressing").unwrap();
    assert_eq!(
        message,
        format!(
            "ReplicaSet \"{}\" has successfully progressed.",
            set.name_any()
        )
    );
    let pods = until_all(&cluster.api::<Pod>(), "app=web", |pods| pods.len() == 3).await;
    assert!(pods.iter().all(
        |pod| pod.name_any().starts_with(&format!("{}-", set.name_any()))
            && pod.owner_references()[0].uid == set.uid().unwrap()
            && pod.labels()["pod-template-hash"] == *hash
    ));
    let scaled = format!("Scaled up replica set {} from 0 to 3", set.name_any());
    assert_eq!(
        cluster.event_messages("web", "ScalingReplicaSet").await,
        [scaled]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_template_replaces_the_old_pods_and_keeps_the_way_back() {
    let cluster = Cluster::start(&["a"]).await;
    let deployments: Api<Deployment> = cluster.api();
    make(&deployments, deployment("web", 4)).await;
    until(&deployments, "web", |found| {
        found.is_some_and(|found| complete(found, 4))
    })
    .await;
    let image = |image: &str| json!({"spec": {"template": {"spec": {"containers": [{"name": "main", "image": image}]}}}});
    patch(&deployments, "web", image("other")).await;
    let done = until(&deployments, "web", |found| {
        found.is_some_and(|found| complete(found, 4))
    })
    .await
    .unwrap();
    assert_eq!(done.annotations()["deployment.kubernetes.io/revision"], "2");
    let sets: Api<ReplicaSet> = cluster.api();
    let size = |set: &ReplicaSet| set.spec.as_ref().and_then(|spec| spec.replicas);
    let both = until_all(&sets, "app=web", |sets| {
        let mut sizes: Vec<_> = sets.iter().map(size).collect();
        sizes.sort_unstable();
        sizes == [Some(0), Some(4)]
    })
    .await;
    let first = both
        .iter()
        .find(|set| size(set) == Some(0))
        .unwrap()
        .name_any();
    // A rollback uses the first ReplicaSet again, with a new revision.
    patch(&deployments, "web", image("pause")).await;
    until(&deployments, "web", |found| {
        found.is_some_and(|found| {
            complete(found, 4) && found.annotations()["deployment.kubernetes.io/revision"] == "3"
        })
    })
    .await;
    let set = until(&sets, &first, |set| {
        set.is_some_and(|set| size(set) == Some(4))
    })
    .await
    .unwrap();
    assert_eq!(set.annotations()["deployment.kubernetes.io/revision"], "3");
    assert_eq!(
        set.annotations()["deployment.kubernetes.io/revision-history"],
        "1"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn recreate_ends_all_old_pods_before_new_ones() {
    let cluster = Cluster::start(&["a"]).await;
    let deployments: Api<Deployment> = cluster.api();
    let mut wanted = deployment("web", 2);
    wanted["spec"]["strategy"] = json!({"type": "Recreate"});
    make(&deployments, wanted).await;
    until(&deployments, "web", |found| {
        found.is_some_and(|found| complete(found, 2))
    })
    .await;
    patch(
        &deployments,
        "web",
        json!({"spec": {"template": {"metadata": {"labels": {"app": "web", "v": "2"}}}}}),
    )
    .await;
    until(&deployments, "web", |found| {
        found.is_some_and(|found| complete(found, 2))
    })
    .await;
    let pods = until_all(&cluster.api::<Pod>(), "app=web", |pods| pods.len() == 2).await;
    assert!(
        pods.iter()
            .all(|pod| pod.labels().get("v").is_some_and(|label| label == "2"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_deployment_scales_but_does_not_roll() {
    let cluster = Cluster::start(&["a"]).await;
    let deployments: Api<Deployment> = cluster.api();
    make(&deployments, deployment("web", 1)).await;
    until(&deployments, "web", |found| {
        found.is_some_and(|found| complete(found, 1))
    })
    .await;
    patch(&deployments, "web", json!({"spec": {
        "paused": true, "replicas": 2, "template": {"metadata": {"labels": {"app": "web", "v": "2"}}}}})).await;
    let paused = until(&deployments, "web", |found| {
        found.is_some_and(|found| {
            let status = found.status.clone().unwrap_or_default();
            status.observed_generation == found.metadata.generation
                && status.available_replicas == Some(2)
                && condition(found, "Progressing")
                    .is_some_and(|(_, reason, _)| reason == "DeploymentPaused")
        })
    })
    .await
    .unwrap();
    assert_eq!(paused.status.unwrap().updated_replicas, None);
    patch(&deployments, "web", json!({"spec": {"paused": false}})).await;
    until(&deployments, "web", |found| {
        found.is_some_and(|found| complete(found, 2))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_pods_come_and_go() {
    let cluster = Cluster::start(&["a", "b", "c"]).await;
    let deployments: Api<Deployment> = cluster.api();
    let begin = Instant::now();
    make(&deployments, deployment("web", 200)).await;
    until(&deployments, "web", |found| {
        found.is_some_and(|found| complete(found, 200))
    })
    .await;
    // The duration is only printed, because it depends on the machine.
    eprintln!("200 pods available after {:?}", begin.elapsed());
    patch(&deployments, "web", json!({"spec": {"replicas": 3}})).await;
    until(&deployments, "web", |found| {
        found.is_some_and(|found| complete(found, 3))
    })
    .await;
    until_all(&cluster.api::<Pod>(), "app=web", |pods| pods.len() == 3).await;
}

fn daemon_set(name: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": {"app": name}}, "template": template(name)},
    })
}

fn settled(set: &DaemonSet, pods: i32) -> bool {
    let status = set.status.clone().unwrap_or_default();
    status.observed_generation == set.metadata.generation
        && status.desired_number_scheduled == pods
        && status.number_ready == pods
        && status.updated_number_scheduled.unwrap_or(0) == pods
        && status.number_available.unwrap_or(0) == pods
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_set_is_on_every_node_that_fits_and_follows_the_nodes() {
    let cluster = Cluster::start(&["a", "b"]).await;
    let sets: Api<DaemonSet> = cluster.api();
    make(&sets, daemon_set("agent")).await;
    until(&sets, "agent", |set| set.is_some_and(|set| settled(set, 2))).await;
    cluster.add_node("c").await;
    until(&sets, "agent", |set| set.is_some_and(|set| settled(set, 3))).await;
    let pods = until_all(&cluster.api::<Pod>(), "app=agent", |pods| pods.len() == 3).await;
    let tolerated: Vec<String> = pods[0]
        .spec
        .clone()
        .unwrap()
        .tolerations
        .unwrap()
        .into_iter()
        .filter_map(|toleration| toleration.key)
        .map(|key| key.replace("node.kubernetes.io/", ""))
        .collect();
    assert_eq!(
        tolerated,
        [
            "not-ready",
            "unreachable",
            "disk-pressure",
            "memory-pressure",
            "pid-pressure",
            "unschedulable"
        ]
    );
    // This selector leaves one node.
    patch(
        &sets,
        "agent",
        json!({"spec": {"template": {"spec": {"nodeSelector": {"kubernetes.io/hostname": "b"}}}}}),
    )
    .await;
    until(&sets, "agent", |set| set.is_some_and(|set| settled(set, 1))).await;
    let pods = until_all(&cluster.api::<Pod>(), "app=agent", |pods| pods.len() == 1).await;
    assert_eq!(
        pods[0].spec.clone().unwrap().node_name.as_deref(),
        Some("b")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_set_rolls_one_by_one_and_keeps_revisions() {
    let cluster = Cluster::start(&["a", "b", "c"]).await;
    let sets: Api<DaemonSet> = cluster.api();
    make(&sets, daemon_set("agent")).await;
    until(&sets, "agent", |set| set.is_some_and(|set| settled(set, 3))).await;
    let before = until_all(&cluster.api::<Pod>(), "app=agent", |pods| pods.len() == 3).await;
    let hash = &before[0].labels()["controller-revision-hash"];
    patch(
        &sets,
        "agent",
        json!({"spec": {"template": {"metadata": {"annotations": {"v": "2"}}}}}),
    )
    .await;
    until(&sets, "agent", |set| set.is_some_and(|set| settled(set, 3))).await;
    until_all(&cluster.api::<Pod>(), "app=agent", |pods| {
        pods.len() == 3
            && pods
                .iter()
                .all(|pod| pod.labels()["controller-revision-hash"] != *hash)
    })
    .await;
    let revisions: Api<ControllerRevision> = cluster.api();
    let mut numbers: Vec<i64> = until_all(&revisions, "app=agent", |all| all.len() == 2)
        .await
        .iter()
        .map(|revision| revision.revision)
        .collect();
    numbers.sort_unstable();
    assert_eq!(numbers, [1, 2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_pod_of_a_daemon_set_is_replaced() {
    let cluster = Cluster::start(&["a"]).await;
    let sets: Api<DaemonSet> = cluster.api();
    make(&sets, daemon_set("agent")).await;
    until(&sets, "agent", |set| set.is_some_and(|set| settled(set, 1))).await;
    let api: Api<Pod> = cluster.api();
    let pods = until_all(&api, "app=agent", |pods| pods.len() == 1).await;
    let name = pods[0].name_any();
    let failed = json!({"status": {"phase": "Failed", "reason": "UnexpectedAdmissionError"}});
    api.patch_status(&name, &PatchParams::default(), &Patch::Merge(failed))
        .await
        .unwrap();
    until_all(&api, "app=agent", |pods| {
        pods.len() == 1
            && pods[0].name_any() != name
            && pods[0]
                .spec
                .as_ref()
                .is_some_and(|spec| spec.node_name.is_some())
    })
    .await;
    let what = format!("Found failed daemon pod default/{name} on node a, will try to kill it");
    assert_eq!(
        cluster.event_messages("agent", "FailedDaemonPod").await,
        [what]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replication_controller_keeps_its_pods_and_lets_others_go() {
    let cluster = Cluster::start(&["a"]).await;
    let controllers: Api<ReplicationController> = cluster.api();
    let pods: Api<Pod> = cluster.api();
    let object = json!({
        "metadata": {"name": "old"},
        "spec": {"replicas": 2, "selector": {"app": "web"}, "template": template("web")},
    });
    make(&controllers, object).await;
    let has = |ready: i32| {
        move |found: Option<&ReplicationController>| {
            let status = found.and_then(|found| found.status.as_ref());
            status.is_some_and(|status| {
                status.ready_replicas == Some(ready) && status.available_replicas == Some(ready)
            })
        }
    };
    let two = until(&controllers, "old", has(2)).await.unwrap();
    let mine = until_all(&pods, "app=web", |pods| pods.len() == 2).await;
    for pod in &mine {
        let owner = &pod.owner_references()[0];
        assert_eq!(
            (&*owner.kind, &*owner.api_version),
            ("ReplicationController", "v1")
        );
        assert_eq!(owner.uid, two.uid().unwrap());
    }
    // one that it no longer selects is released and replaced
    let released = mine[0].name_any();
    patch(
        &pods,
        &released,
        json!({"metadata": {"labels": {"app": "other"}}}),
    )
    .await;
    until(&pods, &released, |pod| {
        pod.is_some_and(|pod| pod.owner_references().is_empty())
    })
    .await;
    until_all(&pods, "app=web", |pods| pods.len() == 2).await;
    patch(&controllers, "old", json!({"spec": {"replicas": 3}})).await;
    until(&controllers, "old", has(3)).await;
}
