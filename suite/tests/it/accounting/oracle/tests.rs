use k8s_openapi::api::core::v1::Pod;
use rstest::rstest;
use serde_json::{Value, json};

use super::*;
use crate::accounting::state::Texts;

/// Makes a node with two zones of four CPUs, the first of each reserved; 100 bytes of memory each; two devices in zone 0.
fn node() -> NodeFacts {
    let zone = |first: u32, devices: i64| {
        let amount = |capacity, allocatable| Amount {
            capacity,
            allocatable,
        };
        let mut resources = BTreeMap::from([
            ("cpu".to_owned(), amount(4, 3)),
            ("memory".to_owned(), amount(120, 100)),
        ]);
        if devices > 0 {
            resources.insert("x/dev".to_owned(), amount(devices, devices));
        }
        ZoneFacts {
            cpus: (first..first + 4).collect(),
            reserved_cpus: BTreeSet::from([first]),
            resources,
            distances: if first == 0 {
                vec![10, 20]
            } else {
                vec![20, 10]
            },
        }
    };
    NodeFacts {
        name: "n".to_owned(),
        zones: vec![zone(0, 2), zone(4, 0)],
        policy: "single-numa-node".to_owned(),
        scope: "container".to_owned(),
        manages_memory: true,
    }
}

/// Makes an NRT with these available CPUs, memory and devices in zone 0; zone 1 is free.
fn nrt(cpu: &str, memory: &str, devices: &str) -> NodeResourceTopology {
    let value = json!({
        "metadata": {"name": "n"},
        "attributes": [
            {"name": "topologyManagerScope", "value": "container"},
            {"name": "topologyManagerPolicy", "value": "single-numa-node"},
        ],
        "zones": [
            {
                "name": "node-0", "type": "Node",
                "costs": [{"name": "node-0", "value": 10}, {"name": "node-1", "value": 20}],
                "resources": [
                    {"name": "x/dev", "capacity": "2", "allocatable": "2", "available": devices},
                    {"name": "cpu", "capacity": "4", "allocatable": "3", "available": cpu},
                    {"name": "memory", "capacity": "120", "allocatable": "100", "available": memory},
                ],
            },
            {
                "name": "node-1", "type": "Node",
                "costs": [{"name": "node-0", "value": 20}, {"name": "node-1", "value": 10}],
                "resources": [
                    {"name": "cpu", "capacity": "4", "allocatable": "3", "available": "3"},
                    {"name": "memory", "capacity": "120", "allocatable": "100", "available": "100"},
                ],
            },
        ],
    });
    serde_json::from_value(value).expect("an NRT")
}

/// Makes state files from CPU, memory and device entries and the free memory of zone 0.
fn state(
    default_cpus: &str,
    cpus: &Value,
    memory: &Value,
    free: i64,
    devices: &Value,
) -> NodeState {
    let sums = |free: i64| json!({"memoryMap": {"memory": {"allocatable": 100, "free": free}}});
    let texts = Texts {
        cpus: json!({"defaultCpuSet": default_cpus, "entries": cpus}).to_string(),
        memory: json!({"machineState": {"0": sums(free), "1": sums(100)}, "entries": memory})
            .to_string(),
        devices: json!({"Data": {"PodDeviceEntries": devices}}).to_string(),
    };
    NodeState::parse(&texts).expect("understood")
}

fn block(size: i64) -> Value {
    json!([{"numaAffinity": [0], "type": "memory", "size": size}])
}

fn device(container: &str, ids: &[&str]) -> Value {
    json!({"PodUID": "u", "ContainerName": container, "ResourceName": "x/dev", "DeviceIDs": {"0": ids}})
}

/// Makes the pod `p` with UID `u` on `n`: app `a`, sidecar `s`, plain init container `i` that has ended or runs.
fn pod(phase: &str, init_ended: bool) -> Pod {
    let state = if init_ended { "terminated" } else { "running" };
    let details = if init_ended {
        json!({"exitCode": 0})
    } else {
        json!({})
    };
    let status = |name: &str, state: &str, details: &Value| json!({"name": name, "image": "", "imageID": "", "ready": true, "restartCount": 0, "state": {state: details}});
    let value = json!({
        "metadata": {"name": "p", "uid": "u"},
        "spec": {
            "nodeName": "n",
            "containers": [{"name": "a"}],
            "initContainers": [{"name": "i"}, {"name": "s", "restartPolicy": "Always"}],
        },
        "status": {
            "phase": phase, "qosClass": "Guaranteed",
            "initContainerStatuses": [status("i", state, &details), status("s", "running", &json!({}))],
        },
    });
    serde_json::from_value(value).expect("a pod")
}

