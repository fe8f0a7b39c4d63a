//! Random cases of the volume plugins: volumes, claims, classes and what nodes report about their drivers.
//!
//! Where kube-scheduler may choose any of several equal volumes, a case has only one: no two volumes have the same size.

use judges::kubelet::random::Random;
use serde_json::{Value, json};

use crate::record::scheduler::case::{Case, pick, push};

const GIB: u64 = 1 << 30;
const ZONES: [&str; 4] = [
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
];

impl Case {
    fn claim(&self, name: &str, mode: &str, class: Option<&str>) -> Value {
        let mut claim = json!({
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": self.id},
            "spec": {"accessModes": [mode], "resources": {"requests": {"storage": "1Gi"}}},
        });
        if let Some(class) = class {
            claim["spec"]["storageClassName"] = json!(class);
        }
        claim
    }

    fn volume(&self, number: u64) -> Value {
        json!({
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": self.volume_name(number), "labels": {}},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "capacity": {"storage": ((number + 1) * GIB).to_string()},
                "hostPath": {"path": "/data"},
            },
            "status": {"phase": "Available"},
        })
    }

    fn volume_name(&self, number: u64) -> String {
        format!("{}-v{number}", self.id)
    }

    fn class(&self, name: &str, provisioner: &str, waits: bool) -> Value {
        json!({
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": format!("{}-{name}", self.id)},
            "provisioner": provisioner,
            "volumeBindingMode": if waits { "WaitForFirstConsumer" } else { "Immediate" },
        })
    }
}

fn uses(pod: &mut Value, number: u64, claim: &str) {
    let volume =
        json!({"name": format!("v{number}"), "persistentVolumeClaim": {"claimName": claim}});
    push(&mut pod["spec"]["volumes"], volume);
}

/// Binds a claim to its volume.
fn bind(claim: &mut Value, volume: &str) {
    claim["spec"]["volumeName"] = json!(volume);
    claim["metadata"]["annotations"]["pv.kubernetes.io/bind-completed"] = json!("yes");
}

fn disk(random: &mut Random, name: &str) -> Value {
    let id = pick(random, &["x", "x", "x", "y"]);
    let read_only = random.chance(30);
    match random.between(0, 3) {
        0 => json!({"name": name, "gcePersistentDisk": {"pdName": id, "readOnly": read_only}}),
        1 => {
            json!({"name": name, "awsElasticBlockStore": {"volumeID": id, "readOnly": read_only}})
        }
        2 => {
            let portal = pick(random, &["10.0.0.1", "10.0.0.2"]);
            json!({"name": name, "iscsi": {"targetPortal": portal, "iqn": format!("iqn.2026-01.com.example:{id}"), "lun": 0, "readOnly": read_only}})
        }
        _ => {
            let monitors = match random.between(0, 2) {
                0 => json!(["a", "b"]),
                1 => json!(["b"]),
                _ => json!(["c"]),
            };
            let pool = pick(random, &["rbd", "rbd", "p"]);
            json!({"name": name, "rbd": {"monitors": monitors, "pool": pool, "image": id, "readOnly": read_only}})
        }
    }
}

pub(super) fn volume_restrictions(random: &mut Random, case: &mut Case) {
    for _ in 0..random.between(0, 2).max(1) {
        case.new_node(&json!({}));
    }
    for number in 0..3 {
        if random.chance(96) {
            let mode = pick(
                random,
                &["ReadWriteOncePod", "ReadWriteOncePod", "ReadWriteOnce"],
            );
            let claim = case.claim(&format!("c{number}"), mode, None);
            case.storage.push(claim);
        }
    }
    let fill = |random: &mut Random, pod: &mut Value, often: u64| {
        for number in 0..random.between(1, 2) {
            if random.chance(often) {
                let claim = format!("c{}", random.between(0, 3) % 3);
                uses(pod, number, &claim);
            } else {
                let disk = disk(random, &format!("v{number}"));
                push(&mut pod["spec"]["volumes"], disk);
            }
        }
    };
    for _ in 0..random.between(1, 3) {
        let mut guest = case.guest(random, &json!({}));
        fill(random, &mut guest, 30);
        case.pods.push(guest);
    }
    let mut pod = case.pod.clone();
    fill(random, &mut pod, 30);
    case.pod = pod;
}

