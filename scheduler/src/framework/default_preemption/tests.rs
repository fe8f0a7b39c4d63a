use k8s_openapi::api::core::v1::Taint;
use nrt::decode::{NodeTopology, Published};
use nrt::fingerprint::{Method, compute};
use nrt::placement::{Container, encode};
use rstest::rstest;
use serde_json::json;
use topology::mask::ZoneId;
use topology::policy::{ManagerConfig, Policy};
use topology::zone::{Amounts, Zone};

use super::*;
use crate::plugins::plugin::Plugin;
use crate::state::pod::Phase;
use crate::testing::{mk_cache, mk_node, mk_pod};

const FILTERS: &[Plugin] = &[
    Plugin::TaintToleration,
    Plugin::NodeResourcesFit,
    Plugin::NodeResourceTopologyMatch,
];

/// Builds a pod on a node that started this many seconds after the first one.
fn mk_guest(node: &str, name: &str, requests: &str, priority: i32, started: i64) -> Pod {
    Pod {
        node: Some(node.to_owned()),
        phase: Phase::Running,
        priority,
        started: Timestamp::from_second(1_000_000 + started).ok(),
        ..mk_pod(name, requests)
    }
}

fn mk_preemptor(requests: &str) -> Pod {
    Pod {
        priority: 100,
        ..mk_pod("p", requests)
    }
}

fn run(cluster: &mut Cluster, cache: &Cache, pod: &Pod) -> Result<Candidate, Refusal> {
    let filters = Filters::from(FILTERS);
    let rejected: Vec<RuledOut> = {
        let attempt = Attempt::new(&filters, cluster, pod);
        NodeInfo::all(cluster, cache)
            .filter_map(|info| {
                let rejection = attempt.examine(&info).err()?;
                Some((Arc::from(&*info.node.name), Arc::new(rejection)))
            })
            .collect()
    };
    assert_eq!(rejected.len(), cluster.nodes().count(), "it fits already");
    let args = DefaultPreemptionArgs::default();
    let before = format!("{:?}", cluster.nodes().collect::<Vec<_>>());
    let outcome = preempt(&filters, args, cluster, cache, pod, &rejected, 0);
    let after = format!("{:?}", cluster.nodes().collect::<Vec<_>>());
    assert_eq!(before, after, "the cluster is left as it was");
    outcome
}

fn named(candidate: &Candidate) -> (&str, Vec<&str>) {
    let names = candidate.victims.iter();
    (
        candidate.node.as_str(),
        names.map(|victim| victim.key.name.as_str()).collect(),
    )
}

fn chosen(cluster: &mut Cluster, pod: &Pod) -> (String, Vec<String>) {
    let candidate = run(cluster, &mk_cache(false), pod).expect("a candidate");
    let (node, names) = named(&candidate);
    (
        node.to_owned(),
        names.into_iter().map(str::to_owned).collect(),
    )
}

fn mk_cluster(nodes: &[&str], guests: &[Pod]) -> Cluster {
    let mut cluster = Cluster::new();
    for node in nodes {
        cluster.apply_node(mk_node(node, "cpu=8 memory=8Gi"));
    }
    for guest in guests {
        cluster.apply_pod(guest.clone());
    }
    cluster
}

fn mk_budget(app: &str, allowed: i32) -> Budget {
    Budget {
        selector: serde_json::from_value(json!({"matchLabels": {"app": app}})).ok(),
        allowed,
        ..Budget::default()
    }
}

fn mk_key(name: &str) -> PodKey {
    mk_pod(name, "").key
}

#[test]
fn only_as_many_pods_go_as_are_needed_the_least_important_first() {
    let guests = [
        mk_guest("a", "old", "cpu=2 memory=1Gi", 5, 0),
        mk_guest("a", "young", "cpu=2 memory=1Gi", 5, 9),
        mk_guest("a", "higher", "cpu=2 memory=1Gi", 6, 9),
        mk_guest("a", "equal", "cpu=2 memory=1Gi", 100, 0),
    ];
    let mut cluster = mk_cluster(&["a"], &guests);
    let pod = mk_preemptor("cpu=2 memory=1Gi");
    assert_eq!(chosen(&mut cluster, &pod).1, ["young"]);
    let pod = mk_preemptor("cpu=4 memory=1Gi");
    assert_eq!(chosen(&mut cluster, &pod).1, ["old", "young"]);
    let pod = mk_preemptor("cpu=7 memory=1Gi");
    let refusal = run(&mut cluster, &mk_cache(false), &pod).expect_err("an equal one stays");
    assert_eq!(
        refusal.message,
        "0/1 nodes are available: 1 Insufficient cpu."
    );
    assert!(refusal.clears_nomination);
}

