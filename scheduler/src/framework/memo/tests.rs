use k8s_openapi::api::core::v1::{ContainerImage, Taint};
use proptest::prelude::*;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::*;
use crate::framework::cycle::{Outcome, attempt};
use crate::plugins::plugin::Plugin;
use crate::state::images::Images;
use crate::state::pod::Phase;
use crate::testing::{mk_cache, mk_key, mk_node, mk_nrt, mk_pod};

const IMAGE: &str = "i:1";

fn mk_profile() -> Profile {
    let config = json!({
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{
            "schedulerName": "topo",
            "plugins": {"multiPoint": {"enabled": [{"name": "NodeResourceTopologyMatch"}]}},
        }],
    });
    let config = scheduler_config::parse(&config.to_string()).expect("valid");
    Profile::new(&config.profiles[0])
}

fn term(app: &str) -> Value {
    json!({"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": app}}})
}

/// Builds pods that differ only in their names within a shape. From the fifth shape on, their placement depends on other pods.
fn mk_shaped(name: &str, shape: u8) -> Pod {
    let cpus = 1 + shape % 2;
    let mut pod = mk_pod(name, &format!("cpu={cpus} memory=1Gi"));
    pod.labels = [("app".to_owned(), format!("app-{shape}"))].into();
    pod.priority = i32::from(shape);
    pod.constraints.images = vec![ImageId::new(IMAGE)];
    let constraint = |when: &str| {
        json!([{
            "topologyKey": "kubernetes.io/hostname", "maxSkew": 1, "whenUnsatisfiable": when,
            "labelSelector": {"matchLabels": {"app": format!("app-{shape}")}},
        }])
    };
    let read = |when| serde_json::from_value(constraint(when)).expect("constraints");
    match shape {
        2 => {
            pod.constraints.tolerations = vec![Toleration {
                operator: Some("Exists".to_owned()),
                ..Toleration::default()
            }];
        }
        3 => {
            pod.host_ports = vec![HostPort {
                protocol: "TCP".to_owned(),
                ip: "0.0.0.0".to_owned(),
                port: 80,
            }];
        }
        4 => {
            pod.anti_affinity = vec![serde_json::from_value(term("app-4")).expect("term")];
        }
        5 => pod.constraints.spread = read("DoNotSchedule"),
        6 => pod.constraints.spread = read("ScheduleAnyway"),
        7 => pod.constraints.affinity = vec![serde_json::from_value(term("app-0")).expect("term")],
        _ => {}
    }
    pod
}

/// An event for a node or a pod, by number.
#[derive(Clone, Debug)]
enum Step {
    Node {
        node: u8,
        cpus: u8,
        tainted: bool,
        image: bool,
    },
    NodeGone {
        node: u8,
    },
    Zones {
        node: u8,
        left: [u8; 2],
    },
    ZonesGone {
        node: u8,
    },
    Seen {
        pod: u8,
        node: u8,
        shape: u8,
        phase: Phase,
    },
    Gone {
        pod: u8,
    },
    Forgotten {
        pod: u8,
    },
    Nominated {
        pod: u8,
        node: u8,
    },
    Placed {
        pod: u8,
        shape: u8,
        assumed: bool,
    },
}

fn mk_step() -> impl Strategy<Value = Step> {
    let (node, pod, shape) = (0..4_u8, 0..8_u8, 0..8_u8);
    let phase = prop::sample::select(vec![Phase::Pending, Phase::Running, Phase::Terminal]);
    prop_oneof![
        2 => (node.clone(), 1..6_u8, any::<bool>(), any::<bool>())
            .prop_map(|(node, cpus, tainted, image)| Step::Node { node, cpus, tainted, image }),
        1 => node.clone().prop_map(|node| Step::NodeGone { node }),
        3 => (node.clone(), prop::array::uniform2(0..4_u8)).prop_map(|(node, left)| Step::Zones { node, left }),
        1 => node.clone().prop_map(|node| Step::ZonesGone { node }),
        2 => (pod.clone(), node.clone(), shape.clone(), phase)
            .prop_map(|(pod, node, shape, phase)| Step::Seen { pod, node, shape, phase }),
        1 => pod.clone().prop_map(|pod| Step::Gone { pod }),
        1 => pod.clone().prop_map(|pod| Step::Forgotten { pod }),
        1 => (pod.clone(), node).prop_map(|(pod, node)| Step::Nominated { pod, node }),
        // mostly the two most common shapes
        12 => (pod, prop_oneof![3 => 0..2_u8, 1 => shape], any::<bool>())
            .prop_map(|(pod, shape, assumed)| Step::Placed { pod, shape, assumed }),
    ]
}