fn check(
    state: &NodeState,
    pods: &[Pod],
    seen: &NodeResourceTopology,
) -> Result<Uncounted, Difference> {
    let names = BTreeMap::from([("gone".to_owned(), "q".to_owned())]);
    compare(&node(), state, &Pods::new(pods, &names), seen)
}

fn nothing() -> NodeState {
    state("0-7", &json!({}), &json!({}), 100, &json!(null))
}

#[test]
fn an_unused_node_has_all_available() {
    assert_eq!(
        check(&nothing(), &[], &nrt("3", "100", "2")),
        Ok(Uncounted::default())
    );
}

#[test]
fn app_containers_and_sidecars_count() {
    let state = state(
        "0,3-7",
        &json!({"u": {"a": "1", "s": "2"}}),
        &json!({"u": {"a": block(30), "s": block(5)}}),
        65,
        &json!([device("a", &["d0"])]),
    );
    let uncounted = check(&state, &[pod("Running", true)], &nrt("1", "65", "1")).expect("equal");
    assert!(uncounted.finished_init.is_empty());
    assert!(uncounted.stale.is_empty());
    assert_eq!(uncounted.released_init, BTreeSet::from(["p/i".to_owned()]));
    assert!(uncounted.spanning.is_empty());
}

#[test]
fn the_terms_of_a_difference_are_told() {
    let state = state(
        "0,3-7",
        &json!({"u": {"a": "1", "s": "2"}}),
        &json!({}),
        100,
        &json!(null),
    );
    let difference =
        check(&state, &[pod("Running", true)], &nrt("2", "100", "2")).expect_err("differs");
    assert_eq!(difference.place, "n node-0 cpu available");
    assert_eq!(difference.expected, "1 = 3 - 1 (p/a: 1) - 1 (p/s: 2)");
    assert_eq!(difference.seen, "2");
}

#[test]
fn cpus_of_a_finished_init_container_are_available_beyond_those_reused() {
    let state = state(
        "0,3-7",
        &json!({"u": {"a": "1", "i": "1-2"}}),
        &json!({}),
        100,
        &json!([device("i", &["d0", "d1"]), device("a", &["d1"])]),
    );
    let uncounted = check(&state, &[pod("Running", true)], &nrt("2", "100", "1")).expect("equal");
    let expected = ["n p/i: cpu 2 in node-0", "n p/i: x/dev d0 in node-0"];
    assert_eq!(uncounted.finished_init, expected.map(str::to_owned).into());
}

#[rstest]
#[case::gone("gone", "q/a", &[])]
#[case::over("u", "p/a", &[pod("Failed", true)])]
fn entries_of_pods_that_are_over_do_not_count(
    #[case] uid: &str,
    #[case] owner: &str,
    #[case] pods: &[Pod],
) {
    let state = state(
        "0,3-7",
        &json!({uid: {"a": "1-2"}}),
        &json!({uid: {"a": block(40)}}),
        60,
        &json!(null),
    );
    let uncounted = check(&state, pods, &nrt("3", "100", "2")).expect("equal");
    let expected = [
        format!("n {owner}: cpu 1,2 in node-0"),
        format!("n {owner}: memory 40 in node-0"),
    ];
    assert_eq!(uncounted.stale, expected.into());
    // the difference if they had counted
    let difference = check(&state, pods, &nrt("1", "60", "2")).expect_err("differs");
    assert_eq!(difference.place, "n node-0 cpu available");
}

#[test]
fn memory_that_a_finished_init_container_keeps_is_a_difference() {
    let state = state(
        "0-7",
        &json!({}),
        &json!({"u": {"i": block(40)}}),
        60,
        &json!(null),
    );
    let difference =
        check(&state, &[pod("Running", true)], &nrt("3", "100", "2")).expect_err("differs");
    assert_eq!(difference.seen, "kept for p/i");
}

#[rstest]
#[case::init_still_runs("0,2-7", &json!({"u": {"i": "1"}}), "init container i of p still runs")]
#[case::no_such_container("0,2-7", &json!({"u": {"x": "1"}}), "p has no container x")]
#[case::no_such_cpu("0-7", &json!({"u": {"a": "9"}}), "p/a has CPU 9, which the machine has not")]
#[case::twice_in_a_pod("0,2-7", &json!({"u": {"a": "1", "s": "1"}}), "p/s has cpu 1, and so has another container of its pod")]
fn entries_that_make_no_sense_are_differences(
    #[case] left: &str,
    #[case] cpus: &Value,
    #[case] text: &str,
) {
    let state = state(left, cpus, &json!({}), 100, &json!(null));
    let difference =
        check(&state, &[pod("Running", false)], &nrt("3", "100", "2")).expect_err("no sense");
    assert_eq!(difference.seen, text);
}

