use super::*;
use crate::numa::settings::Mode;
use crate::state::pod::Phase;
use crate::testing::{mk_container, mk_pod, mk_pod_of, mk_resources};
use nrt::decode::Published;
use nrt::fingerprint::{Method, compute};
use proptest::prelude::*;
use scheduler_config::args::{ForeignPodsDetect, ResyncMethod};
use topology::mask::ZoneId;
use topology::policy::{CpuManager, ManagerConfig, Managers, Policy, Scope};
use topology::request::ContainerKind;
use topology::zone::{Amounts, Zone};

const NODE: &str = "worker-0";
const MANAGERS: Managers = Managers {
    cpus: CpuManager::Single,
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
fn the_matching_nrt_replaces_the_charge() {
    let mut cache = mk_cache();
    cache.apply_nrt(NODE, mk_nrt(&["cpu=30", "cpu=30"], &[]));
    let pod = mk_pod("a", "cpu=8 memory=16Gi");
    cache.reserve(NODE, &on_node(&pod, Phase::Pending));
    check(&cache, &["cpu=22", "cpu=22"]);
    // The NRT was published before the kubelet saw the pod, so the pod is still charged.
    cache.apply_nrt(NODE, mk_nrt(&["cpu=30", "cpu=30"], &[]));
    check(&cache, &["cpu=22", "cpu=22"]);
    assert!(cache.apply_nrt(NODE, mk_nrt(&["cpu=22", "cpu=30"], &["a"])));
    check(&cache, &["cpu=22", "cpu=30"]);
    assert!(cache.is_settled(NODE));
}

#[test]
fn of_two_new_pods_the_one_that_is_shown_is_accounted_for() {
    let mut cache = mk_cache();
    cache.apply_nrt(NODE, mk_nrt(&["cpu=30", "cpu=30"], &[]));
    for name in ["a", "b"] {
        cache.reserve(
            NODE,
            &on_node(&mk_pod(name, "cpu=8 memory=16Gi"), Phase::Pending),
        );
    }
    cache.apply_nrt(NODE, mk_nrt(&["cpu=22", "cpu=30"], &["a"]));
    check(&cache, &["cpu=14", "cpu=22"]);
}

#[test]
fn an_nrt_with_unknown_pods_waits_for_the_pod_event() {
    let mut cache = mk_cache();
    cache.apply_nrt(NODE, mk_nrt(&["cpu=30"], &[]));
    cache.apply_nrt(NODE, mk_nrt(&["cpu=26"], &["other"]));
    check(&cache, &["cpu=30"]);
    assert!(!cache.is_settled(NODE));
    let pod = mk_pod("other", "cpu=4 memory=1Gi");
    assert!(cache.apply_pod(NODE, &foreign(&pod, Phase::Pending)));
    check(&cache, &["cpu=26"]);
}

#[test]
fn a_foreign_pod_closes_the_node_until_accounted_for() {
    let mut cache = mk_cache();
    cache.apply_nrt(NODE, mk_nrt(&["cpu=30"], &[]));
    let pod = mk_pod("other", "cpu=4 memory=1Gi");
    assert!(cache.apply_pod(NODE, &foreign(&pod, Phase::Pending)));
    assert_eq!(cache.view(NODE), &View::Stale);
    cache.apply_nrt(NODE, mk_nrt(&["cpu=30"], &[]));
    assert_eq!(cache.view(NODE), &View::Stale);
    assert!(cache.apply_nrt(NODE, mk_nrt(&["cpu=26"], &["other"])));
    check(&cache, &["cpu=26"]);
    // The pod is deleted and no NRT shows it yet: the old amounts err on the safe side.
    cache.delete_pod(NODE, &pod.key, Instant::now());
    check(&cache, &["cpu=26"]);
    assert!(cache.apply_nrt(NODE, mk_nrt(&["cpu=30"], &[])));
    check(&cache, &["cpu=30"]);
}

#[test]
fn a_foreign_pod_that_ends_unseen_opens_the_node_again() {
    let mut cache = mk_cache();
    cache.apply_nrt(NODE, mk_nrt(&["cpu=30"], &[]));
    let pod = mk_pod("other", "cpu=4 memory=1Gi");
    cache.apply_pod(NODE, &foreign(&pod, Phase::Pending));
    assert!(cache.apply_pod(NODE, &foreign(&pod, Phase::Terminal)));
    check(&cache, &["cpu=30"]);
}

#[test]
fn foreign_pods_that_share_do_not_matter() {
    let shared = mk_pod_of(
        "web",
        vec![crate::testing::mk_container(
            ContainerKind::App,
            "cpu=4",
            "",
        )],
    );
    for detect in [
        ForeignPodsDetect::OnlyExclusiveResources,
        ForeignPodsDetect::All,
        ForeignPodsDetect::None,
    ] {
        let mut cache = Cache::new(mk_settings(Mode::OverReserve, detect));
        cache.apply_nrt(NODE, mk_nrt(&["cpu=30"], &[]));
        cache.apply_pod(NODE, &foreign(&shared, Phase::Running));
        check(&cache, &["cpu=30"]);
    }
}

#[test]
fn with_detection_off_foreign_pods_are_charged_like_ours() {
    let mut cache = Cache::new(mk_settings(Mode::OverReserve, ForeignPodsDetect::None));
    cache.apply_nrt(NODE, mk_nrt(&["cpu=30"], &[]));
    cache.apply_pod(
        NODE,
        &foreign(&mk_pod("other", "cpu=4 memory=1Gi"), Phase::Pending),
    );
    check(&cache, &["cpu=26"]);
}

#[test]
fn after_a_restart_pods_are_charged_until_the_first_match() {
    let mut cache = mk_cache();
    let (a, b) = (
        mk_pod("a", "cpu=8 memory=1Gi"),
        mk_pod("b", "cpu=4 memory=1Gi"),
    );
    cache.apply_nrt(NODE, mk_nrt(&["cpu=18"], &["a", "b"]));
    check(&cache, &["cpu=18"]);
    cache.apply_pod(NODE, &on_node(&a, Phase::Running));
    check(&cache, &["cpu=10"]);
    cache.apply_pod(NODE, &on_node(&b, Phase::Running));
    check(&cache, &["cpu=18"]);
}

#[test]
fn a_deleted_pod_may_still_be_in_the_next_nrt() {
    let mut cache = mk_cache();
    let (a, b) = (
        mk_pod("a", "cpu=8 memory=1Gi"),
        mk_pod("b", "cpu=4 memory=1Gi"),
    );
    cache.apply_pod(NODE, &on_node(&a, Phase::Running));
    cache.apply_nrt(NODE, mk_nrt(&["cpu=22"], &["a"]));
    cache.delete_pod(NODE, &a.key, Instant::now());
    cache.reserve(NODE, &on_node(&b, Phase::Pending));
    check(&cache, &["cpu=18"]);
    cache.apply_nrt(NODE, mk_nrt(&["cpu=18"], &["a", "b"]));
    check(&cache, &["cpu=18"]);
    cache.apply_nrt(NODE, mk_nrt(&["cpu=26"], &["b"]));
    check(&cache, &["cpu=26"]);
}

#[test]
fn a_namesake_is_accounted_for_only_by_what_comes_after_it_runs() {
    let mut cache = mk_cache();
    let small = mk_pod("db-0", "cpu=2 memory=1Gi");
    let large = Pod {
        uid: "second".to_owned(),
        ..mk_pod("db-0", "cpu=20 memory=1Gi")
    };
    cache.apply_pod(NODE, &on_node(&small, Phase::Running));
    cache.apply_nrt(NODE, mk_nrt(&["cpu=28"], &["db-0"]));
    check(&cache, &["cpu=28"]);
    cache.delete_pod(NODE, &small.key, Instant::now());
    cache.reserve(NODE, &on_node(&large, Phase::Pending));
    check(&cache, &["cpu=8"]);
    // The exporter repeats the old set: it has the name of the new pod but means the old one.
    cache.apply_nrt(NODE, mk_nrt(&["cpu=28"], &["db-0"]));
    check(&cache, &["cpu=8"]);
    cache.apply_pod(NODE, &on_node(&large, Phase::Running));
    check(&cache, &["cpu=8"]);
    cache.apply_nrt(NODE, mk_nrt(&["cpu=10"], &["db-0"]));
    check(&cache, &["cpu=10"]);
}

#[test]
fn a_finished_pod_is_not_charged_whether_published_or_not() {
    let mut cache = mk_cache();
    cache.apply_nrt(NODE, mk_nrt(&["cpu=30"], &[]));
    let pod = mk_pod("job", "cpu=8 memory=1Gi");
    cache.reserve(NODE, &on_node(&pod, Phase::Pending));
    cache.apply_pod(NODE, &on_node(&pod, Phase::Terminal));
    check(&cache, &["cpu=30"]);
    // An exporter of an older kubelet lists finished pods too.
    cache.apply_nrt(NODE, mk_nrt(&["cpu=22"], &["job"]));
    check(&cache, &["cpu=22"]);
    cache.apply_nrt(NODE, mk_nrt(&["cpu=30"], &[]));
    check(&cache, &["cpu=30"]);
}

#[test]
fn a_node_without_pods_settles_on_the_empty_set() {
    let mut cache = mk_cache();
    cache.apply_nrt(NODE, mk_nrt(&["cpu=30"], &[]));
    assert!(cache.is_settled(NODE));
}

#[test]
fn settings_follow_the_newest_nrt_at_once() {
    let mut cache = mk_cache();
    cache.apply_nrt(NODE, mk_nrt(&["cpu=30"], &[]));
    let mut other = mk_nrt(&["cpu=26"], &["unknown"]);
    other.config.scope = Scope::Pod;
    assert!(cache.apply_nrt(NODE, other));
    check(&cache, &["cpu=30"]);
    let View::Fresh(fresh) = cache.view(NODE) else {
        panic!("fresh")
    };
    assert_eq!(fresh.config.scope, Scope::Pod);
}

#[test]
fn nrts_that_vanish_and_return_are_followed() {
    let mut cache = mk_cache();
    assert_eq!(cache.view(NODE), &View::Absent);
    cache.apply_nrt(NODE, mk_nrt(&["cpu=22"], &["a"]));
    let pod = on_node(&mk_pod("a", "cpu=8 memory=1Gi"), Phase::Running);
    cache.apply_pod(NODE, &pod);
    check(&cache, &["cpu=22"]);
    assert!(cache.delete_nrt(NODE));
    assert_eq!(cache.view(NODE), &View::Absent);
    assert!(cache.apply_nrt(NODE, mk_nrt(&["cpu=22"], &["a"])));
    check(&cache, &["cpu=22"]);
    cache.delete_nrt(NODE);
    cache.delete_pod(NODE, &pod.key, Instant::now());
    assert!(cache.ledgers.is_empty());
}

#[test]
fn without_a_fingerprint_pods_are_charged_until_seen_running() {
    let mut cache = mk_cache();
    let nrt = |left| NodeTopology {
        fingerprint: None,
        ..mk_nrt(&[left], &[])
    };
    let pod = mk_pod("a", "cpu=8 memory=1Gi");
    cache.apply_nrt(NODE, nrt("cpu=30"));
    cache.reserve(NODE, &on_node(&pod, Phase::Pending));
    cache.apply_nrt(NODE, nrt("cpu=30"));
    check(&cache, &["cpu=22"]);
    cache.apply_pod(NODE, &on_node(&pod, Phase::Running));
    check(&cache, &["cpu=22"]);
    cache.apply_nrt(NODE, nrt("cpu=22"));
    check(&cache, &["cpu=22"]);
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

/// The next event on a node.
#[derive(Clone, Debug)]
enum Step {
    /// A pod with this many CPUs is placed if it fits.
    Place(i64),
    /// Like `Place`, and an NRT accounts for the pod at once.
    Settle(i64),
    /// The kubelet admits one of the pods on their way.
    Admit(prop::sample::Index),
    /// A pod ends; the flag says whether the kubelet reports it at once.
    End(prop::sample::Index, bool),
    /// The kubelet reports the status of a pod.
    ReportStatus(prop::sample::Index),
    /// A pod is marked for deletion.
    MarkForDeletion(prop::sample::Index),
    /// A pod that was reported to have ended is deleted.
    Delete(prop::sample::Index),
    /// The exporter reads the node.
    Observe,
    /// What the exporter read arrives.
    Publish,
}

fn mk_step() -> impl Strategy<Value = Step> {
    let index = any::<prop::sample::Index>;
    prop_oneof![
        6 => (2..=8_i64).prop_map(Step::Place),
        3 => index().prop_map(Step::Admit),
        3 => (index(), any::<bool>()).prop_map(|(index, reported)| Step::End(index, reported)),
        3 => index().prop_map(Step::ReportStatus),
        1 => index().prop_map(Step::MarkForDeletion),
        1 => index().prop_map(Step::Delete),
        1 => Just(Step::Observe),
        1 => Just(Step::Publish),
    ]
}

/// A node as its kubelet knows it, and the information in transit between it and the scheduler.
struct Model {
    /// CPUs left in each zone.
    left: Vec<i64>,
    coming: Vec<(Pod, i64)>,
    admitted: Vec<Admitted>,
    observed: Option<NodeTopology>,
    cache: Cache,
}

struct Admitted {
    pod: Pod,
    cpus: i64,
    zone: usize,
    ended: bool,
}

impl Model {
    fn new(left: Vec<i64>) -> Self {
        let mut model = Self {
            left,
            coming: Vec::new(),
            admitted: Vec::new(),
            observed: None,
            cache: mk_cache(),
        };
        model.take(&Step::Observe, 0);
        model.take(&Step::Publish, 0);
        model
    }

    /// Picks one of the admitted pods for which `holds` returns true.
    fn pick(
        &mut self,
        index: prop::sample::Index,
        holds: impl Fn(&Admitted) -> bool,
    ) -> Option<&mut Admitted> {
        let mut some: Vec<_> = self.admitted.iter_mut().filter(|pod| holds(pod)).collect();
        if some.is_empty() {
            return None;
        }
        Some(some.remove(index.index(some.len())))
    }

    /// Performs a step. Returns false if the kubelet has no room for a pod that it received.
    fn take(&mut self, step: &Step, number: usize) -> bool {
        match step {
            Step::Place(cpus) => {
                let pod = mk_pod(&format!("p{number}"), &format!("cpu={cpus} memory=1Gi"));
                if accepts(&self.cache, &pod).is_ok() {
                    let pod = on_node(&pod, Phase::Pending);
                    self.cache.reserve(NODE, &pod);
                    self.coming.push((pod, *cpus));
                }
            }
            Step::Settle(cpus) => {
                self.take(&Step::Place(*cpus), number);
                let admitted = self.coming.is_empty() || self.admit(0);
                self.take(&Step::Observe, number);
                self.take(&Step::Publish, number);
                return admitted;
            }
            Step::Admit(index) if !self.coming.is_empty() => {
                return self.admit(index.index(self.coming.len()));
            }
            Step::Admit(_) => {}
            Step::End(index, reported) => {
                if let Some(known) = self.pick(*index, |known| !known.ended) {
                    known.ended = true;
                    let (key, zone, cpus) = (known.pod.key.clone(), known.zone, known.cpus);
                    self.left[zone] += cpus;
                    if *reported {
                        self.report_status(&key);
                    }
                }
            }
            Step::ReportStatus(index) => {
                let key = self
                    .pick(*index, |_| true)
                    .map(|known| known.pod.key.clone());
                if let Some(key) = key {
                    self.report_status(&key);
                }
            }
            Step::MarkForDeletion(index) => {
                if let Some(known) = self.pick(*index, |_| true) {
                    known.pod.deleting = true;
                    let pod = known.pod.clone();
                    self.cache.apply_pod(NODE, &pod);
                }
            }
            Step::Delete(index) => {
                let is_over = |known: &Admitted| known.pod.phase == Phase::Terminal;
                if let Some(known) = self.pick(*index, is_over) {
                    let key = known.pod.key.clone();
                    self.admitted.retain(|known| known.pod.key != key);
                    self.cache.delete_pod(NODE, &key, Instant::now());
                }
            }
            Step::Observe => self.observed = Some(self.observe()),
            Step::Publish => {
                if let Some(nrt) = self.observed.take() {
                    self.cache.apply_nrt(NODE, nrt);
                }
            }
        }
        true
    }

    /// kubelet-node.md 5.3: with policy single-numa-node the kubelet takes the lowest zone with room.
    fn admit(&mut self, index: usize) -> bool {
        let (pod, cpus) = self.coming.remove(index);
        let Some(zone) = self.left.iter().position(|left| *left >= cpus) else {
            return false;
        };
        self.left[zone] -= cpus;
        self.admitted.push(Admitted {
            pod,
            cpus,
            zone,
            ended: false,
        });
        true
    }

    fn report_status(&mut self, key: &PodKey) {
        let mut admitted = self.admitted.iter_mut();
        let Some(known) = admitted.find(|known| known.pod.key == *key) else {
            return;
        };
        known.pod.started = Some(jiff::Timestamp::UNIX_EPOCH);
        known.pod.phase = if known.ended {
            Phase::Terminal
        } else {
            Phase::Running
        };
        self.cache.apply_pod(NODE, &known.pod);
    }

    fn observe(&self) -> NodeTopology {
        let running = self.admitted.iter().filter(|known| !known.ended);
        let placed: Vec<(&str, usize)> = running
            .map(|known| (known.pod.key.name.as_str(), known.zone))
            .collect();
        let left: Vec<String> = (0..self.left.len())
            .map(|zone| {
                let pods = placed.iter().filter(|(_, of)| *of == zone).count();
                format!("cpu={} memory={}Gi", self.left[zone], 80 - pods)
            })
            .collect();
        let left: Vec<&str> = left.iter().map(String::as_str).collect();
        let mut nrt = mk_placed_nrt(&left, &placed);
        nrt.config.managers = Some(MANAGERS);
        nrt
    }
}

proptest! {
    #[test]
    fn pods_on_their_way_all_find_room_whoever_is_first_and_whatever_ends(
        zones in prop::collection::vec(2..=10_i64, 1..=3),
        first in prop::collection::vec(2..=8_i64, 0..=4),
        steps in prop::collection::vec(mk_step(), 1..=30),
        rest in prop::collection::vec(any::<prop::sample::Index>(), 34),
    ) {
        let mut model = Model::new(zones);
        let mut steps = steps;
        steps.splice(0..0, first.into_iter().map(Step::Settle));
        for (number, step) in steps.iter().enumerate() {
            prop_assert!(model.take(step, number));
        }
        for index in rest {
            prop_assert!(model.take(&Step::Admit(index), 0));
        }
    }
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
