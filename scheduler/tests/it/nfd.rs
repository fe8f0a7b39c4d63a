//! NodeResourceTopologies of node-feature-discovery's topology updater (deployer.md 6), recorded on a node with a real kubelet and pretend hardware:
//! without a fingerprint, and with one of all pods of the node before and after a Guaranteed pod. `docs/deployer.md` says how they are recorded.

use std::collections::BTreeSet;

use api::nrt::v1alpha2::NodeResourceTopology;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::cluster::{Cluster, PROFILE};

/// Written by the test that records (`deployer/tests/it/nfd.rs`).
const RECORDING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/nfd.json");
const NO_ZONE: &str = "0/1 nodes are available: 1 cannot align pod.";
/// The Guaranteed pod of the recording, and its CPUs.
const ALIGNED: &str = "aligned";
const CPUS: u64 = 2;

/// What was recorded of one node.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Recording {
    /// What the program says of its version.
    program: String,
    /// The object without a fingerprint.
    without: Value,
    before: Accounted,
    after: Accounted,
}

/// An object with namespace and name of each pod that its fingerprint is of.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Accounted {
    topology: Value,
    pods: BTreeSet<(String, String)>,
}

fn recording() -> Recording {
    serde_json::from_str(&fs_err::read_to_string(RECORDING).unwrap()).unwrap()
}

/// Returns the CPUs that are left in each zone.
fn left(topology: &Value) -> Vec<u64> {
    let zones = topology["zones"].as_array().unwrap().iter();
    zones
        .map(|zone| {
            let mut resources = zone["resources"].as_array().unwrap().iter();
            let cpu = resources.find(|it| it["name"] == "cpu").unwrap();
            cpu["available"].as_str().unwrap().parse().unwrap()
        })
        .collect()
}

fn attribute<'a>(topology: &'a Value, name: &str) -> Option<&'a str> {
    let mut attributes = topology["attributes"].as_array()?.iter();
    attributes.find(|it| it["name"] == name)?["value"].as_str()
}

fn node(topology: &Value) -> &str {
    topology["metadata"]["name"].as_str().unwrap()
}

async fn publish(cluster: &Cluster, topology: &Value) {
    let topologies: Api<NodeResourceTopology> = Api::all(cluster.client.clone());
    let params = PatchParams::apply("nfd-topology-updater").force();
    topologies
        .patch(node(topology), &params, &Patch::Apply(topology))
        .await
        .unwrap();
}

/// Starts a cluster with the recorded node and these pods on it, which ask for nothing.
async fn cluster(topology: &Value, pods: &BTreeSet<(String, String)>) -> Cluster {
    let cluster = Cluster::start().await;
    let node = node(topology);
    cluster.node(node, "48", "128Gi").await;
    let namespaces: Api<Namespace> = Api::all(cluster.client.clone());
    for (namespace, name) in pods {
        let object = serde_json::from_value(json!({"metadata": {"name": namespace}})).unwrap();
        // several pods may be in one
        let _ = namespaces.create(&PostParams::default(), &object).await;
        let pod = json!({
            "metadata": {"name": name},
            "spec": {"nodeName": node, "containers": [{"name": "main", "image": "pause"}]},
        });
        let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), namespace);
        let pod = serde_json::from_value(pod).unwrap();
        pods.create(&PostParams::default(), &pod).await.unwrap();
    }
    publish(&cluster, topology).await;
    cluster
}

#[test]
fn the_recorded_fingerprints_are_of_all_pods_and_name_no_method() {
    let Recording {
        program,
        without,
        before,
        after,
    } = recording();
    assert!(program.starts_with("nfd-topology-updater v"), "{program}");
    for accounted in [&before, &after] {
        let pods = accounted.pods.iter();
        let pods = pods.map(|(namespace, name)| (namespace.as_str(), name.as_str()));
        let expected = nrt::fingerprint::compute(pods).to_string();
        let of = |name: &str| attribute(&accounted.topology, name);
        assert_eq!(of("nodeTopologyPodsFingerprint"), Some(expected.as_str()));
        assert_eq!(of("nodeTopologyPodsFingerprintMethod"), None);
    }
    assert_eq!(attribute(&without, "nodeTopologyPodsFingerprint"), None);
    let aligned = ("default".to_owned(), ALIGNED.to_owned());
    let gone: Vec<_> = after.pods.difference(&before.pods).collect();
    assert_eq!(gone, [&aligned]);
    let taken =
        left(&before.topology).iter().sum::<u64>() - left(&after.topology).iter().sum::<u64>();
    assert_eq!(taken, CPUS);
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_are_placed_by_zones_and_a_fingerprint_without_a_method_is_of_all_pods() {
    let Recording { before, after, .. } = recording();
    let node = node(&before.topology);
    let most = *left(&before.topology).iter().max().unwrap();
    let cluster = cluster(&before.topology, &before.pods).await;
    let _scheduler = cluster.scheduler("first", |_| {});
    cluster
        .pod("large", PROFILE, None, &(most + 1).to_string())
        .await;
    cluster.rejected("large", NO_ZONE, 1).await;
    cluster.pod(ALIGNED, PROFILE, None, &CPUS.to_string()).await;
    assert_eq!(cluster.placed(ALIGNED).await, node);
    // which zone it got is not known yet, so it may be either
    cluster
        .pod("second", PROFILE, None, &most.to_string())
        .await;
    cluster.rejected("second", NO_ZONE, 1).await;
    // the object that has the pod tells its zone
    publish(&cluster, &after.topology).await;
    assert_eq!(cluster.placed("second").await, node);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_fingerprint_pods_are_placed_and_stay_charged_to_every_zone() {
    let Recording { without, after, .. } = recording();
    let node = node(&without);
    let most = *left(&without).iter().max().unwrap();
    let cluster = cluster(&without, &BTreeSet::new()).await;
    let _scheduler = cluster.scheduler("first", |_| {});
    cluster.pod("first", PROFILE, None, &CPUS.to_string()).await;
    assert_eq!(cluster.placed("first").await, node);
    cluster
        .pod("second", PROFILE, None, &most.to_string())
        .await;
    cluster.rejected("second", NO_ZONE, 1).await;
    // nothing tells whether this object has the pod
    let mut later = without.clone();
    later["zones"] = after.topology["zones"].clone();
    publish(&cluster, &later).await;
    cluster.rejected("second", NO_ZONE, 2).await;
    // a pod that is gone holds nothing
    cluster.delete("first").await;
    publish(&cluster, &without).await;
    assert_eq!(cluster.placed("second").await, node);
}