#[rstest]
#[case::fewest_violations(&[("a", "kept", 1, 0), ("b", "free", 9, 0)], "b")]
#[case::lowest_highest(&[("a", "x", 5, 0), ("b", "y", 4, 0)], "b")]
#[case::lowest_sum(&[("a", "x", 5, 0), ("a", "x2", 5, 0), ("b", "y", 5, 0), ("b", "y2", 1, 0)], "b")]
#[case::fewest_pods(&[("a", "x", 5, 0), ("a", "x2", i32::MIN, 0), ("b", "y", 5, 0)], "b")]
#[case::latest_start(&[("a", "x", 5, 0), ("b", "y", 5, 1)], "b")]
#[case::start_of_the_highest(&[("a", "x", 5, 3), ("a", "x2", 1, 4), ("b", "y", 5, 1), ("b", "y2", 1, 9)], "a")]
#[case::first(&[("a", "x", 5, 0), ("b", "y", 5, 0)], "a")]
fn the_cheapest_node_is_chosen(#[case] guests: &[(&str, &str, i32, i64)], #[case] expected: &str) {
    let guests: Vec<Pod> = guests
        .iter()
        .map(|(node, name, priority, started)| {
            let alone = guests.iter().filter(|other| other.0 == *node).count() == 1;
            let cpu = if alone {
                "cpu=8 memory=1Gi"
            } else {
                "cpu=4 memory=1Gi"
            };
            mk_guest(node, name, cpu, *priority, *started)
        })
        .collect();
    let mut cluster = mk_cluster(&["a", "b"], &guests);
    cluster.apply_budget(mk_key("budget"), mk_budget("kept", 0));
    let pod = mk_preemptor("cpu=8 memory=1Gi");
    assert_eq!(chosen(&mut cluster, &pod).0, expected);
}

#[test]
fn pods_whose_budget_is_used_up_are_put_back_first() {
    let guests = [
        mk_guest("a", "kept", "cpu=4 memory=1Gi", 1, 0),
        mk_guest("a", "free", "cpu=4 memory=1Gi", 9, 0),
    ];
    let pod = mk_preemptor("cpu=4 memory=1Gi");
    for (budget, expected) in [
        (mk_budget("kept", 1), "kept"),
        (mk_budget("kept", 0), "free"),
        // an empty selector covers nothing
        (
            Budget {
                selector: Some(
                    k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector::default(),
                ),
                ..Budget::default()
            },
            "kept",
        ),
        // already accounted for
        (
            Budget {
                disrupted: ["kept".to_owned()].into(),
                ..mk_budget("kept", 0)
            },
            "kept",
        ),
    ] {
        let mut cluster = mk_cluster(&["a"], &guests);
        cluster.apply_budget(mk_key("budget"), budget.clone());
        assert_eq!(chosen(&mut cluster, &pod).1, [expected], "{budget:?}");
    }
}

#[test]
fn the_message_tells_what_each_node_lacks_for_preemption() {
    let mut cluster = mk_cluster(
        &["a", "b", "c"],
        &[
            mk_guest("a", "low", "cpu=1 memory=1Gi", 0, 0),
            mk_guest("a", "high", "cpu=7 memory=1Gi", 200, 0),
            mk_guest("b", "equal", "cpu=8 memory=1Gi", 100, 0),
        ],
    );
    let taint = Taint {
        key: "k".to_owned(),
        effect: "NoSchedule".to_owned(),
        ..Taint::default()
    };
    cluster.apply_node(crate::state::node::Node {
        taints: vec![taint],
        ..mk_node("c", "cpu=8")
    });
    let refusal = run(
        &mut cluster,
        &mk_cache(false),
        &mk_preemptor("cpu=8 memory=1Gi"),
    )
    .expect_err("nobody can go");
    assert_eq!(
        refusal.message,
        "0/3 nodes are available: 1 Insufficient cpu, 1 No preemption victims found for incoming pod, \
         1 Preemption is not helpful for scheduling."
    );
}

#[test]
fn a_pod_larger_than_the_node_evicts_nobody() {
    let guest = mk_guest("a", "low", "cpu=1 memory=1Gi", 0, 0);
    let mut cluster = mk_cluster(&["a"], &[guest]);
    let refusal = run(
        &mut cluster,
        &mk_cache(false),
        &mk_preemptor("cpu=9 memory=1Gi"),
    )
    .expect_err("too large");
    assert_eq!(
        refusal.message,
        "0/1 nodes are available: 1 Preemption is not helpful for scheduling."
    );
}