fn node_name(node: u8) -> String {
    format!("n{node}")
}

/// Does what a scheduler does on such an event, without attempts.
fn take(cluster: &mut Cluster, cache: &mut Cache, step: &Step) {
    let now = Instant::now();
    match *step {
        Step::Node {
            node,
            cpus,
            tainted,
            image,
        } => {
            let taint = Taint {
                key: "k".to_owned(),
                effect: "NoSchedule".to_owned(),
                ..Taint::default()
            };
            let image = image.then(|| ContainerImage {
                names: Some(vec![IMAGE.to_owned()]),
                size_bytes: Some(500 << 20),
            });
            cluster.apply_node(Node {
                taints: tainted.then_some(taint).into_iter().collect(),
                images: Images::read(image.as_slice()),
                ..mk_node(&node_name(node), &format!("cpu={cpus} memory=8Gi"))
            });
        }
        Step::NodeGone { node } => cluster.delete_node(&node_name(node)),
        Step::Zones { node, left } => {
            let left = left.map(|cpus| format!("cpu={cpus} memory=4Gi"));
            cache.apply_nrt(&node_name(node), mk_nrt(&[&left[0], &left[1]]));
        }
        Step::ZonesGone { node } => drop(cache.delete_nrt(&node_name(node))),
        Step::Seen {
            pod,
            node,
            shape,
            phase,
        } => {
            let seen = Pod {
                node: Some(node_name(node)),
                phase,
                ..mk_shaped(&pod.to_string(), shape)
            };
            forget(cluster, cache, &seen.key, now);
            cache.apply_pod(&node_name(node), &seen);
            cluster.apply_pod(seen);
        }
        Step::Gone { pod } => forget(cluster, cache, &mk_key("ns", &pod.to_string()), now),
        Step::Forgotten { pod } => {
            let key = mk_key("ns", &pod.to_string());
            let node = cluster.pod(&key).and_then(|pod| pod.node.clone());
            let uid = format!("uid-{pod}");
            if cluster.forget(&key, &uid)
                && let Some(node) = node
            {
                cache.unreserve(&node, &key);
            }
        }
        Step::Nominated { pod, node } => {
            let key = mk_key("ns", &pod.to_string());
            // only waiting pods are nominated
            if cluster.pod(&key).is_some_and(|pod| pod.node.is_none()) {
                cluster.nominate(&key, Some(node_name(node)));
            }
        }
        Step::Placed { .. } => {}
    }
}

fn forget(cluster: &mut Cluster, cache: &mut Cache, key: &crate::state::pod::PodKey, now: Instant) {
    if let Some(node) = cluster.delete_pod(key).and_then(|pod| pod.node) {
        cache.delete_pod(&node, key, now);
    }
}

proptest! {
    #[test]
    fn what_is_kept_is_what_a_fresh_look_finds(
        steps in prop::collection::vec(mk_step(), 1..60),
        is_large in prop::bool::weighted(0.2),
    ) {
        let profile = mk_profile();
        let (mut cluster, mut cache) = (Cluster::new(), mk_cache(true));
        let mut memo = Memo::default();
        for node in 0..3 {
            let fresh = Step::Node { node, cpus: 4, tainted: false, image: false };
            take(&mut cluster, &mut cache, &fresh);
            take(&mut cluster, &mut cache, &Step::Zones { node, left: [2, 2] });
        }
        // enough nodes that only a part is searched
        for number in 0..if is_large { 120 } else { 0 } {
            cluster.apply_node(mk_node(&format!("z{number}"), "cpu=2 memory=2Gi"));
        }
        for (turn, step) in steps.iter().enumerate() {
            take(&mut cluster, &mut cache, step);
            let Step::Placed { pod, shape, assumed } = *step else { continue };
            let key = mk_key("ns", &pod.to_string());
            forget(&mut cluster, &mut cache, &key, Instant::now());
            let pod = mk_shaped(&pod.to_string(), shape);
            cluster.apply_pod(pod.clone());
            let mut ask = |memo: &mut Memo| {
                attempt(&profile, (&mut cluster, &mut cache), memo, &pod, turn).outcome
            };
            let kept = ask(&mut memo);
            prop_assert_eq!(&kept, &ask(&mut Memo::default()), "step {}", turn);
            if let Outcome::Placed { node, .. } = kept
                && assumed
            {
                cluster.assume(&key, &node);
                cache.reserve(&node, &pod);
            }
        }
    }
}

