use std::collections::BTreeSet;

use super::*;
use crate::labels::KNOWN;

/// Release-blocking scenarios that need only plain Kubernetes (scenarios-serial.md 8, 9).
const TIER0: &[&str] = &[
    "byres/cpu-decides",
    "byres/memory-decides",
    "config/nrt-attributes",
    "fundamentals/all-gu",
    "hostlevel/gu-multi",
    "hostlevel/gu-multi-frac",
    "hostlevel/gu-single",
    "install/deploy-available",
    "tmpol/1cnt-devs-pod",
    "tmpol/2cnt-same-pod",
    "tmpol/2cnt-split-cnt",
    "tmpol/dp-single-zone-cnt",
    "tmpol/dp-single-zone-pod",
    "tmpol/pend-cpu-cnt",
    "tmpol/pend-hp1g-cnt",
    "tmpol/pend-mem-cnt",
];

#[test]
fn ids_and_numbers_are_unique() {
    let all = all();
    let ids: BTreeSet<_> = all.iter().map(|scenario| scenario.id).collect();
    assert_eq!(ids.len(), all.len());
    let mut numbers = BTreeSet::new();
    let twice: BTreeSet<_> = all
        .iter()
        .filter_map(|scenario| scenario.test_id)
        .filter(|number| !numbers.insert(*number))
        .collect();
    // the three specs of one claim, and two entries of one table (scenarios-serial.md 11)
    assert_eq!(twice, BTreeSet::from([47614, 80823]));
}

#[test]
fn ids_are_area_and_name() {
    for scenario in all() {
        let (area, name) = scenario.id.split_once('/').expect("an area and a name");
        let plain = |text: &str| {
            !text.is_empty()
                && text
                    .chars()
                    .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
        };
        assert!(plain(area) && plain(name), "{}", scenario.id);
    }
}

#[test]
fn titles_carry_their_number_and_have_no_loose_ends() {
    for scenario in all() {
        if let Some(id) = scenario.test_id {
            assert!(
                scenario.title.contains(&format!("[test_id:{id}]")),
                "{}",
                scenario.id
            );
        }
        assert_eq!(scenario.title.trim(), scenario.title, "{}", scenario.id);
        assert!(!scenario.title.contains('\n'), "{}", scenario.id);
    }
}

#[test]
fn labels_are_known_and_given_once() {
    for scenario in all() {
        let set: BTreeSet<_> = scenario.labels.iter().collect();
        assert_eq!(set.len(), scenario.labels.len(), "{}", scenario.id);
        assert!(
            scenario.labels.iter().all(|label| KNOWN.contains(label)),
            "{}",
            scenario.id
        );
        let tiers = scenario
            .labels
            .iter()
            .filter(|label| label.starts_with("tier"))
            .count();
        assert!(tiers <= 1, "{}", scenario.id);
    }
}

#[test]
fn every_tier0_scenario_of_plain_kubernetes_is_there() {
    let all = all();
    let tier0 = |openshift: bool| -> BTreeSet<&str> {
        all.iter()
            .filter(|scenario| {
                scenario.labels.contains(&"tier0")
                    && scenario.labels.contains(&"openshift") == openshift
            })
            .map(|scenario| scenario.id)
            .collect()
    };
    assert_eq!(tier0(false), TIER0.iter().copied().collect::<BTreeSet<_>>());
    assert_eq!(tier0(true).len(), 12);
}

#[test]
fn needs_are_in_the_notation() {
    for scenario in all() {
        for need in &scenario.needs {
            if let crate::needs::Need::Zone { request, .. } = need {
                assert!(
                    Resources::parse(request).is_ok(),
                    "{}: {request}",
                    scenario.id
                );
            }
        }
    }
}
