//! Where the managers of the kubelet are known.

use super::*;
use crate::policy::{CpuManager, Managers};

fn exact(scope: Scope, cpus: CpuManager) -> ManagerConfig {
    ManagerConfig {
        scope,
        managers: Some(Managers {
            cpus,
            packed_cores: None,
            memory: true,
        }),
        ..ManagerConfig::default()
    }
}

/// Returns the same settings, of a CPU manager that takes the whole cores of a zone in one order.
fn packed(config: ManagerConfig, threads: u16) -> ManagerConfig {
    let managers = config.managers.map(|managers| Managers {
        packed_cores: Some(threads),
        ..managers
    });
    ManagerConfig { managers, ..config }
}

fn outcome(config: &ManagerConfig, containers: &[Container], zones: &[FreeZone]) -> String {
    let pod = Pod::new(containers.to_vec());
    match fit(&pod, config, zones, |_| true) {
        Ok(()) => "fits".to_owned(),
        Err(misfit) => misfit.to_string(),
    }
}

fn two_zones() -> [FreeZone; 2] {
    [
        mk_zone(0, &[("cpu", 4000), ("memory", 8), ("vendor/nic", 1)]),
        mk_zone(1, &[("cpu", 8000), ("memory", 8), ("vendor/nic", 3)]),
    ]
}

/// kubelet-node.md 6.7: CPUs of an init container that no later container reused tie the other containers to their zone.
#[rstest]
#[case::taken_over(2, "fits")]
#[case::partly_left(
    3,
    "cannot align container app: cpu wanted 6000m, zone 0 has 1000m, zone 1 has 8000m (tied to zone 0 by an init container)"
)]
fn cpus_of_an_init_container_tie_what_follows(#[case] first: i64, #[case] expected: &str) {
    let config = exact(Scope::Container, CpuManager::Single);
    let containers = [
        mk_container(Init, 2, 1, &[]),
        mk_container(App, first, 1, &[]),
        mk_container(App, 6, 1, &[]),
    ];
    assert_eq!(outcome(&config, &containers, &two_zones()), expected);
}

/// kubelet-node.md 6.4: where whole cores are taken in one order, the larger request gets all CPUs of the smaller one.
#[rstest]
#[case::taken_over(&[2], &[4, 8], None)]
#[case::several_taken_over(&[2, 4], &[4, 8], None)]
#[case::partly_left(&[4], &[2, 8], Some("2000m, zone 1 has 8000m (tied to zone 0"))]
#[case::taken_over_together(&[4], &[2, 2, 8], None)]
#[case::part_of_a_core_first(&[1], &[2, 8], Some("2000m, zone 1 has 8000m (tied to zone 0"))]
#[case::part_of_a_core_later(&[2], &[3, 8], Some("1000m, zone 1 has 8000m (tied to zone 0"))]
fn larger_requests_for_whole_cores_take_over_what_an_init_container_had(
    #[case] init: &[i64],
    #[case] apps: &[i64],
    #[case] refused: Option<&str>,
) {
    let single = exact(Scope::Container, CpuManager::Single);
    let init = init.iter().map(|cpus| mk_container(Init, *cpus, 1, &[]));
    let apps = apps.iter().map(|cpus| mk_container(App, *cpus, 1, &[]));
    let containers: Vec<Container> = init.chain(apps).collect();
    let found = outcome(&packed(single, 2), &containers, &two_zones());
    match refused {
        None => assert_eq!(found, "fits"),
        Some(refused) => assert!(found.contains(refused), "{found}"),
    }
}

/// (kubelet-node.md 8.2)
#[test]
fn devices_of_an_init_container_tie_what_follows() {
    let config = exact(Scope::Container, CpuManager::Shared);
    let init = mk_container(Init, 1, 1, &[("vendor/nic", 1)]);
    let app = |count| mk_container(App, 1, 1, &[("vendor/nic", count)]);
    assert_eq!(
        outcome(&config, &[init.clone(), app(2)], &two_zones()),
        "cannot align container app: vendor/nic wanted 2, zone 0 has 0, zone 1 has 3 (tied to zone 0 by an init container)"
    );
    assert_eq!(
        outcome(&config, &[init, app(1), app(2)], &two_zones()),
        "fits"
    );
}