#[test]
fn a_cpu_of_two_pods_is_a_difference() {
    let state = state(
        "0,2-7",
        &json!({"u": {"a": "1"}, "gone": {"a": "1"}}),
        &json!({}),
        100,
        &json!(null),
    );
    let difference =
        check(&state, &[pod("Running", true)], &nrt("2", "100", "2")).expect_err("twice");
    assert_eq!(difference.place, "n cpu 1");
    assert_eq!(difference.seen, "p/a and q/a");
}

/// Makes state files with memory of 60 over both zones, and 30 in zone 0 alone.
fn spanning(free: i64) -> NodeState {
    let memory = json!({"u": {
        "a": [{"numaAffinity": [0, 1], "type": "memory", "size": 60}],
        "s": block(30),
    }});
    state("0-7", &json!({}), &memory, free, &json!(null))
}

/// Like [`nrt`], with memory available in both zones.
fn both(zone0: &str, zone1: &str) -> NodeResourceTopology {
    let mut seen = nrt("3", zone0, "2");
    seen.zones[1].resources[1].available.0 = zone1.to_owned();
    seen
}

#[test]
fn memory_over_several_zones_is_charged_in_full_to_each_and_named() {
    let restricted = NodeFacts {
        policy: "restricted".to_owned(),
        ..node()
    };
    let names = BTreeMap::new();
    let pods = [pod("Running", true)];
    let check = |state: &NodeState, mut seen: NodeResourceTopology| {
        seen.attributes[1].value = "restricted".to_owned();
        compare(&restricted, state, &Pods::new(&pods, &names), &seen)
    };
    // in the kubelet's sums, 60 and 30 of 200 leave 10 in zone 0 and 100 in zone 1
    assert_eq!(
        check(&spanning(10), both("10", "40")).map(|found| found.spanning),
        Ok(BTreeSet::from([
            "n p/a: memory 60 in node-0+node-1".to_owned()
        ]))
    );
    let once = check(&spanning(10), both("10", "100")).expect_err("charged once");
    assert_eq!(once.expected, "40 = 100 - 60 (p/a)");
    let lost = check(&spanning(20), both("10", "40")).expect_err("the kubelet has lost some");
    assert_eq!(
        lost.place,
        "what the kubelet of n has left in node-0+node-1 of memory"
    );
}

#[test]
fn memory_over_several_zones_is_a_difference_under_single_numa_node() {
    let memory = json!({"u": {"a": [{"numaAffinity": [0, 1], "type": "memory", "size": 150}]}});
    let state = state("0-7", &json!({}), &memory, 100, &json!(null));
    let difference =
        check(&state, &[pod("Running", true)], &nrt("3", "100", "2")).expect_err("spans");
    assert!(
        difference
            .seen
            .starts_with("p/a has memory over zones [0, 1]"),
        "{difference:?}"
    );
}

#[rstest]
#[case::cpus_vanished("0,2-7", 100, "what the kubelet of n has left in node-0 of cpu")]
#[case::memory_vanished("0-7", 90, "what the kubelet of n has left in node-0 of memory")]
fn the_kubelets_own_sums_must_agree(#[case] left: &str, #[case] free: i64, #[case] place: &str) {
    let state = state(left, &json!({}), &json!({}), free, &json!(null));
    let difference = check(&state, &[], &nrt("3", "100", "2")).expect_err("differs");
    assert_eq!(difference.place, place);
}

#[rstest]
#[case::zone("node-1", "node-2", "zones of n")]
#[case::cost("20", "21", "n node-0 costs")]
#[case::capacity("\"120\"", "\"119\"", "n node-0 memory capacity")]
#[case::allocatable(
    "\"allocatable\":\"3\"",
    "\"allocatable\":\"3500m\"",
    "n node-0 cpu allocatable"
)]
#[case::resource("x/dev", "y/dev", "n node-0 resources")]
#[case::scope("\"container\"", "\"pod\"", "n attribute topologyManagerScope")]
fn each_part_of_an_nrt_is_compared(#[case] from: &str, #[case] to: &str, #[case] place: &str) {
    let text = serde_json::to_string(&nrt("3", "100", "2")).expect("JSON");
    assert!(text.contains(from), "{text}");
    let seen = serde_json::from_str(&text.replace(from, to)).expect("an NRT");
    let difference = check(&nothing(), &[], &seen).expect_err("differs");
    assert_eq!(difference.place, place);
}