pub(super) fn node_volume_limits(random: &mut Random, case: &mut Case) {
    const DRIVERS: [&str; 3] = ["a.example.com", "b.example.com", "ebs.csi.aws.com"];
    case.new_node(&json!({}));
    if random.chance(90) {
        let drivers: Vec<Value> = DRIVERS
            .iter()
            .map(|driver| {
                let mut driver = json!({"name": driver, "nodeID": "n"});
                if random.chance(85) {
                    driver["allocatable"] = json!({"count": random.between(0, 3)});
                }
                driver
            })
            .collect();
        let mut node = json!({
            "apiVersion": "storage.k8s.io/v1",
            "kind": "CSINode",
            "metadata": {"name": case.node},
            "spec": {"drivers": drivers},
        });
        if random.chance(50) {
            node["metadata"]["annotations"]["storage.alpha.kubernetes.io/migrated-plugins"] =
                json!("kubernetes.io/aws-ebs,kubernetes.io/gce-pd");
        }
        case.storage.push(node);
    }
    for (name, provisioner) in [
        ("csi", "a.example.com"),
        ("ebs", "kubernetes.io/aws-ebs"),
        ("vsphere", "kubernetes.io/vsphere-volume"),
    ] {
        let class = case.class(name, provisioner, true);
        case.storage.push(class);
    }
    for number in 0..6 {
        let mut volume = case.volume(number);
        let handle = format!("vol-{}", random.between(0, 3));
        let (field, source) = match random.between(0, 5) {
            0 => ("hostPath", json!({"path": "/data"})),
            1 => ("awsElasticBlockStore", json!({"volumeID": handle})),
            _ => (
                "csi",
                json!({"driver": pick(random, &DRIVERS), "volumeHandle": handle}),
            ),
        };
        if let Some(spec) = volume["spec"].as_object_mut() {
            spec.remove("hostPath");
            spec.insert(field.to_owned(), source);
        }
        case.storage.push(volume);
        if random.chance(15) {
            let node = if random.chance(70) {
                case.node.clone()
            } else {
                format!("{}-9", case.id)
            };
            let attachment = json!({
                "apiVersion": "storage.k8s.io/v1",
                "kind": "VolumeAttachment",
                "metadata": {"name": format!("{}-a{number}", case.id)},
                "spec": {"attacher": pick(random, &DRIVERS), "nodeName": node, "source": {"persistentVolumeName": case.volume_name(number)}},
            });
            case.storage.push(attachment);
        }
        let class = pick(random, &["csi", "csi", "ebs", "vsphere", "absent"]);
        let class = format!("{}-{class}", case.id);
        let mut claim = case.claim(&format!("c{number}"), "ReadWriteOnce", Some(&class));
        if random.chance(70) {
            let name = if random.chance(90) {
                case.volume_name(number)
            } else {
                "absent".to_owned()
            };
            bind(&mut claim, &name);
        }
        if random.chance(97) {
            case.storage.push(claim);
        }
    }
    let fill = |random: &mut Random, pod: &mut Value| {
        for number in 0..random.between(0, 3) {
            if random.chance(90) {
                let claim = format!("c{}", random.between(0, 5));
                uses(pod, number, &claim);
            } else {
                let id = format!("vol-{}", random.between(0, 3));
                let volume =
                    json!({"name": format!("v{number}"), "awsElasticBlockStore": {"volumeID": id}});
                push(&mut pod["spec"]["volumes"], volume);
            }
        }
    };
    for _ in 0..random.between(0, 2) {
        let mut guest = case.guest(random, &json!({}));
        fill(random, &mut guest);
        case.pods.push(guest);
    }
    let mut pod = case.pod.clone();
    fill(random, &mut pod);
    case.pod = pod;
}

