use nrt::decode::Published;
use nrt::fingerprint::{Method, compute};
use proptest::prelude::*;
use scheduler_config::args::{ForeignPodsDetect, ResyncMethod};
use topology::mask::ZoneId;
use topology::policy::{CpuManager, ManagerConfig, Managers, Policy, Scope};
use topology::request::ContainerKind;
use topology::zone::{Amounts, Zone};

use super::*;
use crate::numa::settings::Mode;
use crate::state::pod::Phase;
use crate::testing::{mk_container, mk_pod, mk_pod_of, mk_resources};

mod accounting;
mod on_their_way;

const NODE: &str = "worker-0";
const MANAGERS: Managers = Managers {
    cpus: CpuManager::Single,
    packed_cores: None,
    memory: true,
};

fn mk_settings(mode: Mode, foreign: ForeignPodsDetect) -> Settings {
    Settings {
        mode,
        foreign,
        method: ResyncMethod::Autodetect,
        profiles: ["topo".to_owned()].into(),
        trace: false,
        placement: true,
    }
}

fn mk_cache() -> Cache {
    Cache::new(mk_settings(
        Mode::OverReserve,
        ForeignPodsDetect::OnlyExclusiveResources,
    ))
}

/// Builds an NRT of zones with this left in each (of 40 cores and 80 GiB), for pods of these names in namespace `ns`.
fn mk_nrt(left: &[&str], pods: &[&str]) -> NodeTopology {
    let zones = left.iter().enumerate().map(|(index, text)| Zone {
        resources: mk_resources(text)
            .iter()
            .map(|(name, available)| {
                (
                    name.clone(),
                    Amounts {
                        capacity: 80 << 30,
                        allocatable: 80 << 30,
                        available,
                    },
                )
            })
            .collect(),
        ..Zone::new(ZoneId::new(index as u64).expect("small"))
    });
    NodeTopology {
        zones: zones.collect(),
        config: ManagerConfig {
            policy: Policy::SingleNumaNode,
            scope: Scope::Container,
            max_numa_nodes: 8,
            managers: None,
        },
        fingerprint: Some(Published {
            text: compute(pods.iter().map(|name| ("ns", *name))).to_string(),
            method: Method::WithExclusiveResources,
        }),
        placement: None,
    }
}

fn on_node(pod: &Pod, phase: Phase) -> Pod {
    Pod {
        node: Some(NODE.to_owned()),
        phase,
        ..pod.clone()
    }
}

fn foreign(pod: &Pod, phase: Phase) -> Pod {
    Pod {
        scheduler: "default-scheduler".to_owned(),
        ..on_node(pod, phase)
    }
}

