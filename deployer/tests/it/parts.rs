//! Parts of the stack, one after another, and the stack from what `render` prints.

use std::collections::BTreeMap;

use api::nrt::v1alpha2::NodeResourceTopology;
use apply::Applier;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};
use k8s_openapi::api::rbac::v1::Role;
use kube::ResourceExt as _;
use kube::api::{Api, ListParams, PostParams};
use serde::Deserialize as _;
use serde_json::{Value, json};

use crate::cluster::{TestCluster, all_objects, assert_same};
use crate::deployment::{DEPLOY, WITHIN, gone, placed, run};
use crate::process::deployer;

const REMOVE: &str = "remove --wait --wait-interval=200ms";
/// Annotation with the fingerprint of exporters that know no attributes (scheduler.md 5.8).
const ANNOTATION: &str = "topology.node.k8s.io/fingerprint";
const ATTRIBUTE: &str = "nodeTopologyPodsFingerprint";

/// Waits until every worker has published its zones with CPUs. Returns the objects.
pub(crate) async fn published(cluster: &TestCluster) -> Vec<NodeResourceTopology> {
    let topologies: Api<NodeResourceTopology> = Api::all(cluster.client());
    let found = testbed::eventually(WITHIN, async || {
        let found = topologies.list(&ListParams::default()).await.unwrap().items;
        let has_cpus = |it: &NodeResourceTopology| {
            let mut resources = it.zones.iter().flat_map(|zone| &zone.resources);
            resources.any(|resource| resource.name == "cpu")
        };
        if found.len() == 2 && found.iter().all(has_cpus) {
            Ok(found)
        } else {
            Err(format!("{found:?}"))
        }
    });
    found.await.expect("both workers have published")
}

/// Returns whether an object has a fingerprint in either form.
pub(crate) fn has_fingerprint(topology: &NodeResourceTopology) -> bool {
    let mut attributes = topology.attributes.iter();
    attributes.any(|attribute| attribute.name == ATTRIBUTE)
        || topology.annotations().contains_key(ANNOTATION)
}

