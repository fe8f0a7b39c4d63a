use std::sync::Arc;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod as WirePod};
use k8s_openapi::api::storage::v1::{CSINode, StorageClass};
use scheduler_config::default_plugins::DefaultPreemptionArgs;
use serde_json::{Value, json};

use super::*;
use crate::framework::default_preemption::preempt;
use crate::framework::extension_points::{Attempt, Filters};
use crate::plugins::node_info::NodeInfo;
use crate::plugins::volumes::volume_restrictions::IN_USE;
use crate::state::storage::{self, Kind, Reservation, Stored};
use crate::testing::{mk_cache, mk_node};

/// Builds a cluster with the nodes `a` and `b`.
fn mk_cluster() -> Cluster {
    let mut cluster = Cluster::new();
    for name in ["a", "b"] {
        cluster.apply_node(mk_node(name, "cpu=8"));
    }
    cluster
}

fn add<K: Stored>(cluster: &mut Cluster, object: Value) {
    let wire: K = serde_json::from_value(object).expect("object");
    let (key, object) = storage::read(wire).expect("named");
    cluster.storage_mut().apply(key, object);
}

/// Adds a volume of this size that only one node can use.
fn add_volume(cluster: &mut Cluster, name: &str, size: &str, node: &str) {
    let term = json!({"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]});
    add::<PersistentVolume>(
        cluster,
        json!({
            "metadata": {"name": name, "uid": format!("uid-{name}")},
            "spec": {
                "storageClassName": "local",
                "capacity": {"storage": size},
                "accessModes": ["ReadWriteOnce"],
                "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
            },
            "status": {"phase": "Available"},
        }),
    );
}

fn add_class(cluster: &mut Cluster, provisioner: &str) {
    add::<StorageClass>(
        cluster,
        json!({"metadata": {"name": "local"}, "provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer"}),
    );
}

fn add_claim(cluster: &mut Cluster, name: &str, mode: &str, volume: Option<&str>) {
    let mut claim = json!({
        "metadata": {"name": name, "namespace": "ns", "uid": format!("uid-{name}")},
        "spec": {
            "storageClassName": "local",
            "accessModes": [mode],
            "resources": {"requests": {"storage": "1Gi"}},
        },
    });
    if let Some(volume) = volume {
        claim["spec"]["volumeName"] = json!(volume);
        claim["metadata"]["annotations"] = json!({"pv.kubernetes.io/bind-completed": "yes"});
    }
    add::<PersistentVolumeClaim>(cluster, claim);
}

fn mk_pod(name: &str, node: Option<&str>, claims: &[&str]) -> Pod {
    let volume =
        |claim: &&str| json!({"name": claim, "persistentVolumeClaim": {"claimName": claim}});
    let volumes: Vec<Value> = claims.iter().map(volume).collect();
    let wire: WirePod = serde_json::from_value(json!({
        "metadata": {"name": name, "namespace": "ns", "uid": format!("uid-{name}")},
        "spec": {"nodeName": node, "containers": [], "volumes": volumes},
    }))
    .expect("pod");
    Pod::read(wire).expect("named")
}

/// Returns why these plugins rule out a node.
fn reasons(cluster: &Cluster, plugins: &[Plugin], pod: &Pod, node: &str) -> Vec<String> {
    let filters = Filters::from(plugins);
    let cache = mk_cache(true);
    let info = NodeInfo::named(node, cluster, &cache).expect("known");
    match Attempt::new(&filters, cluster, pod).examine(&info) {
        Ok(()) => Vec::new(),
        Err(rejection) => {
            let reasons = rejection.reasons.into_iter();
            reasons.map(std::borrow::Cow::into_owned).collect()
        }
    }
}

fn reserved(cluster: &Cluster, pod: &Pod, node: &str) -> Option<Reservation> {
    let state = cluster.node(node).expect("node");
    volume_binding::reservation(cluster, pod, state.node.as_ref().expect("known"))
}

#[test]
fn a_claim_that_waits_gets_the_smallest_volume_of_the_node() {
    let mut cluster = mk_cluster();
    add_class(&mut cluster, "kubernetes.io/no-provisioner");
    for (name, size, node) in [
        ("large", "9Gi", "a"),
        ("fits", "2Gi", "a"),
        ("tiny", "1Mi", "a"),
        ("elsewhere", "1Gi", "c"),
    ] {
        add_volume(&mut cluster, name, size, node);
    }
    add_claim(&mut cluster, "c", "ReadWriteOnce", None);
    let pod = mk_pod("p", None, &["c"]);
    let plugins = [Plugin::VolumeBinding];
    assert_eq!(reasons(&cluster, &plugins, &pod, "a"), [""; 0]);
    let given = reserved(&cluster, &pod, "a").expect("unbound").volumes;
    assert_eq!(given[0].0, "fits");
    assert_eq!(
        reasons(&cluster, &plugins, &pod, "b"),
        ["node(s) didn't find available persistent volumes to bind"]
    );
}

#[test]
fn a_volume_that_is_taken_for_one_pod_is_not_there_for_another_until_it_is_given_back() {
    let mut cluster = mk_cluster();
    add_class(&mut cluster, "kubernetes.io/no-provisioner");
    add_volume(&mut cluster, "v", "1Gi", "a");
    for name in ["c", "d"] {
        add_claim(&mut cluster, name, "ReadWriteOnce", None);
    }
    let (first, second) = (mk_pod("p", None, &["c"]), mk_pod("q", None, &["d"]));
    let taken = reserved(&cluster, &first, "a").expect("unbound");
    cluster.storage_mut().reserve("uid-p", taken);
    let plugins = [Plugin::VolumeBinding];
    assert_eq!(reasons(&cluster, &plugins, &second, "a").len(), 1);
    // a pod that shares the claim shares the volume
    let companion = mk_pod("r", None, &["c"]);
    assert_eq!(reasons(&cluster, &plugins, &companion, "a"), [""; 0]);
    assert!(cluster.storage_mut().release("uid-p"));
    assert_eq!(reasons(&cluster, &plugins, &second, "a"), [""; 0]);
}

#[test]
fn a_volume_that_is_to_be_made_ties_its_claim_to_a_node() {
    let mut cluster = mk_cluster();
    add_class(&mut cluster, "example.com/disks");
    add_claim(&mut cluster, "c", "ReadWriteOnce", None);
    let pod = mk_pod("p", None, &["c"]);
    let taken = reserved(&cluster, &pod, "b").expect("unbound");
    assert_eq!(taken.provisions.len(), 1);
    cluster.storage_mut().reserve("uid-p", taken);
    let plugins = [Plugin::VolumeBinding];
    let companion = mk_pod("q", None, &["c"]);
    assert_eq!(reasons(&cluster, &plugins, &companion, "b"), [""; 0]);
    assert_eq!(reasons(&cluster, &plugins, &companion, "a").len(), 1);
}

#[test]
fn a_bound_claim_needs_nothing_but_its_node() {
    let mut cluster = mk_cluster();
    add_volume(&mut cluster, "v", "1Gi", "a");
    add_claim(&mut cluster, "c", "ReadWriteOnce", Some("v"));
    let pod = mk_pod("p", None, &["c"]);
    assert_eq!(reserved(&cluster, &pod, "a"), None);
    assert_eq!(
        reasons(&cluster, &[Plugin::VolumeBinding], &pod, "b"),
        ["node(s) didn't match PersistentVolume's node affinity"]
    );
    assert_eq!(reasons(&cluster, &[], &pod, "b"), [""; 0]);
}

#[test]
fn what_is_wrong_with_a_claim_is_said_once_for_all_nodes() {
    let mut cluster = mk_cluster();
    let pod = mk_pod("p", None, &["c"]);
    for plugin in [
        Plugin::VolumeRestrictions,
        Plugin::VolumeBinding,
        Plugin::VolumeZone,
    ] {
        let filters = Filters::from(&[plugin][..]);
        let rejection = Volumes::new(&filters.plugins, &cluster, &pod).err();
        let rejection = rejection.expect("missing");
        assert_eq!(rejection.reasons, ["persistentvolumeclaim \"c\" not found"]);
        assert!(rejection.everywhere && rejection.unresolvable);
        assert_eq!(rejection.plugin, plugin);
    }
    // unless its class waits for a consumer, another component has to bind the claim
    add_claim(&mut cluster, "c", "ReadWriteOnce", None);
    assert_eq!(
        reasons(&cluster, &[Plugin::VolumeBinding], &pod, "a"),
        ["pod has unbound immediate PersistentVolumeClaims"]
    );
}

#[test]
fn a_claim_for_one_pod_is_refused_to_a_second_and_its_user_may_be_evicted() {
    let mut cluster = mk_cluster();
    add_claim(&mut cluster, "c", "ReadWriteOncePod", Some("v"));
    let user = mk_pod("user", Some("b"), &["c"]);
    cluster.apply_pod(user.clone());
    let pod = mk_pod("p", None, &["c"]);
    let plugins = [Plugin::VolumeRestrictions];
    for node in ["a", "b"] {
        assert_eq!(reasons(&cluster, &plugins, &pod, node), [IN_USE]);
    }
    let gone = cluster.take_out(&user.key).expect("there");
    assert_eq!(reasons(&cluster, &plugins, &pod, "b"), [""; 0]);
    cluster.put_back(gone);
    assert_eq!(reasons(&cluster, &plugins, &pod, "b"), [IN_USE]);
    cluster.delete_pod(&user.key);
    assert_eq!(reasons(&cluster, &plugins, &pod, "b"), [""; 0]);
}

#[test]
fn the_user_of_a_claim_for_one_pod_gives_way_on_its_node_and_nobody_else_does() {
    let mut cluster = mk_cluster();
    add_claim(&mut cluster, "c", "ReadWriteOncePod", Some("v"));
    cluster.apply_pod(mk_pod("user", Some("b"), &["c"]));
    for (name, node) in [("other", "a"), ("neighbour", "b")] {
        cluster.apply_pod(mk_pod(name, Some(node), &[]));
    }
    let pod = Pod {
        priority: 1,
        ..mk_pod("p", None, &["c"])
    };
    let rejected = ["a", "b"].map(|node| {
        let rejection = Rejection::new(Plugin::VolumeRestrictions, IN_USE);
        (Arc::<str>::from(node), Arc::new(rejection))
    });
    let candidate = preempt(
        &Filters::from(&[Plugin::VolumeRestrictions][..]),
        DefaultPreemptionArgs::default(),
        &mut cluster,
        &mk_cache(true),
        &pod,
        &rejected,
        0,
    );
    let candidate = candidate.expect("the user is evicted");
    let victims: Vec<&str> = candidate
        .victims
        .iter()
        .map(|victim| victim.key.name.as_str())
        .collect();
    assert_eq!((candidate.node.as_str(), victims), ("b", vec!["user"]));
}

#[test]
fn volumes_that_pods_share_are_counted_once() {
    let mut cluster = mk_cluster();
    add::<CSINode>(
        &mut cluster,
        json!({"metadata": {"name": "a"}, "spec": {"drivers": [{"name": "d", "nodeID": "n", "allocatable": {"count": 1}}]}}),
    );
    for name in ["v", "w"] {
        add::<PersistentVolume>(
            &mut cluster,
            json!({"metadata": {"name": name}, "spec": {"csi": {"driver": "d", "volumeHandle": name}}}),
        );
    }
    add_claim(&mut cluster, "c", "ReadWriteMany", Some("v"));
    add_claim(&mut cluster, "d", "ReadWriteMany", Some("w"));
    cluster.apply_pod(mk_pod("other", Some("a"), &["c"]));
    let plugins = [Plugin::NodeVolumeLimits];
    let same = mk_pod("p", None, &["c"]);
    assert_eq!(reasons(&cluster, &plugins, &same, "a"), [""; 0]);
    let another = mk_pod("p", None, &["d"]);
    assert_eq!(
        reasons(&cluster, &plugins, &another, "a"),
        ["node(s) exceed max volume count"]
    );
    // a node that publishes no limits has none
    assert_eq!(reasons(&cluster, &plugins, &another, "b"), [""; 0]);
}

#[test]
fn a_zonal_in_tree_volume_is_refused_where_a_csi_driver_serves_it() {
    let mut cluster = mk_cluster();
    add::<PersistentVolume>(
        &mut cluster,
        json!({
            "metadata": {"name": "v", "labels": {"topology.kubernetes.io/zone": "z"}},
            "spec": {"awsElasticBlockStore": {"volumeID": "vol-1"}},
        }),
    );
    add_claim(&mut cluster, "c", "ReadWriteOnce", Some("v"));
    let migrated = json!({"storage.alpha.kubernetes.io/migrated-plugins": "kubernetes.io/aws-ebs"});
    add::<CSINode>(
        &mut cluster,
        json!({"metadata": {"name": "a", "annotations": migrated}, "spec": {"drivers": []}}),
    );
    let pod = mk_pod("p", None, &["c"]);
    let plugins = [Plugin::VolumeBinding];
    assert_eq!(reasons(&cluster, &plugins, &pod, "a").len(), 1);
    assert_eq!(reasons(&cluster, &plugins, &pod, "b"), [""; 0]);
}

#[test]
fn pods_with_claims_wait_until_everything_is_known_and_others_do_not() {
    let mut cluster = mk_cluster();
    *cluster.storage_mut() = Storage::unknown();
    let plugins = PLUGINS;
    let with = mk_pod("p", None, &["c"]);
    let reason = reasons(&cluster, &plugins, &with, "a").remove(0);
    assert!(reason.contains("persistentvolumeclaims"), "{reason}");
    let without = mk_pod("q", None, &[]);
    assert_eq!(reasons(&cluster, &plugins, &without, "a"), [""; 0]);
    for kind in Kind::ALL {
        cluster.storage_mut().retain(kind, &[].into());
    }
    assert_eq!(
        reasons(&cluster, &plugins, &with, "a"),
        ["persistentvolumeclaim \"c\" not found"]
    );
}