#[track_caller]
fn check(cache: &Cache, expected: &[&str]) {
    match cache.view(NODE) {
        View::Fresh(fresh) => {
            let left: Vec<String> = fresh
                .free
                .iter()
                .map(|zone| zone.available.to_string())
                .collect();
            let expected: Vec<String> = expected
                .iter()
                .map(|text| mk_resources(text).to_string())
                .collect();
            assert_eq!(left, expected);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn reservations_charge_every_zone_until_taken_back() {
    let mut cache = mk_cache();
    cache.apply_nrt(
        NODE,
        mk_nrt(&["cpu=30 memory=60Gi", "cpu=30 memory=60Gi"], &[]),
    );
    let (a, b) = (
        mk_pod("a", "cpu=8 memory=16Gi"),
        mk_pod("b", "cpu=4 memory=8Gi"),
    );
    cache.reserve(NODE, &on_node(&a, Phase::Pending));
    check(&cache, &["cpu=22 memory=44Gi"; 2]);
    cache.reserve(NODE, &on_node(&b, Phase::Pending));
    check(&cache, &["cpu=18 memory=36Gi"; 2]);
    assert!(cache.unreserve(NODE, &b.key));
    check(&cache, &["cpu=22 memory=44Gi"; 2]);
}

#[test]
fn several_containers_and_devices_are_charged_where_they_are_listed() {
    let mut cache = mk_cache();
    cache.apply_nrt(
        NODE,
        mk_nrt(&["cpu=20 memory=32Gi", "cpu=20 memory=32Gi v/nic=8"], &[]),
    );
    let container = |text| crate::testing::mk_container(ContainerKind::App, text, text);
    let pod = mk_pod_of(
        "a",
        vec![
            container("cpu=16 memory=4Gi v/nic=2"),
            container("cpu=2 memory=2Gi"),
        ],
    );
    cache.reserve(NODE, &on_node(&pod, Phase::Pending));
    check(&cache, &["cpu=2 memory=26Gi", "cpu=2 memory=26Gi v/nic=6"]);
}

#[test]
fn finished_pods_that_nobody_removes_do_not_hide_who_an_nrt_accounts_for() {
    let mut cache = mk_cache();
    for number in 0..20 {
        let job = mk_pod(&format!("job-{number}"), "cpu=2 memory=2Gi");
        cache.apply_pod(NODE, &on_node(&job, Phase::Terminal));
    }
    cache.apply_nrt(NODE, mk_nrt(&["cpu=30", "cpu=30"], &[]));
    for name in ["a", "b"] {
        let pod = mk_pod(name, "cpu=8 memory=16Gi");
        cache.reserve(NODE, &on_node(&pod, Phase::Pending));
    }
    check(&cache, &["cpu=14", "cpu=14"]);
    cache.apply_nrt(NODE, mk_nrt(&["cpu=22", "cpu=30"], &["a"]));
    check(&cache, &["cpu=14", "cpu=22"]);
}

/// Builds an NRT like [`mk_nrt`] that also publishes the zone of each pod.
fn mk_placed_nrt(left: &[&str], placed: &[(&str, usize)]) -> NodeTopology {
    let pods: Vec<&str> = placed.iter().map(|(pod, _)| *pod).collect();
    let containers = placed.iter().map(|(pod, zone)| {
        let container = nrt::placement::Container {
            namespace: "ns",
            pod,
            container: "app",
        };
        (container, *zone)
    });
    NodeTopology {
        placement: Some(nrt::placement::encode(containers, left.len()).expect("small")),
        ..mk_nrt(left, &pods)
    }
}

#[test]
fn what_an_ended_pod_held_is_free_before_an_nrt_says_so() {
    let mut cache = mk_cache();
    let pods = ["a", "b"].map(|name| mk_pod(name, "cpu=8 memory=16Gi"));
    for pod in &pods {
        cache.apply_pod(NODE, &on_node(pod, Phase::Running));
    }
    let placed = mk_placed_nrt(&["cpu=22", "cpu=30"], &[("a", 0), ("b", 1)]);
    cache.apply_nrt(NODE, placed);
    check(&cache, &["cpu=22", "cpu=30"]);
    let leaving = Pod {
        deleting: true,
        ..on_node(&pods[0], Phase::Running)
    };
    cache.apply_pod(NODE, &leaving);
    check(&cache, &["cpu=22", "cpu=30"]);
    assert!(cache.apply_pod(NODE, &on_node(&pods[0], Phase::Terminal)));
    check(&cache, &["cpu=30", "cpu=30"]);
    cache.delete_pod(NODE, &pods[0].key, Instant::now());
    check(&cache, &["cpu=30", "cpu=30"]);
    // an NRT made before the pod ended that arrives late, then one made after
    let late = mk_placed_nrt(&["cpu=22", "cpu=29"], &[("a", 0), ("b", 1)]);
    cache.apply_nrt(NODE, late);
    check(&cache, &["cpu=30", "cpu=29"]);
    cache.apply_nrt(NODE, mk_placed_nrt(&["cpu=30", "cpu=29"], &[("b", 1)]));
    check(&cache, &["cpu=30", "cpu=29"]);
}

#[test]
fn what_an_ended_pod_held_in_an_untold_zone_waits_for_an_nrt() {
    let mut cache = mk_cache();
    let pod = mk_pod("a", "cpu=8 memory=16Gi");
    cache.apply_pod(NODE, &on_node(&pod, Phase::Running));
    cache.apply_nrt(NODE, mk_nrt(&["cpu=22", "cpu=30"], &["a"]));
    cache.apply_pod(NODE, &on_node(&pod, Phase::Terminal));
    check(&cache, &["cpu=22", "cpu=30"]);
}

#[test]
fn passthrough_takes_nrts_as_they_are() {
    let mut cache = Cache::new(mk_settings(Mode::Passthrough, ForeignPodsDetect::All));
    cache.apply_nrt(NODE, mk_nrt(&["cpu=30"], &["unknown"]));
    let pod = mk_pod("a", "cpu=8 memory=1Gi");
    cache.reserve(NODE, &on_node(&pod, Phase::Pending));
    cache.apply_pod(
        NODE,
        &foreign(&mk_pod("b", "cpu=8 memory=1Gi"), Phase::Pending),
    );
    check(&cache, &["cpu=30"]);
    cache.apply_nrt(NODE, mk_nrt(&["cpu=3"], &["unknown"]));
    check(&cache, &["cpu=3"]);
}

#[test]
fn discard_reserved_closes_the_node_from_reservation_to_binding() {
    let mut cache = Cache::new(mk_settings(Mode::DiscardReserved, ForeignPodsDetect::All));
    cache.apply_nrt(NODE, mk_nrt(&["cpu=30"], &[]));
    let pod = mk_pod("a", "cpu=8 memory=1Gi");
    cache.reserve(NODE, &on_node(&pod, Phase::Pending));
    assert_eq!(cache.view(NODE), &View::Stale);
    assert!(cache.bound(NODE, &pod.key));
    check(&cache, &["cpu=30"]);
}

#[test]
fn stats_count_what_is_open() {
    let mut cache = mk_cache();
    cache.apply_nrt(NODE, mk_nrt(&["cpu=30"], &[]));
    cache.apply_nrt("worker-1", mk_nrt(&["cpu=30"], &["unknown"]));
    cache.reserve(
        NODE,
        &on_node(&mk_pod("a", "cpu=8 memory=1Gi"), Phase::Pending),
    );
    assert_eq!(
        cache.stats(),
        Stats {
            nodes: 2,
            stale: 0,
            unmatched: 1,
            charged: 1
        }
    );
}

#[test]
fn a_pod_deleted_while_charged_lingers_for_a_while_or_until_the_next_match() {
    let mut cache = mk_cache();
    let (a, start) = (mk_pod("a", "cpu=8 memory=1Gi"), Instant::now());
    cache.apply_nrt(NODE, mk_nrt(&["cpu=30"], &[]));
    cache.reserve(NODE, &on_node(&a, Phase::Pending));
    assert!(!cache.delete_pod(NODE, &a.key, start));
    check(&cache, &["cpu=22"]);
    assert!(!cache.expire(start));
    let due = cache.next_expiry().expect("stays charged");
    assert!(cache.expire(due));
    check(&cache, &["cpu=30"]);
    assert_eq!(cache.next_expiry(), None);

    cache.reserve(NODE, &on_node(&a, Phase::Pending));
    cache.delete_pod(NODE, &a.key, start);
    check(&cache, &["cpu=22"]);
    assert!(cache.apply_nrt(NODE, mk_nrt(&["cpu=30"], &[])));
    check(&cache, &["cpu=30"]);
}

#[test]
fn comparisons_are_traced_when_asked_for() {
    let mut settings = mk_settings(Mode::OverReserve, ForeignPodsDetect::All);
    settings.trace = true;
    let mut cache = Cache::new(settings);
    let pod = mk_pod("a", "cpu=8 memory=1Gi");
    cache.apply_nrt(NODE, mk_nrt(&["cpu=22"], &["a"]));
    cache.apply_pod(NODE, &on_node(&pod, Phase::Running));
    let checks = cache.take_checks();
    let text = |pods: &[&str]| compute(pods.iter().map(|name| ("ns", *name))).to_string();
    let mk = |pods: &[&str]| Check {
        node: NODE.to_owned(),
        expected: text(&["a"]),
        computed: text(pods),
        pods: pods.iter().map(|_| pod.key.clone()).collect(),
    };
    assert_eq!(checks, [mk(&[]), mk(&["a"])]);
    assert_eq!(cache.take_checks(), []);
}

/// kubelet-node.md 6.6: what an init container took and no later container reused stays taken, and no NRT shows it.
#[test]
fn what_init_containers_leave_behind_stays_charged_though_no_nrt_shows_it() {
    let mut cache = mk_cache();
    let mut nrt = mk_nrt(&["cpu=8 memory=8Gi", "cpu=6 memory=8Gi"], &["p"]);
    nrt.config.managers = Some(MANAGERS);
    let pod = mk_pod_of(
        "p",
        vec![
            mk_container(ContainerKind::Init, "cpu=4 memory=3Gi", "cpu=4 memory=3Gi"),
            mk_container(ContainerKind::App, "cpu=2 memory=1Gi", "cpu=2 memory=1Gi"),
        ],
    );
    cache.apply_pod(NODE, &on_node(&pod, Phase::Running));
    cache.apply_nrt(NODE, nrt.clone());
    check(&cache, &["cpu=4 memory=8Gi", "cpu=2 memory=8Gi"]);
    let View::Fresh(fresh) = cache.view(NODE) else {
        panic!("the NRT accounts for the pod");
    };
    // the zone of the pod is not known
    let most = fresh.free[0].at_most.as_ref().map(ToString::to_string);
    assert_eq!(most.as_deref(), Some("cpu=8000m,memory=8589934592"));

    // if the exporter does not publish the managers, its amounts are used as they are
    nrt.config.managers = None;
    cache.apply_nrt(NODE, nrt);
    check(&cache, &["cpu=8 memory=8Gi", "cpu=6 memory=8Gi"]);
}

/// A pod that no NRT shows yet was not admitted when the last NRT was made, so it goes to a zone where that NRT left room.
#[test]
fn a_pod_is_charged_only_where_it_may_be_if_the_managers_are_known() {
    let mut cache = mk_cache();
    let mut nrt = mk_nrt(&["cpu=4 memory=8Gi", "cpu=8 memory=8Gi"], &[]);
    nrt.config.managers = Some(MANAGERS);
    cache.apply_nrt(NODE, nrt.clone());
    let large = mk_pod("large", "cpu=6 memory=1Gi");
    cache.reserve(NODE, &on_node(&large, Phase::Pending));
    check(&cache, &["cpu=4 memory=8Gi", "cpu=2 memory=7Gi"]);
    let small = mk_pod("small", "cpu=1 memory=1Gi");
    cache.reserve(NODE, &on_node(&small, Phase::Pending));
    check(&cache, &["cpu=3 memory=7Gi", "cpu=1 memory=6Gi"]);

    nrt.config.managers = None;
    cache.apply_nrt(NODE, nrt);
    check(&cache, &["cpu=0 memory=6Gi", "cpu=1 memory=6Gi"]);
}

/// Returns whether the scheduler accepts a pod on the node, and if not, why.
fn accepts(cache: &Cache, pod: &Pod) -> Result<(), String> {
    let node = crate::testing::mk_node(NODE, "cpu=160 memory=160Gi");
    let verdict =
        crate::plugins::node_resource_topology_match::filter(pod, &node, cache.view(NODE));
    verdict.map_err(|rejection| rejection.detail.unwrap_or_default())
}

#[test]
fn a_pod_waits_while_it_might_take_the_only_place_of_one_on_its_way() {
    let mut cache = mk_cache();
    let mut nrt = mk_nrt(&["cpu=12 memory=80Gi", "cpu=8 memory=80Gi"], &[]);
    nrt.config.managers = Some(MANAGERS);
    cache.apply_nrt(NODE, nrt);
    let large = mk_pod("large", "cpu=10 memory=1Gi");
    cache.reserve(NODE, &on_node(&large, Phase::Pending));
    // zone 1 has room in addition to the large pod, but if the small one comes first the kubelet gives it zone 0
    let small = mk_pod("small", "cpu=8 memory=1Gi");
    let detail = "would leave no room for ns/large, which is on its way there: cannot align container app: cpu wanted 10000m, \
                zone 0 has 4000m, zone 1 has 0m";
    assert_eq!(accepts(&cache, &small), Err(detail.to_owned()));
    // a pod that leaves room in every zone does not wait
    assert_eq!(accepts(&cache, &mk_pod("tiny", "cpu=2 memory=1Gi")), Ok(()));

    let seen = Pod {
        started: Some(jiff::Timestamp::UNIX_EPOCH),
        ..on_node(&large, Phase::Pending)
    };
    assert!(cache.apply_pod(NODE, &seen), "who waits is tried again");
    assert_eq!(accepts(&cache, &small), Ok(()));
}

/// Builds a cache with pod "old", which runs with 6 of 8 CPUs in zone 0, as the NRT publishes; zone 1 has 10.
fn mk_with_placement() -> (Cache, Pod) {
    let mut cache = mk_cache();
    let old = mk_pod("old", "cpu=6 memory=1Gi");
    let left = ["cpu=2 memory=79Gi", "cpu=10 memory=80Gi"];
    let mut nrt = mk_placed_nrt(&left, &[("old", 0)]);
    nrt.config.managers = Some(MANAGERS);
    cache.apply_pod(NODE, &on_node(&old, Phase::Running));
    cache.apply_nrt(NODE, nrt);
    (cache, old)
}

#[test]
fn what_an_ended_pod_leaves_may_have_been_taken_by_one_on_its_way() {
    let (mut cache, old) = mk_with_placement();
    let new = mk_pod("new", "cpu=8 memory=1Gi");
    cache.reserve(NODE, &on_node(&new, Phase::Pending));
    check(&cache, &["cpu=2 memory=79Gi", "cpu=2 memory=79Gi"]);
    cache.apply_pod(NODE, &on_node(&old, Phase::Terminal));
    let either = ["cpu=0 memory=79Gi", "cpu=2 memory=79Gi"];
    check(&cache, &either);
    cache.delete_pod(NODE, &old.key, Instant::now());
    check(&cache, &either);
}

#[test]
fn a_pod_that_goes_from_a_told_zone_leaves_no_doubt_where_others_are() {
    let (mut cache, old) = mk_with_placement();
    // zone 0 never has that much
    let new = mk_pod("new", "cpu=10 memory=1Gi");
    cache.reserve(NODE, &on_node(&new, Phase::Pending));
    check(&cache, &["cpu=2 memory=79Gi", "cpu=0 memory=79Gi"]);

    let deleting = Pod {
        deleting: true,
        ..on_node(&old, Phase::Running)
    };
    cache.apply_pod(NODE, &deleting);
    check(&cache, &["cpu=2 memory=79Gi", "cpu=0 memory=79Gi"]);
    cache.apply_pod(NODE, &on_node(&old, Phase::Terminal));
    check(&cache, &["cpu=8 memory=80Gi", "cpu=0 memory=79Gi"]);
    cache.delete_pod(NODE, &old.key, Instant::now());
    check(&cache, &["cpu=8 memory=80Gi", "cpu=0 memory=79Gi"]);
    // an NRT that was made before and still differs from the last one
    let mut late = mk_placed_nrt(&["cpu=1 memory=79Gi", "cpu=10 memory=80Gi"], &[("old", 0)]);
    late.config.managers = Some(MANAGERS);
    cache.apply_nrt(NODE, late);
    check(&cache, &["cpu=7 memory=80Gi", "cpu=0 memory=79Gi"]);
}