#[test]
fn who_may_not_preempt_or_waits_for_victims_evicts_nobody_more() {
    let full = |name, priority| mk_guest("a", name, "cpu=8 memory=1Gi", priority, 0);
    let going = Pod {
        deleting: true,
        is_victim: true,
        ..full("going", 0)
    };
    let mut cluster = mk_cluster(&["a", "b"], &[going, mk_guest("b", "x", "cpu=8", 0, 0)]);
    let mut pod = mk_preemptor("cpu=4 memory=1Gi");
    pod.preempts = false;
    let refused = |cluster: &mut Cluster, pod: &Pod| {
        let refusal = run(cluster, &mk_cache(false), pod).expect_err("not eligible");
        (refusal.message, refusal.clears_nomination)
    };
    assert_eq!(
        refused(&mut cluster, &pod),
        (
            "not eligible due to preemptionPolicy=Never.".to_owned(),
            false
        )
    );
    pod.preempts = true;
    pod.nominated = Some("a".to_owned());
    cluster.apply_pod(pod.clone());
    assert_eq!(
        refused(&mut cluster, &pod),
        (
            "not eligible due to a terminating pod on the nominated node.".to_owned(),
            false
        )
    );
    // nominated to another node, it does not wait for them
    cluster.nominate(&pod.key, Some("b".to_owned()));
    assert_eq!(chosen(&mut cluster, &pod).1.len(), 1);
}

#[test]
fn room_that_is_made_for_another_pod_is_not_taken() {
    let mut cluster = mk_cluster(&["a"], &[mk_guest("a", "low", "cpu=4 memory=1Gi", 0, 0)]);
    let waiting = Pod {
        priority: 100,
        nominated: Some("a".to_owned()),
        ..mk_pod("first", "cpu=4 memory=1Gi")
    };
    cluster.apply_pod(waiting.clone());
    let cache = mk_cache(false);
    let pod = |priority| Pod {
        priority,
        ..mk_pod("second", "cpu=4 memory=1Gi")
    };
    let filters = Filters::from(FILTERS);
    let result = |cluster: &mut Cluster, pod: &Pod| fits(&filters, cluster, &cache, pod, "a", &[]);
    assert!(result(&mut cluster, &pod(100)).is_err());
    assert_eq!(result(&mut cluster, &pod(101)), Ok(()));
    assert_eq!(
        displaced(&cluster, &pod(101), "a"),
        std::slice::from_ref(&waiting.key)
    );
    // the pod's own nomination does not block it
    assert_eq!(result(&mut cluster, &waiting), Ok(()));
    // a pod that has a node blocks no other
    cluster.apply_pod(Pod {
        node: Some("b".to_owned()),
        ..waiting
    });
    assert_eq!(result(&mut cluster, &pod(100)), Ok(()));
}

/// Builds zones of 8 CPUs and 8 GiB with this left, and the zone of each pod of namespace `ns`.
fn mk_nrt(left: &[i64], placed: &[(&str, usize)], published: bool) -> NodeTopology {
    let zone = |(id, cpus): (usize, &i64)| Zone {
        resources: [("cpu", 1000 * cpus, 8000), ("memory", 4 << 30, 8 << 30)]
            .into_iter()
            .map(|(name, available, allocatable)| {
                let amounts = Amounts {
                    capacity: allocatable,
                    allocatable,
                    available,
                };
                (name.into(), amounts)
            })
            .collect(),
        ..Zone::new(ZoneId::new(id as u64).expect("small"))
    };
    let containers = placed.iter().map(|(pod, zone)| {
        let container = Container {
            namespace: "ns",
            pod,
            container: "app",
        };
        (container, *zone)
    });
    NodeTopology {
        zones: left.iter().enumerate().map(zone).collect(),
        config: ManagerConfig {
            policy: Policy::SingleNumaNode,
            ..ManagerConfig::default()
        },
        fingerprint: Some(Published {
            text: compute(placed.iter().map(|(pod, _)| ("ns", *pod))).to_string(),
            method: Method::WithExclusiveResources,
        }),
        placement: published.then(|| encode(containers, left.len()).expect("small")),
    }
}

#[derive(Clone, Copy)]
struct Numa {
    mode: bool,
    published: bool,
    known: bool,
    wanted: &'static str,
}