/// Lets the filters look at every node for pods of a number of shapes. `reason` is what they say of a node. Returns how often they looked.
fn examine_all(
    memo: &mut Memo,
    cluster: &Cluster,
    cache: &Cache,
    shapes: usize,
    reason: impl Fn(&str) -> String,
) -> usize {
    let profile = mk_profile();
    let mut looked = 0;
    for shape in 0..shapes {
        let pod = mk_pod("p", &format!("cpu={} memory=1Gi", 1_000 + shape));
        memo.switch_to(&profile, &pod, false);
        for index in 0..memo.len() {
            let examine = |info: &NodeInfo<'_>| {
                looked += 1;
                Err(Rejection {
                    detail: Some(reason(&info.node.name)),
                    ..Rejection::new(Plugin::NodeResourcesFit, "Insufficient cpu")
                })
            };
            let find_node = |name: &str| NodeInfo::named(name, cluster, cache);
            memo.is_feasible(index, find_node, examine, |_, _| 0);
        }
    }
    looked
}

fn mk_cluster(nodes: usize) -> (Cluster, Cache) {
    let mut cluster = Cluster::new();
    for number in 0..nodes {
        cluster.apply_node(mk_node(&format!("n{number:04}"), "cpu=4 memory=8Gi"));
    }
    (cluster, mk_cache(true))
}

#[test]
fn pods_of_a_hundred_shapes_cost_a_look_at_each_node_once() {
    let (mut cluster, mut cache) = mk_cluster(50);
    let mut memo = Memo::default();
    memo.update(&mut cluster, &mut cache);
    let same = |_: &str| "cpu wanted 1000000, 0 of 4000 used".to_owned();
    assert_eq!(
        examine_all(&mut memo, &cluster, &cache, 100, same),
        100 * 50
    );
    assert_eq!(examine_all(&mut memo, &cluster, &cache, 100, same), 0);
    // one that changes is looked at again
    cluster.apply_node(mk_node("n0007", "cpu=5 memory=8Gi"));
    memo.update(&mut cluster, &mut cache);
    assert_eq!(examine_all(&mut memo, &cluster, &cache, 100, same), 100);
    let rejections = memo.rejections();
    assert_eq!(rejections.len(), 50);
    let first = &rejections[0].1;
    assert!(
        rejections
            .iter()
            .all(|(_, rejection)| Arc::ptr_eq(first, rejection)),
        "nodes that are ruled out for one reason share it"
    );
}

#[test]
fn what_is_remembered_has_a_largest_size() {
    let (mut cluster, mut cache) = mk_cluster(200);
    let mut memo = Memo::default();
    memo.update(&mut cluster, &mut cache);
    // each node says something else, and much
    let each = |name: &str| format!("{name}: {}", "x".repeat(1_000));
    examine_all(&mut memo, &cluster, &cache, 100, each);
    let largest = SIZE + 200 * 2_000;
    let size = memo.size();
    assert!((SIZE / 2..largest).contains(&size), "{size} bytes");
    // small results, but many
    let mut memo = Memo::default();
    cluster = mk_cluster(1).0;
    memo.update(&mut cluster, &mut cache);
    examine_all(&mut memo, &cluster, &cache, 2 * SHAPES, each);
    assert_eq!(memo.others.len() + 1, SHAPES);
}
