//! NodeResourceTopologies as node-feature-discovery's topology updater writes them (deployer.md 6): owned by its namespace, with the deprecated
//! policies beside the attributes, costs between zones, and a fingerprint of all pods of the node that names no method, or none.

use api::nrt::v1alpha2::NodeResourceTopology;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};

use crate::cluster::{Cluster, PROFILE};

const NO_ZONE: &str = "0/1 nodes are available: 1 cannot align container.";

/// Writes the object of a node with two zones of 8 CPUs, of which so many are left. The fingerprint is that of these pods in `default`.
async fn update(cluster: &Cluster, node: &str, left: [u32; 2], pods: Option<&[&str]>) {
    let zone = |id: usize| {
        let cpus = left[id].to_string();
        let cost = |to: usize| json!({"name": format!("node-{to}"), "value": if to == id { 10 } else { 20 }});
        json!({
            "name": format!("node-{id}"), "type": "Node", "costs": [cost(0), cost(1)],
            "resources": [
                {"name": "cpu", "capacity": "8", "allocatable": "8", "available": cpus},
                {"name": "memory", "capacity": "17179869184", "allocatable": "17179869184", "available": "17179869184"},
            ],
        })
    };
    let mut attributes = vec![
        json!({"name": "topologyManagerPolicy", "value": "single-numa-node"}),
        json!({"name": "topologyManagerScope", "value": "container"}),
    ];
    if let Some(pods) = pods {
        let pods = pods.iter().map(|name| ("default", *name));
        let fingerprint = nrt::fingerprint::compute(pods).to_string();
        attributes.push(json!({"name": "nodeTopologyPodsFingerprint", "value": fingerprint}));
    }
    let object: Value = json!({
        "apiVersion": "topology.node.k8s.io/v1alpha2", "kind": "NodeResourceTopology",
        "metadata": {
            "name": node,
            "ownerReferences": [{
                "apiVersion": "v1", "kind": "Namespace", "name": "node-feature-discovery", "uid": "1a1c4f0e-0000-4000-8000-000000000001",
            }],
        },
        "topologyPolicies": ["SingleNUMANodeContainerLevel"],
        "attributes": attributes,
        "zones": [zone(0), zone(1)],
    });
    let topologies: Api<NodeResourceTopology> = Api::all(cluster.client.clone());
    let params = PatchParams::apply("nfd-topology-updater").force();
    topologies
        .patch(node, &params, &Patch::Apply(object))
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_are_placed_by_zones_and_a_fingerprint_without_a_method_is_of_all_pods() {
    let cluster = Cluster::start().await;
    cluster.node("worker-0", "16", "32Gi").await;
    // a pod without CPUs of its own, which fingerprints of exclusive resources leave out
    cluster
        .pod("shares", "default-scheduler", Some("worker-0"), "500m")
        .await;
    update(&cluster, "worker-0", [8, 4], Some(&["shares"])).await;
    let _scheduler = cluster.scheduler("first", |_| {});
    cluster.pod("large", PROFILE, None, "9").await;
    cluster.rejected("large", NO_ZONE, 1).await;
    cluster.pod("first", PROFILE, None, "5").await;
    assert_eq!(cluster.placed("first").await, "worker-0");
    // which zone it got is not known yet, so it may be either
    cluster.pod("second", PROFILE, None, "4").await;
    cluster.rejected("second", NO_ZONE, 1).await;
    // an object that is older than the pod tells nothing
    update(&cluster, "worker-0", [8, 5], Some(&["shares"])).await;
    cluster.rejected("second", NO_ZONE, 2).await;
    // the object that has the pod tells its zone
    update(&cluster, "worker-0", [3, 4], Some(&["shares", "first"])).await;
    assert_eq!(cluster.placed("second").await, "worker-0");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_fingerprint_pods_are_placed_and_stay_charged_to_every_zone() {
    let cluster = Cluster::start().await;
    cluster.node("worker-0", "16", "32Gi").await;
    update(&cluster, "worker-0", [8, 4], None).await;
    let _scheduler = cluster.scheduler("first", |_| {});
    cluster.pod("first", PROFILE, None, "5").await;
    assert_eq!(cluster.placed("first").await, "worker-0");
    cluster.pod("second", PROFILE, None, "4").await;
    cluster.rejected("second", NO_ZONE, 1).await;
    // nothing tells whether this object has the pod
    update(&cluster, "worker-0", [3, 4], None).await;
    cluster.rejected("second", NO_ZONE, 2).await;
    // a pod that is gone holds nothing
    cluster.delete("first").await;
    update(&cluster, "worker-0", [8, 4], None).await;
    assert_eq!(cluster.placed("second").await, "worker-0");
}