/// kubelet-node.md 6.2: fractional CPUs come from the shared pool, so they do not influence the choice of a zone. The original filter
/// still requires them to be free in one zone.
#[test]
fn parts_of_cpus_have_to_be_in_one_zone_and_do_not_choose_it() {
    let part = |milli: i64, nics: i64| {
        let mut part = mk_container(App, 0, 1, &[("vendor/nic", nics)]);
        part.requests.set("cpu", milli);
        part.limits = part.requests.clone();
        part
    };
    for scope in [Scope::Container, Scope::Pod] {
        let config = exact(scope, CpuManager::Single);
        assert_eq!(outcome(&config, &[part(7500, 0)], &two_zones()), "fits");
        assert_ne!(outcome(&config, &[part(9500, 0)], &two_zones()), "fits");
    }
    // by its CPUs the first container would go to zone 1 and leave zone 0 to the second; the kubelet puts it on zone 0
    let zones = [
        mk_zone(
            0,
            &[
                ("cpu", 4000),
                ("memory", 8),
                ("vendor/nic", 1),
                ("vendor/gpu", 1),
            ],
        ),
        mk_zone(1, &[("cpu", 6000), ("memory", 8), ("vendor/nic", 1)]),
    ];
    let second = mk_container(App, 3, 1, &[("vendor/nic", 1), ("vendor/gpu", 1)]);
    let containers = [part(5500, 1), second];
    let original = ManagerConfig::default();
    assert_eq!(outcome(&original, &containers, &zones), "fits");
    let config = exact(Scope::Container, CpuManager::Single);
    let refused = outcome(&config, &containers, &zones);
    assert!(
        refused.contains("vendor/nic wanted 1, zone 0 has 0"),
        "{refused}"
    );
}

/// (kubelet-node.md 6.3)
#[test]
fn parts_of_cores_are_refused_where_only_whole_ones_are_given() {
    for scope in [Scope::Container, Scope::Pod] {
        let config = exact(scope, CpuManager::WholeCores(2));
        let fits = outcome(&config, &[mk_container(App, 4, 1, &[])], &two_zones());
        assert_eq!(fits, "fits");
        let odd = outcome(&config, &[mk_container(App, 3, 1, &[])], &two_zones());
        assert!(
            odd.contains("(only whole cores of 2 CPUs are assigned)"),
            "{odd}"
        );
    }
    let zones = [mk_zone(0, &[("cpu", 8000), ("memory", 8)])];
    let config = exact(Scope::Pod, CpuManager::WholeCores(2));
    let held = [mk_container(Init, 8, 1, &[]), mk_container(App, 4, 1, &[])];
    let held = outcome(&config, &held, &zones);
    assert!(held.contains("(init containers hold the rest)"), "{held}");
}

/// kubelet-node.md 7.2: hugepages that only init containers request do not influence the choice of a zone, but the chosen zone needs them.
#[test]
fn pod_scope_does_not_look_for_memory_of_init_containers_alone() {
    let config = exact(Scope::Pod, CpuManager::Single);
    let zones = [
        mk_zone(0, &[("cpu", 4000), ("memory", 8)]),
        mk_zone(1, &[("cpu", 4000), ("memory", 8), ("hugepages-2Mi", 4)]),
    ];
    let init = mk_container(Init, 1, 1, &[("hugepages-2Mi", 2)]);
    let plain = outcome(
        &config,
        &[init.clone(), mk_container(App, 1, 1, &[])],
        &zones,
    );
    assert!(
        plain.starts_with("cannot align pod: hugepages-2Mi"),
        "{plain}"
    );
    let asks = mk_container(App, 1, 1, &[("hugepages-2Mi", 2)]);
    assert_eq!(outcome(&config, &[init, asks], &zones), "fits");
}

/// The zone that the kubelet may take because of what may be free there needs the hugepages of the init container, too.
#[rstest]
#[case::only_in_the_certain_zone(
    0,
    "cannot align pod: hugepages-2Mi wanted 2, zone 0 has 0, zone 1 has 4"
)]
#[case::in_both_zones(2, "fits")]
fn memory_of_init_containers_has_to_be_in_every_zone_that_pod_scope_may_take(
    #[case] of_first: i64,
    #[case] expected: &str,
) {
    let config = exact(Scope::Pod, CpuManager::Single);
    let mut zones = [(0, of_first), (1, 4)].map(|(id, pages)| {
        mk_zone(
            id,
            &[("cpu", 4000), ("memory", 8), ("hugepages-2Mi", pages)],
        )
    });
    zones[0].at_most = Some(zones[0].available.clone());
    zones[0].available.set("cpu", 0);
    let containers = [
        mk_container(Init, 1, 1, &[("hugepages-2Mi", 2)]),
        mk_container(App, 1, 1, &[]),
    ];
    assert_eq!(outcome(&config, &containers, &zones), expected);
}

