//! Follows the scheduler resource from its creation to a ready scheduler.

use api::names;
use api::scheduler::v1::NumaResourcesScheduler;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{Api, PostParams};
use serde_json::json;

use crate::cluster::Cluster;

const CR: &str = "numaresourcesscheduler";

fn conditions(cr: &NumaResourcesScheduler) -> Vec<Condition> {
    cr.status
        .as_ref()
        .map(|status| status.conditions.clone())
        .unwrap_or_default()
}

/// Returns the conditions except the one about the informer, which may be True together with any of them.
fn base(cr: &NumaResourcesScheduler) -> Vec<Condition> {
    conditions(cr)
        .into_iter()
        .filter(|condition| condition.type_ != "DedicatedInformerActive")
        .collect()
}

fn config(map: &ConfigMap) -> &str {
    &map.data.as_ref().unwrap()["config.yaml"]
}

struct Scheduler {
    cluster: Cluster,
    crs: Api<NumaResourcesScheduler>,
    deployments: Api<Deployment>,
    maps: Api<ConfigMap>,
}

#[tokio::test(flavor = "multi_thread")]
async fn scheduler_resource_is_checked_installed_and_reported() {
    let cluster = Cluster::start().await;
    let crs: Api<NumaResourcesScheduler> = Api::all(cluster.client.clone());
    let deployments: Api<Deployment> = cluster.namespaced();
    let maps: Api<ConfigMap> = cluster.namespaced();
    let scheduler = Scheduler {
        cluster,
        crs,
        deployments,
        maps,
    };
    refuses_an_image_with_a_tag(&scheduler).await;
    installs_an_image_with_a_trusted_digest(&scheduler).await;
    adds_and_removes_settings(&scheduler).await;
    keeps_what_is_known_of_the_informer(&scheduler).await;
    refuses_more_schedulers_than_nodes(&scheduler).await;
}

/// Checks that an image with a tag is refused, and that nothing is created.
async fn refuses_an_image_with_a_tag(scheduler: &Scheduler) {
    let Scheduler {
        cluster,
        crs,
        deployments,
        ..
    } = scheduler;
    let cr = serde_json::from_value(
        json!({"metadata": {"name": CR}, "spec": {"imageSpec": "stack:dev"}}),
    )
    .unwrap();
    crs.create(&PostParams::default(), &cr).await.unwrap();
    let message = "image \"stack:dev\" must be referenced by digest, not by tag";
    cluster
        .condition(
            crs,
            CR,
            base,
            ("Degraded", "InvalidSchedulerImage", message),
        )
        .await;
    assert!(
        deployments
            .get_opt("secondary-scheduler")
            .await
            .unwrap()
            .is_none()
    );
}

async fn installs_an_image_with_a_trusted_digest(scheduler: &Scheduler) {
    let Scheduler {
        cluster,
        crs,
        deployments,
        maps,
    } = scheduler;
    cluster
        .merge(
            crs,
            CR,
            json!({"spec": {"imageSpec": names::pinned_stack_image(), "schedulerName": "numa"}}),
        )
        .await;
    cluster
        .condition(crs, CR, base, ("Progressing", "Progressing", ""))
        .await;
    let deployment = cluster.appears(deployments, "secondary-scheduler").await;
    assert_eq!(deployment.spec.as_ref().unwrap().replicas, Some(1));
    let map = maps.get("topo-aware-scheduler-config").await.unwrap();
    assert!(
        config(&map).contains("schedulerName: numa\n")
            && config(&map).contains("leaderElect: true"),
        "{}",
        config(&map)
    );
    let now = "2026-01-01T00:00:00Z";
    let available = json!({"type": "Available", "status": "True", "lastUpdateTime": now, "lastTransitionTime": now, "reason": "R", "message": ""});
    let report = async || {
        let generation = deployments
            .get("secondary-scheduler")
            .await
            .unwrap()
            .metadata
            .generation;
        let status = json!({"observedGeneration": generation, "replicas": 1, "readyReplicas": 1, "availableReplicas": 1, "conditions": [available.clone()]});
        cluster
            .report(deployments, "secondary-scheduler", status)
            .await;
    };
    report().await;
    let live = cluster
        .condition(crs, CR, base, ("Available", "Available", ""))
        .await;
    let status = live.status.clone().unwrap();
    assert_eq!(status.scheduler_name.as_deref(), Some("numa"));
    assert_eq!(status.cache_resync_period.as_deref(), Some("5s"));
    assert_eq!(
        status.deployment.unwrap().to_string(),
        "numaresources/secondary-scheduler"
    );
    assert_eq!(status.related_objects.len(), 2);
    let informer = conditions(&live)
        .into_iter()
        .find(|condition| condition.type_ == "DedicatedInformerActive")
        .unwrap();
    assert_eq!(informer.status, "True");
}

