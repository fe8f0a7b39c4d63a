use super::*;
use crate::request::ContainerKind::{App, Init, Sidecar};
use rstest::rstest;

mod exact;

const GI: i64 = 1 << 30;
const MI: i64 = 1 << 20;
const G: i64 = 1_000_000_000;

/// Builds a container from the short form of the tables: cores, bytes, then other resources by name.
fn mk_container(kind: ContainerKind, cores: i64, memory: i64, others: &[(&str, i64)]) -> Container {
    let mut requests = Resources::from_iter([("cpu", cores * 1000), ("memory", memory)]);
    for (name, amount) in others {
        requests.set(*name, *amount);
    }
    Container {
        name: format!("{kind:?}").to_lowercase(),
        kind,
        limits: requests.clone(),
        requests,
    }
}

fn mk_zone(id: u64, resources: &[(&str, i64)]) -> FreeZone {
    let id = ZoneId::new(id).expect("small");
    FreeZone::exactly(id, resources.iter().copied().collect())
}

fn check(pod: &Pod, scope: Scope, zones: &[FreeZone], expected: Option<&str>) {
    let known = [
        "cpu",
        "memory",
        "pods",
        "ephemeral-storage",
        "hugepages-2Mi",
        "vendor/nic",
        "vendor/extended",
    ];
    let config = ManagerConfig {
        scope,
        ..ManagerConfig::default()
    };
    let result = fit(pod, &config, zones, |name| known.contains(&name));
    assert_eq!(
        result.as_ref().err().map(Misfit::reason),
        expected,
        "{result:?}"
    );
}

/// Builds the host of scheduler.md 3.6.
fn host0() -> Vec<FreeZone> {
    vec![
        mk_zone(
            0,
            &[
                ("cpu", 30_000),
                ("memory", 60 * GI),
                ("hugepages-2Mi", 384 * MI),
                ("vendor/nic", 16),
            ],
        ),
        mk_zone(
            1,
            &[
                ("cpu", 32_000),
                ("memory", 64 * GI),
                ("hugepages-2Mi", 512 * MI),
                ("vendor/nic", 32),
            ],
        ),
    ]
}

#[rstest]
#[case::small(&[], &[(2, 4)], None)]
#[case::too_many_cpus(&[], &[(40, 4)], Some("cannot align container"))]
#[case::too_much_memory(&[], &[(2, 100)], Some("cannot align container"))]
#[case::one_zone_each(&[], &[(20, 40), (20, 40)], None)]
#[case::init_too_many_cpus(&[(40, 40)], &[(1, 4), (1, 4)], Some("cannot align init container"))]
#[case::init_too_much_memory(&[(4, 70)], &[(1, 4), (1, 4)], Some("cannot align init container"))]
#[case::init_never_adds_up(&[(30, 10), (30, 10), (30, 10)], &[(20, 40), (20, 40), (2, 6)], None)]
#[case::third_does_not_fit(&[(30, 10), (30, 10)], &[(20, 40), (20, 40), (20, 6)], Some("cannot align container"))]
#[case::app_after_init(&[(30, 10), (30, 10)], &[(35, 40)], Some("cannot align container"))]
fn container_scope_follows_the_worked_table(
    #[case] init: &[(i64, i64)],
    #[case] app: &[(i64, i64)],
    #[case] expected: Option<&str>,
) {
    let containers = init
        .iter()
        .map(|(cores, memory)| mk_container(Init, *cores, *memory * G, &[]))
        .chain(
            app.iter()
                .map(|(cores, memory)| mk_container(App, *cores, *memory * G, &[])),
        )
        .collect();
    check(&Pod::new(containers), Scope::Container, &host0(), expected);
}

#[test]
fn hugepages_and_devices_choose_the_zone() {
    let pod = Pod::new(vec![
        mk_container(
            App,
            2,
            6 * G,
            &[("hugepages-2Mi", 500 * MI), ("vendor/nic", 16)],
        ),
        mk_container(
            App,
            2,
            6 * G,
            &[("hugepages-2Mi", 50 * MI), ("vendor/nic", 8)],
        ),
    ]);
    check(&pod, Scope::Container, &host0(), None);
}

/// Builds the zones of the second table of scheduler.md 3.6.
fn mixed() -> Vec<FreeZone> {
    vec![
        mk_zone(0, &[("cpu", 2000), ("memory", 4 * GI), ("vendor/nic", 5)]),
        mk_zone(1, &[("cpu", 4000), ("memory", 4 * GI), ("vendor/nic", 2)]),
    ]
}

