use serde_json::json;
use topology::request::{ContainerKind, Qos};

use super::*;

fn mk_pod(spec: &serde_json::Value, status: &serde_json::Value) -> Pod {
    let wire = json!({
        "metadata": {"name": "p", "namespace": "ns", "uid": "u", "labels": {"app": "x"}},
        "spec": spec,
        "status": status,
    });
    Pod::read(serde_json::from_value(wire).expect("pod")).expect("named")
}

#[test]
fn containers_keep_their_order_and_kind() {
    let pod = mk_pod(
        &json!({
            "schedulerName": "topo",
            "initContainers": [{"name": "i"}, {"name": "s", "restartPolicy": "Always"}],
            "containers": [{"name": "a", "resources": {
                "requests": {"cpu": "1500m", "memory": "1Gi", "vendor/nic": "2"},
                "limits": {"cpu": "1500m", "memory": "1Gi", "vendor/nic": "2"},
            }}],
            "overhead": {"cpu": "250m"},
        }),
        &json!({"phase": "Pending"}),
    );
    let kinds: Vec<_> = pod
        .request
        .containers()
        .iter()
        .map(|container| container.kind)
        .collect();
    assert_eq!(
        kinds,
        [
            ContainerKind::Init,
            ContainerKind::Sidecar,
            ContainerKind::App
        ]
    );
    assert_eq!(pod.node_request.amount("cpu"), 1750);
    assert_eq!(pod.node_request.amount("memory"), 1 << 30);
    assert_eq!(pod.node_request.amount("vendor/nic"), 2);
    // the sidecar counts with the defaults of both
    assert_eq!(pod.nonzero_request, (1850, (1 << 30) + (200 << 20)));
    assert_eq!(
        (pod.phase, pod.deleting, pod.node.as_deref()),
        (Phase::Pending, false, None)
    );
}

#[test]
fn the_class_of_the_status_wins() {
    let pod = mk_pod(
        &json!({"containers": [{"name": "a"}]}),
        &json!({"qosClass": "Burstable"}),
    );
    assert_eq!(pod.request.qos(), Qos::Burstable);
}

#[test]
fn the_condition_is_kept_with_its_reason() {
    let pod = mk_pod(
        &json!({"containers": []}),
        &json!({"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "m"}]}),
    );
    assert_eq!(
        pod.constraints.condition,
        Some(("Unschedulable".to_owned(), "m".to_owned()))
    );
}

#[test]
fn ports_clash_on_equal_or_any_address() {
    let port = |ip: &str, port| HostPort {
        protocol: "TCP".to_owned(),
        ip: ip.to_owned(),
        port,
    };
    assert!(port("0.0.0.0", 80).clashes(&port("10.0.0.1", 80)));
    assert!(!port("10.0.0.2", 80).clashes(&port("10.0.0.1", 80)));
    assert!(!port("0.0.0.0", 81).clashes(&port("0.0.0.0", 80)));
    let pod = mk_pod(
        &json!({"containers": [{"name": "a", "ports": [{"containerPort": 1}, {"containerPort": 2, "hostPort": 3}]}]}),
        &json!({}),
    );
    assert_eq!(pod.host_ports, [port("0.0.0.0", 3)]);
}

#[test]
fn volumes_that_any_node_can_have_are_not_kept() {
    let of = |volumes: serde_json::Value| {
        mk_pod(&json!({"containers": [], "volumes": volumes}), &json!({})).volumes
    };
    assert_eq!(of(json!([{"name": "e", "emptyDir": {}}])), None);
    let claims = json!([
        {"name": "v", "persistentVolumeClaim": {"claimName": "c"}},
        {"name": "e", "ephemeral": {}},
    ]);
    let claims = of(claims).expect("claims").claims;
    let names: Vec<_> = claims
        .iter()
        .map(|claim| (claim.name.as_str(), claim.is_ephemeral))
        .collect();
    assert_eq!(names, [("c", false), ("p-e", true)]);
}

#[test]
fn disks_clash_unless_both_only_read() {
    let disk = |volume: serde_json::Value| {
        let mut volume = volume;
        volume["name"] = json!("v");
        let volume = serde_json::from_value(volume).expect("volume");
        Disk::read(&volume).expect("disk")
    };
    let rbd = |monitors: &[&str], image: &str, read_only: bool| {
        disk(
            json!({"rbd": {"monitors": monitors, "pool": "p", "image": image, "readOnly": read_only}}),
        )
    };
    assert!(rbd(&["a", "b"], "i", true).clashes(&rbd(&["b"], "i", false)));
    assert!(!rbd(&["a", "b"], "i", true).clashes(&rbd(&["b"], "i", true)));
    assert!(!rbd(&["a"], "i", false).clashes(&rbd(&["b"], "i", false)));
    assert!(!rbd(&["a"], "i", false).clashes(&rbd(&["a"], "j", false)));
    let aws = |id: &str| disk(json!({"awsElasticBlockStore": {"volumeID": id, "readOnly": true}}));
    assert!(aws("x").clashes(&aws("x")));
    assert!(!aws("x").clashes(&disk(json!({"gcePersistentDisk": {"pdName": "x"}}))));
}
