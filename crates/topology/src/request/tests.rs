use ContainerKind::{App, Init, Sidecar};
use rstest::rstest;

use super::*;

fn mk_container(
    kind: ContainerKind,
    requests: &[(&str, i64)],
    limits: &[(&str, i64)],
) -> Container {
    let list = |items: &[(&str, i64)]| items.iter().copied().collect();
    Container {
        name: "c".to_owned(),
        kind,
        requests: list(requests),
        limits: list(limits),
    }
}

fn mk_guaranteed(kind: ContainerKind, cpu: i64, memory: i64) -> Container {
    let list = [("cpu", cpu), ("memory", memory)];
    mk_container(kind, &list, &list)
}

const NOTHING: &[(&str, i64)] = &[];

/// Parses `cpu=1 memory=2 | cpu=1`: requests, then limits.
fn mk_written(text: &str) -> Container {
    let list = |text: &str| -> Resources {
        text.split_whitespace()
            .map(|item| item.split_once('=').expect("name=amount"))
            .map(|(name, amount)| (name.to_owned(), amount.parse().expect("number")))
            .collect()
    };
    let (requests, limits) = text.split_once('|').expect("requests | limits");
    Container {
        name: "c".to_owned(),
        kind: App,
        requests: list(requests),
        limits: list(limits),
    }
}

#[rstest]
#[case::nothing(&["|"], Qos::BestEffort)]
#[case::zero(&["cpu=0 | cpu=0"], Qos::BestEffort)]
#[case::device_only(&["v/d=1 | v/d=1"], Qos::BestEffort)]
#[case::requests(&["cpu=1 |"], Qos::Burstable)]
#[case::lower(&["cpu=1 memory=1 | cpu=2 memory=1"], Qos::Burstable)]
#[case::no_memory(&["cpu=1 | cpu=1"], Qos::Burstable)]
#[case::equal(&["cpu=1 memory=1 | cpu=1 memory=1"], Qos::Guaranteed)]
#[case::one_without(&["cpu=1 memory=1 | cpu=1 memory=1", "|"], Qos::Burstable)]
fn class_follows_requests_and_limits(#[case] containers: &[&str], #[case] expected: Qos) {
    assert_eq!(
        Pod::new(containers.iter().map(|text| mk_written(text)).collect()).qos(),
        expected
    );
}

#[test]
fn pod_level_resources_decide_class_and_node_request() {
    let level = Resources::from_iter([("cpu", 4000), ("memory", 8)]);
    let pod = Pod::new(vec![mk_container(
        App,
        &[("cpu", 1000), ("v/d", 1)],
        &[("v/d", 1)],
    )])
    .with_pod_level(level.clone(), &level)
    .with_overhead(Resources::from_iter([("cpu", 250)]));
    assert_eq!(pod.qos(), Qos::Guaranteed);
    assert_eq!(
        pod.node_request(),
        Resources::from_iter([("cpu", 4250), ("memory", 8), ("v/d", 1)])
    );
}

#[test]
fn node_request_is_the_peak_over_the_pods_life() {
    let pod = Pod::new(vec![
        mk_guaranteed(Init, 5000, 1),
        mk_guaranteed(Sidecar, 1000, 1),
        mk_guaranteed(Init, 6000, 1),
        mk_guaranteed(App, 2000, 3),
        mk_guaranteed(App, 2000, 4),
    ]);
    assert_eq!(
        pod.node_request(),
        Resources::from_iter([("cpu", 7000), ("memory", 8)])
    );
}

#[rstest]
#[case::whole_cpus(vec![mk_guaranteed(App, 2000, 1)], true)]
#[case::fraction_with_memory(vec![mk_guaranteed(App, 1500, 1)], true)]
#[case::only_init(
    vec![mk_guaranteed(Init, 2000, 1), mk_container(App, &[("cpu", 1)], NOTHING)], false
)]
#[case::burstable_device(vec![mk_container(App, &[("cpu", 1000), ("v/d", 1)], NOTHING)], true)]
#[case::burstable(vec![mk_container(App, &[("cpu", 1000)], NOTHING)], false)]
#[case::sidecar_device(vec![mk_container(Sidecar, &[("v/d", 1)], NOTHING), mk_container(App, NOTHING, NOTHING)], true)]
#[case::device_without_zone(vec![mk_container(App, &[("v/other", 1)], NOTHING)], false)]
fn exclusivity_follows_class_and_zones(#[case] containers: Vec<Container>, #[case] expected: bool) {
    let zoned = |name: &ResourceName| matches!(name.as_str(), "cpu" | "memory" | "v/d");
    assert_eq!(Pod::new(containers).is_exclusive(zoned), expected);
}

#[test]
fn a_zone_may_be_used_if_it_has_room_for_what_goes_there_as_one() {
    let pod = Pod::new(vec![
        mk_guaranteed(App, 4000, 1),
        mk_guaranteed(App, 2000, 1),
    ]);
    let zone = |cpu| Resources::from_iter([("cpu", cpu), ("memory", 9)]);
    let may = |scope, cpu| pod.may_use(scope, &zone(cpu), |_| true);
    assert!(may(Scope::Container, 2000) && !may(Scope::Container, 1000));
    assert!(may(Scope::Pod, 6000) && !may(Scope::Pod, 5000));
    let shared = Pod::new(vec![mk_container(App, &[("cpu", 1)], NOTHING)]);
    assert!(!shared.may_use(Scope::Container, &zone(9000), |_| true));
}

#[test]
fn exclusive_request_leaves_out_what_is_shared() {
    let pod = Pod::new(vec![
        mk_guaranteed(App, 1500, 7),
        mk_guaranteed(App, 2000, 1),
    ])
    .with_overhead(Resources::from_iter([("cpu", 250)]));
    let request = pod.exclusive_request(|_| true);
    assert_eq!(
        request,
        Resources::from_iter([("cpu", 2000), ("memory", 8)])
    );
    assert_eq!(
        pod.exclusive_request(ResourceName::is_cpu),
        Resources::from_iter([("cpu", 2000)])
    );
}