/// Checks that settings are added to the configuration and removed again, and that the pods get it.
async fn adds_and_removes_settings(scheduler: &Scheduler) {
    let Scheduler {
        cluster,
        crs,
        deployments,
        maps,
    } = scheduler;
    let old_hash = pod_hash(&deployments.get("secondary-scheduler").await.unwrap());
    cluster
        .merge(
            crs,
            CR,
            json!({"spec": {"cacheResyncPeriod": "0s", "schedulerName": null}}),
        )
        .await;
    cluster
        .eventually(|| async {
            let map = maps.get("topo-aware-scheduler-config").await.unwrap();
            let text = config(&map);
            let right = !text.contains("cacheResyncPeriodSeconds")
                && text.contains("schedulerName: topo-aware-scheduler");
            if right { Ok(()) } else { Err(text.to_owned()) }
        })
        .await;
    cluster
        .eventually(|| async {
            let hash = pod_hash(&deployments.get("secondary-scheduler").await.unwrap());
            if hash == old_hash {
                Err("pods are not rolled".into())
            } else {
                Ok(())
            }
        })
        .await;
}

/// Checks that a refused image says nothing of the scheduler that runs on: its informer is the one of the last configuration.
async fn keeps_what_is_known_of_the_informer(scheduler: &Scheduler) {
    let Scheduler { cluster, crs, .. } = scheduler;
    let informer = |cr: &NumaResourcesScheduler| {
        let all = conditions(cr).into_iter();
        let mut found = all.filter(|condition| condition.type_ == "DedicatedInformerActive");
        let found = found.next().unwrap();
        (found.status, found.observed_generation)
    };
    let before = cluster
        .eventually(|| async {
            let live = crs.get(CR).await.unwrap();
            let seen = informer(&live);
            if seen == ("True".to_owned(), live.metadata.generation) {
                Ok(live)
            } else {
                Err(format!("{seen:?}"))
            }
        })
        .await;
    let image = |image: &str| json!({"spec": {"imageSpec": image}});
    cluster.merge(crs, CR, image("stack:dev")).await;
    let message = "image \"stack:dev\" must be referenced by digest, not by tag";
    let wanted = ("Degraded", "InvalidSchedulerImage", message);
    let refused = cluster.condition(crs, CR, base, wanted).await;
    assert_eq!(informer(&refused), informer(&before));
    cluster
        .merge(crs, CR, image(&names::pinned_stack_image()))
        .await;
    cluster
        .condition(crs, CR, base, ("Progressing", "Progressing", ""))
        .await;
}

async fn refuses_more_schedulers_than_nodes(scheduler: &Scheduler) {
    let Scheduler { cluster, crs, .. } = scheduler;
    cluster
        .merge(crs, CR, json!({"spec": {"replicas": 2}}))
        .await;
    let message = "failed to compute scheduler replicas: explicitly set replicas count should not be greater than the number of the nodes with role control-plane";
    cluster
        .condition(crs, CR, base, ("Degraded", "InternalError", message))
        .await;
}

fn pod_hash(deployment: &Deployment) -> String {
    let metadata = deployment
        .spec
        .as_ref()
        .unwrap()
        .template
        .metadata
        .as_ref()
        .unwrap();
    metadata.annotations.as_ref().unwrap()["configmap.hash"].clone()
}