#[tokio::test(flavor = "multi_thread")]
async fn api_and_scheduler_come_alone_and_exporters_without_fingerprints() {
    let cluster = TestCluster::up().await;
    let before = all_objects(&cluster.client()).await;
    for verbosity in ["", "--sched-verbose=9 "] {
        run(&cluster, &format!("{DEPLOY} api")).await.log();
        let scheduler =
            format!("{verbosity}{DEPLOY} scheduler-plugin --sched-ctrlplane-affinity=false");
        run(&cluster, &scheduler).await.log();
        let maps: Api<ConfigMap> = Api::namespaced(cluster.client(), "tas-scheduler");
        let map = maps.get("scheduler-config").await.unwrap();
        let config: Value =
            serde_yaml::from_str(map.data.unwrap().values().next().unwrap()).unwrap();
        let profiles = config["profiles"].as_array().unwrap();
        assert_eq!(profiles.len(), 1, "{config}");
        let arguments = &profiles[0]["pluginConfig"][0]["args"];
        assert!(
            arguments["cacheResyncPeriodSeconds"].as_u64().unwrap() > 0,
            "{config}"
        );
        let deployments: Api<Deployment> = Api::namespaced(cluster.client(), "tas-scheduler");
        let deployment = deployments.get("topology-aware-scheduler").await.unwrap();
        assert_eq!(deployment.status.unwrap().available_replicas, Some(1));
        let command = serde_json::to_string(&deployment.spec).unwrap();
        assert_eq!(command.contains("-v=9"), !verbosity.is_empty(), "{command}");
        let sets: Api<DaemonSet> = Api::all(cluster.client());
        assert_eq!(
            sets.list(&ListParams::default()).await.unwrap().items.len(),
            0
        );
        run(&cluster, &format!("{REMOVE} scheduler-plugin"))
            .await
            .log();
        run(&cluster, &format!("{REMOVE} api")).await.log();
    }

    run(&cluster, &format!("--updater-pfp-enable=false {DEPLOY}"))
        .await
        .log();
    let topologies = published(&cluster).await;
    assert!(!topologies.iter().any(has_fingerprint), "{topologies:?}");
    run(&cluster, DEPLOY).await.log();
    let topologies: Api<NodeResourceTopology> = Api::all(cluster.client());
    let fingerprints = testbed::eventually(WITHIN, async || {
        let found = topologies.list(&ListParams::default()).await.unwrap().items;
        if found.iter().all(has_fingerprint) {
            Ok(())
        } else {
            Err(format!("{found:?}"))
        }
    });
    fingerprints
        .await
        .expect("the exporters have them by default");
    run(&cluster, REMOVE).await.log();
    assert_same(&before, &all_objects(&cluster.client()).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_render_prints_places_pods_once_it_is_created_and_remove_takes_it_away() {
    let cluster = TestCluster::up().await;
    let rendered = deployer("-P kubernetes:v1.35 render").stdout();
    let applier = Applier::new(cluster.client());
    for document in serde_yaml::Deserializer::from_str(&rendered) {
        let object = Value::deserialize(document).unwrap();
        // kubectl waits for a definition as little, but whoever calls it does
        let created = testbed::eventually(WITHIN, async || {
            applier
                .apply(&object)
                .await
                .map_err(|error| error.to_string())
        });
        created.await.unwrap();
    }
    let topologies = published(&cluster).await;
    let zones: BTreeMap<String, usize> = topologies
        .iter()
        .map(|it| (it.name_any(), it.zones.len()))
        .collect();
    assert_eq!(
        zones.into_keys().collect::<Vec<_>>(),
        ["worker-0", "worker-1"]
    );
    assert!(topologies.iter().all(has_fingerprint), "{topologies:?}");
    let pods: Api<Pod> = Api::default_namespaced(cluster.client());
    placed(&pods, "aligned").await;
    gone(&pods, "aligned").await;
    run(&cluster, REMOVE).await.log();
    let names = all_objects(&cluster.client()).await;
    let left: Vec<&String> = names
        .keys()
        .filter(|name| name.contains("Deployment") || name.contains("DaemonSet"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_right_to_a_lease_elsewhere_goes_with_the_flag_and_with_the_scheduler() {
    const ELSEWHERE: &str = "--sched-leader-elect-resource=elsewhere/mine";
    let cluster = TestCluster::up().await;
    let namespaces: Api<Namespace> = Api::all(cluster.client());
    let elsewhere = serde_json::from_value(json!({"metadata": {"name": "elsewhere"}})).unwrap();
    namespaces
        .create(&PostParams::default(), &elsewhere)
        .await
        .unwrap();
    // what controllers put into a namespace is there from now on
    let before = testbed::eventually(WITHIN, async || {
        let all = all_objects(&cluster.client()).await;
        if all.contains_key("/ServiceAccount elsewhere/default")
            && all.contains_key("/ConfigMap elsewhere/kube-root-ca.crt")
        {
            Ok(all)
        } else {
            Err("not complete".to_owned())
        }
    });
    let before = before.await.unwrap();
    let roles: Api<Role> = Api::namespaced(cluster.client(), "elsewhere");
    let count = async || {
        roles
            .list(&ListParams::default())
            .await
            .unwrap()
            .items
            .len()
    };
    run(&cluster, "deploy api").await.log();
    for without_it in ["deploy scheduler-plugin", "remove scheduler-plugin --wait"] {
        let with_it = format!("deploy scheduler-plugin -R 2 {ELSEWHERE}");
        run(&cluster, &with_it).await.log();
        assert_eq!(count().await, 1);
        let log = run(&cluster, without_it).await.log();
        for kind in ["Role", "RoleBinding"] {
            let line =
                format!("SCD: deleted kind={kind} name=topology-aware-scheduler-leader-elect");
            assert!(log.contains(&line), "{line} in {log:#?}");
        }
        assert_eq!(count().await, 0, "{without_it}");
    }
    run(&cluster, &format!("{REMOVE} api")).await.log();
    assert_same(&before, &all_objects(&cluster.client()).await);
}

/// Its image has no program here, so nothing is waited for.
#[tokio::test(flavor = "multi_thread")]
async fn the_other_updater_comes_and_goes() {
    let cluster = TestCluster::up().await;
    let before = all_objects(&cluster.client()).await;
    let parts = ["api", "topology-updater"];
    for part in parts {
        run(&cluster, &format!("--updater-type=NFD deploy {part}"))
            .await
            .log();
    }
    let sets: Api<DaemonSet> = Api::namespaced(cluster.client(), "node-feature-discovery");
    let set = sets.get("nfd-topology-updater").await.unwrap();
    let container = &set.spec.unwrap().template.spec.unwrap().containers[0];
    assert_eq!(
        container.command,
        Some(vec!["nfd-topology-updater".to_owned()])
    );
    let pods: Api<Pod> = Api::namespaced(cluster.client(), "node-feature-discovery");
    let found = testbed::eventually(WITHIN, async || {
        let found = pods.list(&ListParams::default()).await.unwrap().items;
        if found.len() == 2 {
            Ok(())
        } else {
            Err(format!("{found:?}"))
        }
    });
    found.await.expect("one pod a worker");
    for part in parts.into_iter().rev() {
        let command = format!("--updater-type=NFD {REMOVE} {part}");
        run(&cluster, &command).await.log();
    }
    assert_same(&before, &all_objects(&cluster.client()).await);
}
