use std::collections::BTreeSet;

use rstest::rstest;

use super::registry::{Entry, entries};
use super::*;
use crate::labels::KNOWN;

/// The facts about the original's serial suite.
const REFERENCE: &str = include_str!("../../../docs/reference/scenarios-serial.md");
/// Label of the serial suite as a whole.
const SERIAL: &str = "e2e:serial";

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
fn labels_are_known_and_given_once() {
    for entry in entries() {
        let set: BTreeSet<_> = entry.labels.iter().collect();
        assert_eq!(set.len(), entry.labels.len(), "{}", entry.id);
        assert!(
            entry.labels.iter().all(|label| KNOWN.contains(label)),
            "{}",
            entry.id
        );
        let tiers = entry
            .labels
            .iter()
            .filter(|label| label.starts_with("tier"))
            .count();
        assert!(tiers <= 1, "{}", entry.id);
    }
}

#[test]
fn every_tier0_scenario_of_plain_kubernetes_is_there() {
    let tier0: BTreeSet<&str> = all()
        .iter()
        .filter(|scenario| {
            scenario.labels.contains(&"tier0")
                && !scenario.labels.contains(&"openshift")
                && !scenario.needs.contains(&crate::needs::Need::OpenShift)
        })
        .map(|scenario| scenario.id)
        .collect();
    assert_eq!(tier0, TIER0.iter().copied().collect::<BTreeSet<_>>());
}

#[test]
fn every_spec_of_the_original_has_a_scenario_or_a_reason() {
    let written: BTreeSet<&str> = all().iter().map(|scenario| scenario.id).collect();
    for entry in entries() {
        assert_ne!(
            written.contains(entry.id),
            entry.absent.is_some(),
            "{}: has both a scenario and a reason for its absence, or neither",
            entry.id
        );
    }
    let of = |repository: &str| {
        let is_of_it = |entry: &&Entry| {
            let source = entry.source.and_then(|source| source.split_once(' '));
            source.is_some_and(|(name, _)| name == repository)
        };
        entries().iter().filter(is_of_it).count()
    };
    // scenarios-serial.md 11; the exporter's own suite has six specs of numaplacement beside those of scenarios-other.md 7
    assert_eq!(of("numaresources-operator"), 198);
    assert_eq!(of("resource-topology-exporter"), 25);
}

/// Returns the specs of the original's serial suite.
fn serial() -> Vec<&'static Entry> {
    let is_serial = |entry: &&Entry| entry.labels.contains(&SERIAL);
    entries().iter().filter(is_serial).collect()
}

#[test]
fn only_the_serial_suite_has_its_label() {
    for entry in entries() {
        let is_serial = entry
            .source
            .is_some_and(|source| source.contains("/e2e/serial/"));
        assert_eq!(entry.labels.contains(&SERIAL), is_serial, "{}", entry.id);
    }
}

#[test]
fn tiers_select_as_many_specs_as_in_the_original() {
    let with = |tier: &str| {
        let has = |entry: &&&Entry| entry.labels.contains(&tier);
        serial().iter().filter(has).count()
    };
    let tiers = ["tier0", "tier1", "tier2", "tier3"].map(with);
    assert_eq!(tiers, [24, 40, 59, 16]);
    assert_eq!(serial().len() - tiers.iter().sum::<usize>(), 19);
}

#[rstest]
#[case("preemption", 8)]
#[case("rtetols", 11)]
#[case("hugepages", 6)]
#[case("ngpoolname", 5)]
#[case("podburst", 5)]
#[case("tlscompliance", 1)]
#[case("failalign", 3)]
#[case("no_nrt", 3)]
#[case("schedrst", 3)]
#[case("qos:gu", 3)]
#[case("devices", 1)]
#[case("tmscope:cnt", 6)]
#[case("tmscope:pod", 7)]
fn a_tag_finds_as_many_specs_as_in_the_original(#[case] tag: &str, #[case] count: usize) {
    let tag = format!("[{tag}]");
    let found = serial()
        .iter()
        .filter(|entry| entry.title.contains(&tag))
        .count();
    assert_eq!(found, count);
}

/// Returns the lines of the section "Upstream titles" of the reference: numbers or ids, and the text of their specs.
fn reference_titles() -> Vec<(Vec<String>, String)> {
    let (_, section) = REFERENCE
        .split_once("\n## 13. ")
        .expect("the reference lists the titles");
    let joined = section.replace("\n  ", " ");
    let line = |line: &str| {
        let (keys, text) = line.strip_prefix("- ")?.split_once(" - ")?;
        let keys = keys
            .split(", ")
            .map(|key| key.split(' ').next().unwrap_or_default().to_owned());
        Some((keys.collect(), text.to_owned()))
    };
    joined.lines().filter_map(line).collect()
}

#[test]
fn titles_have_the_texts_of_the_reference() {
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut compared = 0;
    for (keys, text) in reference_titles() {
        for key in keys {
            let is_it = |entry: &&&Entry| {
                entry.id == key || entry.title.contains(&format!("[test_id:{key}]"))
            };
            let title = |entry: &&Entry| words(&entry.title);
            let titles: Vec<String> = serial().iter().filter(is_it).map(title).collect();
            assert!(
                titles.iter().any(|title| title.ends_with(&words(&text))),
                "{key}: {titles:?} does not end with {text:?}"
            );
            compared += 1;
        }
    }
    assert_eq!(compared, 158);
}

#[test]
fn tables_of_the_reference_have_the_same_ids_numbers_and_labels() {
    let mut compared = 0;
    let mut has_labels = false;
    for line in REFERENCE.lines() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let ["", id, number, third, ..] = cells.as_slice() else {
            continue;
        };
        if *id == "id" {
            has_labels = *third == "labels";
        }
        let quoted = id
            .strip_prefix('`')
            .and_then(|id| id.strip_suffix('`'))
            .filter(|id| id.contains('/') && number.parse::<u32>().is_ok());
        let Some(id) = quoted else { continue };
        let found = serial().into_iter().find(|entry| entry.id == id);
        let entry = found.unwrap_or_else(|| panic!("{id} is not in the registry"));
        assert!(
            entry.title.contains(&format!("[test_id:{number}]")),
            "{id}: {}",
            entry.title
        );
        let words = third.split([' ', ',']).filter(|word| !word.is_empty());
        let labels = words.filter(|_| has_labels);
        for label in labels {
            assert!(entry.labels.contains(&label), "{id} has no label {label}");
        }
        compared += 1;
    }
    assert!(compared > 60, "only {compared} rows were found");
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
