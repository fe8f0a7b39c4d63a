//! Which pods an NRT accounts for.

use super::*;

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