#[rstest]
#[case::fits(Numa { mode: true, published: true, known: true, wanted: "cpu=4 memory=1Gi" }, Ok("on-0"))]
#[case::disabled(Numa { mode: false, published: true, known: true, wanted: "cpu=4 memory=1Gi" }, Err("cannot align container"))]
#[case::no_placement(Numa { mode: true, published: false, known: true, wanted: "cpu=4 memory=1Gi" }, Err("cannot align container"))]
#[case::too_large(Numa { mode: true, published: true, known: true, wanted: "cpu=7 memory=1Gi" }, Err("cannot align container"))]
#[case::unknown(
    Numa { mode: true, published: true, known: false, wanted: "cpu=4 memory=1Gi" },
    Err("eviction simulation in NRT is not possible:no resources to add, cannot process eviction simulation")
)]
fn a_zone_is_freed_only_where_the_victim_is_known_to_be(
    #[case] numa: Numa,
    #[case] expected: Result<&str, &str>,
) {
    let mut cluster = Cluster::new();
    cluster.apply_node(mk_node("a", "cpu=16 memory=16Gi"));
    let mut cache = mk_cache(numa.mode);
    let victim = mk_guest("a", "on-0", "cpu=4 memory=1Gi", 0, 0);
    let lasting = mk_guest("a", "on-1", "cpu=6 memory=1Gi", 200, 0);
    for pod in [&victim, &lasting] {
        cluster.apply_pod(pod.clone());
        cache.apply_pod("a", pod);
    }
    let left = if numa.known { [2, 2] } else { [3, 3] };
    let placed = [("on-0", 0), ("on-1", 1)];
    cache.apply_nrt("a", mk_nrt(&left, &placed, numa.published));
    if !numa.known {
        // a pod of the same name that the exporter has not seen
        let successor = Pod {
            uid: "other".to_owned(),
            ..victim.clone()
        };
        cluster.apply_pod(successor.clone());
    }
    let outcome = run(&mut cluster, &cache, &mk_preemptor(numa.wanted));
    match expected {
        Ok(name) => assert_eq!(named(&outcome.expect("a candidate")), ("a", vec![name])),
        Err(reason) => assert_eq!(
            outcome.expect_err("no candidate").message,
            format!("0/1 nodes are available: 1 {reason}.")
        ),
    }
}

#[test]
fn nobody_else_goes_while_a_zone_is_not_seen_to_be_free() {
    let mut cluster = Cluster::new();
    cluster.apply_node(mk_node("a", "cpu=16 memory=16Gi"));
    let mut cache = mk_cache(true);
    let pods = ["on-0", "on-1"].map(|name| mk_guest("a", name, "cpu=6 memory=1Gi", 0, 0));
    for pod in &pods {
        cluster.apply_pod(pod.clone());
        cache.apply_pod("a", pod);
    }
    cache.apply_nrt("a", mk_nrt(&[2, 2], &[("on-0", 0), ("on-1", 1)], true));
    let mut pod = mk_preemptor("cpu=8 memory=1Gi");
    let first = run(&mut cluster, &cache, &pod).expect("a candidate");
    assert_eq!(first.victims.len(), 1);
    let gone = &first.victims[0].key;
    cluster.delete_pod(gone);
    cache.delete_pod("a", gone, tokio::time::Instant::now());
    let refusal = run(&mut cluster, &cache, &pod).expect_err("not seen");
    assert_eq!(
        refusal.message,
        "0/1 nodes are available: 1 eviction simulation in NRT is not possible:pods that are gone are still accounted for."
    );
    pod.nominated = Some("a".to_owned());
    cluster.apply_pod(pod.clone());
    let refusal = run(&mut cluster, &cache, &pod).expect_err("not seen");
    assert!(!refusal.clears_nomination, "{}", refusal.message);
}

#[test]
fn a_node_that_cannot_be_trusted_frees_nothing() {
    let mut cluster = Cluster::new();
    cluster.apply_node(mk_node("a", "cpu=16 memory=16Gi"));
    let mut cache = mk_cache(true);
    let victim = mk_guest("a", "on-0", "cpu=4 memory=1Gi", 0, 0);
    cluster.apply_pod(victim.clone());
    cache.apply_pod("a", &victim);
    cache.apply_nrt("a", mk_nrt(&[2, 2], &[("on-0", 0)], true));
    let foreign = Pod {
        scheduler: "other".to_owned(),
        ..mk_guest("a", "foreign", "cpu=1 memory=1Gi", 0, 0)
    };
    cluster.apply_pod(foreign.clone());
    cache.apply_pod("a", &foreign);
    let outcome = run(&mut cluster, &cache, &mk_preemptor("cpu=4 memory=1Gi"));
    assert_eq!(
        outcome.expect_err("stale").message,
        "0/1 nodes are available: 1 invalid node topology data."
    );
}