/// The amounts that may be free decide which zone the kubelet takes. The amounts that are certainly free decide whether it can.
#[test]
fn every_zone_that_the_kubelet_may_take_has_to_do() {
    let config = exact(Scope::Container, CpuManager::Single);
    let mut zones = two_zones();
    let containers = [
        mk_container(App, 4, 1, &[]),
        mk_container(App, 2, 1, &[("vendor/nic", 1)]),
        mk_container(App, 2, 1, &[("vendor/nic", 3)]),
    ];
    assert_eq!(outcome(&config, &containers[..2], &zones), "fits");
    zones[0].at_most = Some(zones[0].available.clone());
    zones[0].available.set("cpu", 3000);
    // with the first container in zone 1 the others fit into zones 0 and 1; with the first in zone 0, all nics are needed from zone 1
    let unsure = outcome(&config, &containers, &zones);
    assert!(
        unsure.starts_with("cannot align container app: vendor/nic"),
        "{unsure}"
    );
    assert_eq!(outcome(&config, &containers[..1], &zones), "fits");
}

/// The first two containers may be in either zone each, so the third has to do with what is left in four cases.
#[test]
fn every_way_to_place_several_uncertain_containers_has_to_do() {
    let config = exact(Scope::Container, CpuManager::Single);
    let outcome_of_third = |cores: i64, nics: i64| {
        let mut zones = [
            mk_zone(0, &[("cpu", 8000), ("memory", 8), ("vendor/nic", 2)]),
            mk_zone(1, &[("cpu", 8000), ("memory", 8), ("vendor/nic", 2)]),
        ];
        zones[0].at_most = Some(zones[0].available.clone());
        zones[0].available.set("cpu", 1000);
        let containers = [
            mk_container(App, 2, 1, &[("vendor/nic", 1)]),
            mk_container(App, 2, 1, &[("vendor/nic", 1)]),
            mk_container(App, cores, 1, &[("vendor/nic", nics)]),
        ];
        outcome(&config, &containers, &zones)
    };
    assert_eq!(outcome_of_third(4, 0), "fits");
    // only zone 1 certainly has the CPUs, and both its nics may be gone
    let refused = outcome_of_third(4, 1);
    assert!(
        refused.starts_with("cannot align container app: vendor/nic"),
        "{refused}"
    );
    // the nics that are left may be one in each zone
    let refused = outcome_of_third(1, 2);
    assert!(
        refused.starts_with("cannot align container app: vendor/nic"),
        "{refused}"
    );
    // wherever the two are, a zone with a nic has a CPU
    assert_eq!(outcome_of_third(1, 1), "fits");
}

/// A pod may have as many containers as an object has room for. Each of these may be in either zone.
#[test]
fn thousands_of_uncertain_containers_are_refused() {
    let config = exact(Scope::Container, CpuManager::Single);
    let amounts = [("cpu", 5_000_000), ("memory", 5000)];
    let mut zones = [mk_zone(0, &amounts), mk_zone(1, &amounts)];
    zones[0].at_most = Some(zones[0].available.clone());
    zones[0].available.set("cpu", 0);
    let containers = vec![mk_container(App, 1, 1, &[]); 5000];
    let refused = outcome(&config, &containers, &zones);
    assert!(
        refused.contains("too many possible placements"),
        "{refused}"
    );
}

/// A case that cannot be predicted (docs/placement.md): with more room than the scheduler saw, the kubelet takes another zone for the
/// first container, and the nic that the second container needs is gone.
#[test]
fn room_that_a_pod_leaves_at_the_last_moment_can_be_in_the_way() {
    let config = exact(Scope::Container, CpuManager::Single);
    let zones = |cpus| {
        [
            mk_zone(
                0,
                &[
                    ("cpu", cpus),
                    ("memory", 8),
                    ("vendor/nic", 1),
                    ("vendor/gpu", 1),
                ],
            ),
            mk_zone(1, &[("cpu", 6000), ("memory", 8), ("vendor/nic", 1)]),
        ]
    };
    let containers = [
        mk_container(App, 5, 1, &[("vendor/nic", 1)]),
        mk_container(App, 1, 1, &[("vendor/nic", 1), ("vendor/gpu", 1)]),
    ];
    assert_eq!(outcome(&config, &containers, &zones(4000)), "fits");
    assert_ne!(outcome(&config, &containers, &zones(6000)), "fits");
}