fn mk_plain(requests: &[(&str, i64)], guaranteed: bool) -> Container {
    let requests: Resources = requests.iter().copied().collect();
    let limits = if guaranteed {
        requests.clone()
    } else {
        Resources::new()
    };
    Container {
        name: "c".to_owned(),
        kind: App,
        requests,
        limits,
    }
}

const POD: Option<&str> = Some("cannot align pod");
const CONTAINER: Option<&str> = Some("cannot align container");

#[rstest]
#[case::best_effort_device(vec![mk_plain(&[("vendor/nic", 5)], false)], None, None)]
#[case::best_effort_too_many(vec![mk_plain(&[("vendor/nic", 20)], false)], POD, CONTAINER)]
#[case::burstable_shares(
    vec![mk_plain(&[("cpu", 20_000), ("memory", 5 * GI), ("vendor/nic", 5)], false)], None, None
)]
#[case::burstable_devices(vec![mk_plain(&[("cpu", 2000), ("vendor/nic", 6)], false)], POD, CONTAINER)]
#[case::three_of_three_cores(
    vec![mk_plain(&[("cpu", 3000), ("memory", GI)], true); 3], POD, CONTAINER
)]
#[case::unknown_device_zero(
    vec![mk_plain(&[("cpu", 2000), ("memory", GI), ("vendor/unknown", 0)], true)], None, None
)]
#[case::unknown_device(
    vec![mk_plain(&[("cpu", 2000), ("memory", GI), ("vendor/unknown", 1)], true)], POD, CONTAINER
)]
#[case::scratch_space(
    vec![mk_plain(&[("cpu", 2000), ("memory", 2 * GI), ("ephemeral-storage", 100 * MI)], true)], None, None
)]
#[case::extended_without_zone(
    vec![mk_plain(&[("cpu", 2000), ("memory", 2 * GI), ("vendor/extended", 9)], true)], None, None
)]
#[case::hugepages_without_zone(
    vec![mk_plain(&[("cpu", 2000), ("memory", 2 * GI), ("hugepages-2Mi", MI)], true)], POD, CONTAINER
)]
#[case::nothing(vec![mk_plain(&[], false)], None, None)]
fn class_decides_what_is_compared(
    #[case] containers: Vec<Container>,
    #[case] in_pod_scope: Option<&str>,
    #[case] in_container_scope: Option<&str>,
) {
    let pod = Pod::new(containers);
    check(&pod, Scope::Pod, &mixed(), in_pod_scope);
    check(&pod, Scope::Container, &mixed(), in_container_scope);
}

#[test]
fn a_sidecar_keeps_its_share_from_the_containers_after_it() {
    let zones = [mk_zone(0, &[("cpu", 4000), ("memory", 4 * GI)])];
    let pod = |app| {
        Pod::new(vec![
            mk_container(Sidecar, 2, GI, &[]),
            mk_container(App, app, GI, &[]),
        ])
    };
    for scope in [Scope::Container, Scope::Pod] {
        check(&pod(2), scope, &zones, None);
    }
    check(
        &pod(3),
        Scope::Container,
        &zones,
        Some("cannot align container"),
    );
    check(&pod(3), Scope::Pod, &zones, Some("cannot align pod"));
    let large = Pod::new(vec![
        mk_container(Sidecar, 5, GI, &[]),
        mk_container(App, 1, GI, &[]),
    ]);
    check(
        &large,
        Scope::Container,
        &zones,
        Some("cannot align sidecar container"),
    );
}

#[test]
fn zones_out_of_order_and_with_gaps_are_told_apart() {
    let zones = [
        mk_zone(7, &[("cpu", 4000), ("memory", 8 * GI)]),
        mk_zone(3, &[("cpu", 2000), ("memory", 8 * GI)]),
    ];
    let pod = Pod::new(vec![
        mk_container(App, 2, GI, &[]),
        mk_container(App, 4, GI, &[]),
    ]);
    check(&pod, Scope::Container, &zones, None);
}

#[test]
fn a_misfit_says_what_was_wanted_and_what_each_zone_had() {
    let zones = [
        mk_zone(0, &[("cpu", 2000), ("memory", 8 * GI)]),
        mk_zone(1, &[("memory", 8 * GI)]),
    ];
    let pod = Pod::new(vec![mk_container(App, 3, GI, &[])]);
    let misfit = fit(&pod, &ManagerConfig::default(), &zones, |_| true).expect_err("does not fit");
    assert_eq!(
        misfit.to_string(),
        "cannot align container app: cpu wanted 3000m, zone 0 has 2000m, zone 1 has none"
    );
}
