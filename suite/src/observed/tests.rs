use rstest::rstest;

use super::*;

/// Makes a node whose zones have these amounts as capacity, allocatable and available.
pub(crate) fn node(name: &str, zones: &[&str]) -> NodeTopology {
    let zones = zones
        .iter()
        .enumerate()
        .map(|(index, text)| Zone {
            name: format!("node-{index}"),
            id: u32::try_from(index).expect("few zones"),
            resources: Resources::literal(text)
                .iter()
                .map(|(name, milli)| {
                    (
                        name.to_owned(),
                        Amounts {
                            capacity: milli,
                            allocatable: milli,
                            available: milli,
                        },
                    )
                })
                .collect(),
        })
        .collect();
    NodeTopology {
        node: name.to_owned(),
        resource_version: "1".to_owned(),
        attributes: Vec::new(),
        zones,
    }
}

#[rstest]
#[case::exact_in_one_zone(&["6c 6Gi d1=2", "10c 10Gi d1=2"], "4c 4Gi", true, true, None)]
#[case::exact_in_two_zones(&["8c 8Gi d1=2", "8c 8Gi d1=2"], "4c 4Gi", true, false, None)]
#[case::spread_is_refused_with_pod_scope(&["8c 8Gi d1=2", "8c 8Gi d1=2"], "4c 4Gi", true, true,
    Some("spread over the zones of n: node-0: cpu=2 memory=2Gi; node-1: cpu=2 memory=2Gi"))]
#[case::over_accounting_is_refused(&["5c 6Gi d1=2", "10c 10Gi d1=2"], "4c 4Gi", true, true,
    Some("cpu=5 memory=4Gi on n (node-0: cpu=5 memory=4Gi; node-1: nothing)"))]
#[case::nothing_accounted(&["10c 10Gi d1=2", "10c 10Gi d1=2"], "4c 4Gi", true, true,
    Some("nothing on n (node-0: nothing; node-1: nothing)"))]
#[case::native_resources_count_only_for_guaranteed(&["10c 10Gi d1=1", "10c 10Gi d1=2"], "4c 4Gi d1=1", false, true, None)]
#[case::scratch_space_never_counts(&["10c 10Gi d1=2", "10c 10Gi d1=2"], "eph=32Mi", true, true, None)]
#[case::a_device_must_be_listed(&["10c 10Gi d1=2", "10c 10Gi d1=2"], "d2=1", true, true,
    Some("resource d2 is not listed in every zone of n"))]
fn accounting_is_exact(
    #[case] after: &[&str],
    #[case] required: &str,
    #[case] guaranteed: bool,
    #[case] one_zone: bool,
    #[case] expected: Option<&str>,
) {
    let before = node("n", &["10c 10Gi d1=2", "10c 10Gi d1=2"]);
    let found = accounting_difference(
        &before,
        &node("n", after),
        &Resources::literal(required),
        guaranteed,
        one_zone,
    );
    assert_eq!(found.as_deref(), expected);
}

#[test]
fn the_order_of_zones_makes_no_difference() {
    let mut turned = node("n", &["1c", "2c"]);
    turned.zones.reverse();
    assert_eq!(zones_difference(&node("n", &["1c", "2c"]), &turned), None);
}

#[test]
fn the_first_difference_is_told() {
    let text = difference(
        &[node("n", &["1c", "2c 1Gi"])],
        &[node("n", &["1c", "2c 2Gi"])],
    );
    assert_eq!(
        text.as_deref(),
        Some(
            "n node-1: available memory=1Gi of memory=1Gi became available memory=2Gi of memory=2Gi"
        )
    );
    let text = difference(&[node("n", &["1c"])], &[node("m", &["1c"])]);
    assert_eq!(text.as_deref(), Some("the NRT of n is gone"));
    let [n, m] = ["n", "m"].map(|name| node(name, &["1c"]));
    let text = difference(std::slice::from_ref(&n), &[m, n.clone()]);
    assert_eq!(text.as_deref(), Some("the NRT of m is new"));
}

#[test]
fn a_request_fits_a_node_when_the_zones_together_have_it() {
    let two = node("n", &["4c 4Gi", "4c 4Gi"]);
    assert!(two.node_fits(&Resources::literal("8c 1Gi")));
    assert!(!two.any_zone_fits(&Resources::literal("5c 1Gi")));
    assert!(two.any_zone_fits(&Resources::literal("4c 4Gi")));
}