fn zone_terms(random: &mut Random) -> Value {
    let expression = |random: &mut Random| match random.between(0, 3) {
        0 => {
            json!({"key": "zone", "operator": "NotIn", "values": [pick(random, &["x", "y"])]})
        }
        1 => json!({"key": "zone", "operator": "Exists"}),
        _ => {
            json!({"key": "zone", "operator": "In", "values": [pick(random, &["x", "x", "y"])]})
        }
    };
    let terms: Vec<Value> = (0..random.between(1, 2))
        .map(|_| json!({"matchExpressions": [expression(random)]}))
        .collect();
    json!({"required": {"nodeSelectorTerms": terms}})
}

/// Adds volumes that claims may get.
fn free_volumes(random: &mut Random, case: &mut Case) {
    let mut has_owner = false;
    for number in 0..random.between(0, 4) {
        let mut volume = case.volume(number);
        let class = pick(random, &["static", "static", "static", "dynamic"]);
        volume["spec"]["storageClassName"] = json!(format!("{}-{class}", case.id));
        if random.chance(60) {
            volume["spec"]["nodeAffinity"] = zone_terms(random);
        }
        if random.chance(10) {
            volume["spec"]["volumeMode"] = json!("Block");
        }
        if random.chance(20) {
            volume["spec"]["accessModes"] = json!(["ReadWriteMany", "ReadWriteOnce"]);
        }
        if random.chance(50) {
            volume["metadata"]["labels"]["tier"] = json!("gold");
        }
        if random.chance(10) {
            volume["status"]["phase"] = json!(pick(random, &["Pending", "Released"]));
        }
        if random.chance(5) {
            volume["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        if !has_owner && random.chance(20) {
            has_owner = true;
            let name = pick(random, &["c0", "c0", "other"]);
            let mut owner = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": case.id, "name": name});
            if random.chance(30) {
                owner["uid"] = json!("other");
            }
            volume["spec"]["claimRef"] = owner;
        }
        case.storage.push(volume);
    }
}

/// Adds classes with and without provisioning of volumes, and the available capacity.
fn classes(random: &mut Random, case: &mut Case) {
    let provisioner = format!("{}.example.com", case.id);
    let mut dynamic = case.class("dynamic", &provisioner, true);
    if random.chance(40) {
        let mut terms = vec![
            json!({"matchLabelExpressions": [{"key": "zone", "values": [pick(random, &["x", "y"])]}]}),
        ];
        if random.chance(30) {
            let labels = json!([
                {"key": "zone", "values": ["x", "z"]},
                {"key": "rack", "values": ["1"]},
            ]);
            terms.push(json!({"matchLabelExpressions": labels}));
        }
        dynamic["allowedTopologies"] = json!(terms);
    }
    case.storage.push(dynamic);
    let others = [
        case.class("static", "kubernetes.io/no-provisioner", true),
        case.class("immediate", &provisioner, false),
    ];
    case.storage.extend(others);
    if random.chance(60) {
        let driver = json!({
            "apiVersion": "storage.k8s.io/v1",
            "kind": "CSIDriver",
            "metadata": {"name": provisioner},
            "spec": {"storageCapacity": random.chance(80)},
        });
        case.storage.push(driver);
    }
    for number in 0..random.between(0, 2) {
        let class = pick(random, &["dynamic", "dynamic", "static"]);
        let mut capacity = json!({
            "apiVersion": "storage.k8s.io/v1",
            "kind": "CSIStorageCapacity",
            "metadata": {"name": format!("room-{number}"), "namespace": case.id},
            "storageClassName": format!("{}-{class}", case.id),
        });
        if random.chance(90) {
            capacity["nodeTopology"] = if random.chance(30) {
                json!({})
            } else {
                json!({"matchLabels": {"zone": pick(random, &["x", "y"])}})
            };
        }
        if random.chance(90) {
            capacity["capacity"] = json!(pick(random, &["512Mi", "2Gi", "10Gi"]));
        }
        if random.chance(30) {
            capacity["maximumVolumeSize"] = json!(pick(random, &["512Mi", "2Gi"]));
        }
        case.storage.push(capacity);
    }
}

/// Builds a claim in any state, with its volume.
fn any_claim(random: &mut Random, case: &mut Case, number: u64, name: &str) -> Value {
    let class = pick(
        random,
        &[
            "static", "static", "static", "dynamic", "dynamic", "dynamic",
        ],
    );
    let class = format!("{}-{class}", case.id);
    let mut claim = case.claim(name, "ReadWriteOnce", Some(&class));
    let size = random.between(0, 2) * GIB + (number + 1) * GIB / 4;
    claim["spec"]["resources"]["requests"]["storage"] = json!(size.to_string());
    match random.between(0, 19) {
        0 => {
            claim["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        1 => {
            bind(&mut claim, "absent");
            claim["status"]["phase"] = json!("Lost");
        }
        2 => claim["spec"]["volumeName"] = json!("not-yet"),
        3 => {
            let other = pick(random, &["immediate", "absent"]);
            claim["spec"]["storageClassName"] = json!(format!("{}-{other}", case.id));
        }
        4..=8 => {
            let mut volume = case.volume(10 + number);
            if random.chance(70) {
                volume["spec"]["nodeAffinity"] = zone_terms(random);
            }
            if random.chance(90) {
                case.storage.push(volume);
            }
            bind(&mut claim, &case.volume_name(10 + number));
        }
        9 => {
            let node = if random.chance(50) {
                case.node.clone()
            } else {
                format!("{}-9", case.id)
            };
            claim["metadata"]["annotations"]["volume.kubernetes.io/selected-node"] = json!(node);
        }
        10 => claim["spec"]["selector"] = json!({"matchLabels": {"tier": "gold"}}),
        11 => claim["spec"]["accessModes"] = json!(["ReadWriteMany"]),
        12 => claim["spec"]["volumeMode"] = json!("Block"),
        _ => {}
    }
    claim
}

pub(super) fn volume_binding(random: &mut Random, case: &mut Case) {
    let mut labels = json!({});
    if random.chance(90) {
        labels["zone"] = json!(pick(random, &["x", "x", "y"]));
    }
    if random.chance(50) {
        labels["rack"] = json!("1");
    }
    case.new_node(&labels);
    classes(random, case);
    free_volumes(random, case);
    let mut pod = case.pod.clone();
    for number in 0..random.between(1, 2) {
        let name = format!("c{number}");
        let claim = any_claim(random, case, number, &name);
        if random.chance(96) {
            case.storage.push(claim);
        }
        uses(&mut pod, number, &name);
    }
    if random.chance(20) {
        let template = json!({"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
        let volume = json!({"name": "e", "ephemeral": {"volumeClaimTemplate": template}});
        push(&mut pod["spec"]["volumes"], volume);
        pod["metadata"]["uid"] = json!("pod");
        let mut claim = any_claim(random, case, 5, "pod-e");
        let uid = if random.chance(80) { "pod" } else { "other" };
        claim["metadata"]["ownerReferences"] = json!([
            {"apiVersion": "v1", "kind": "Pod", "name": "pod", "uid": uid, "controller": true}
        ]);
        if random.chance(85) {
            case.storage.push(claim);
        }
    }
    case.pod = pod;
}

pub(super) fn volume_zone(random: &mut Random, case: &mut Case) {
    let mut labels = json!({});
    for label in ZONES {
        if random.chance(40) {
            labels[label] = json!(pick(random, &["a", "a", "b"]));
        }
    }
    case.new_node(&labels);
    let classes = [
        case.class("waits", "a.example.com", true),
        case.class("immediate", "a.example.com", false),
    ];
    case.storage.extend(classes);
    let mut pod = case.pod.clone();
    for number in 0..random.between(0, 2) {
        let mut volume = case.volume(number);
        for label in ZONES {
            if random.chance(35) {
                let value = pick(random, &["a", "a", "b", "a__b", "b__c", "a____c"]);
                volume["metadata"]["labels"][label] = json!(value);
            }
        }
        let class = pick(random, &["waits", "waits", "immediate", "absent", ""]);
        let class = (!class.is_empty()).then(|| format!("{}-{class}", case.id));
        let name = format!("c{number}");
        let mut claim = case.claim(&name, "ReadWriteOnce", class.as_deref());
        if random.chance(85) {
            claim["spec"]["volumeName"] = json!(case.volume_name(number));
        }
        if random.chance(95) {
            case.storage.push(volume);
        }
        if random.chance(95) {
            case.storage.push(claim);
        }
        uses(&mut pod, number, &name);
    }
    case.pod = pod;
}
