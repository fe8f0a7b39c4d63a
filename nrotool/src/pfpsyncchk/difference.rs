//! The pods that only exporter or scheduler has in a fingerprint (scenarios-other.md 10.4).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use jiff::Timestamp;

use super::records::{PodName, Record};

/// What is printed where everything agrees.
const IN_SYNC: &str = "The pod fingerprints are in sync.\n";

/// The scheduler saw another set of pods than the one that the exporter published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Difference {
    expected: String,
    computed: String,
    written_by_scheduler: Option<Timestamp>,
    /// `None` if no record of the exporter has the fingerprint.
    exporter: Option<FromExporter>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct FromExporter {
    written: Option<Timestamp>,
    only_there: BTreeSet<PodName>,
    only_in_scheduler: BTreeSet<PodName>,
}

/// The fingerprints differ, but the pods are the same: one of the programs computes wrongly.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the fingerprints differ although the pods are the same")]
pub(crate) struct Contradiction;

/// Compares the records of one node. The result is empty where the fingerprints agree.
pub(crate) fn find(
    exporter: &[Record],
    scheduler: &[Record],
) -> Result<Vec<Difference>, Contradiction> {
    let differing = scheduler
        .iter()
        .filter(|record| record.fingerprint_expected != record.fingerprint_computed);
    let differing = newest(differing, |record| &record.fingerprint_expected);
    if differing.is_empty() {
        return Ok(Vec::new());
    }
    let published = newest(exporter.iter(), |record| &record.fingerprint_computed);
    let differences: Vec<Difference> = differing
        .into_iter()
        .filter_map(|(expected, record)| {
            let theirs: BTreeSet<&PodName> = record.pods().iter().collect();
            let exporter = published.get(expected).map(|published| {
                let ours: BTreeSet<&PodName> = published.pods().iter().collect();
                FromExporter {
                    written: published.written,
                    only_there: ours.difference(&theirs).copied().cloned().collect(),
                    only_in_scheduler: theirs.difference(&ours).copied().cloned().collect(),
                }
            });
            let is_same = exporter
                .as_ref()
                .is_some_and(|it| it.only_there.is_empty() && it.only_in_scheduler.is_empty());
            (!is_same).then(|| Difference {
                expected: expected.clone(),
                computed: record.fingerprint_computed.clone(),
                written_by_scheduler: record.written,
                exporter,
            })
        })
        .collect();
    if differences.is_empty() {
        return Err(Contradiction);
    }
    Ok(differences)
}

/// Returns the newest record of each key; of several with the same time the last one.
fn newest<'a>(
    records: impl Iterator<Item = &'a Record>,
    key: impl Fn(&'a Record) -> &'a String,
) -> BTreeMap<&'a String, &'a Record> {
    let mut newest: BTreeMap<&String, &Record> = BTreeMap::new();
    for record in records {
        let kept = newest.entry(key(record)).or_insert(record);
        if record.written >= kept.written {
            *kept = record;
        }
    }
    newest
}

/// Returns the report of a node.
pub(crate) fn report(differences: &[Difference]) -> String {
    if differences.is_empty() {
        return IN_SYNC.to_owned();
    }
    differences.iter().map(block).collect()
}

fn block(difference: &Difference) -> String {
    let time = |time: Option<Timestamp>| {
        time.map_or_else(|| "unknown".to_owned(), |time| time.to_string())
    };
    let exporter = difference.exporter.as_ref();
    let of_exporter = exporter.and_then(|it| it.written);
    let mut text = format!(
        "Expected PFP: {}\nComputed PFP: {}\nFound on RTE: {}\nLast write from scheduler: {}\nLast write from RTE: {}\n\n",
        difference.expected,
        difference.computed,
        exporter.is_some(),
        time(difference.written_by_scheduler),
        time(of_exporter),
    );
    let empty = BTreeSet::new();
    let lists = [
        ("RTE", exporter.map_or(&empty, |it| &it.only_there)),
        (
            "scheduler",
            exporter.map_or(&empty, |it| &it.only_in_scheduler),
        ),
    ];
    for (name, pods) in lists {
        // writing to a string cannot fail
        let _ = writeln!(text, "Pods found on {name} only:");
        for pod in pods {
            let _ = writeln!(text, " - {pod}");
        }
    }
    text + &"_".repeat(32) + "\n"
}

#[cfg(test)]
mod tests {
    use super::super::records::parse;
    use super::*;

    fn records(text: &str) -> Vec<Record> {
        parse(text).expect("a dump")
    }

    const EXPORTER: &str = r#"[
        {"fingerprintComputed": "pfp-a", "pods": [{"Namespace": "n", "Name": "old"}], "nodeName": "w", "recordTime": "2026-01-01T00:00:00.5Z"},
        {"fingerprintComputed": "pfp-a", "pods": [{"Namespace": "n", "Name": "p"}, {"Namespace": "n", "Name": "q"}], "recordTime": "2026-01-01T00:00:01Z"}
    ]"#;

    #[test]
    fn pods_of_one_side_only_are_listed() {
        let scheduler = r#"[
            {"fingerprintExpected": "pfp-s", "fingerprintComputed": "pfp-s", "recordTime": "2026-01-01T00:00:09Z"},
            {"fingerprintExpected": "pfp-a", "fingerprintComputed": "pfp-b", "pods": [{"Namespace": "n", "Name": "p"}, {"Namespace": "m", "Name": "r"}],
             "recordTime": "2026-01-01T00:00:02Z"}
        ]"#;
        let found = find(&records(EXPORTER), &records(scheduler)).expect("comparable");
        let expected = "Expected PFP: pfp-a\nComputed PFP: pfp-b\nFound on RTE: true\nLast write from scheduler: 2026-01-01T00:00:02Z\n\
                        Last write from RTE: 2026-01-01T00:00:01Z\n\nPods found on RTE only:\n - n/q\nPods found on scheduler only:\n - m/r\n\
                        ________________________________\n";
        assert_eq!(report(&found), expected);
    }

    #[test]
    fn a_fingerprint_that_no_exporter_wrote_is_reported() {
        let scheduler =
            r#"[{"fingerprintExpected": "pfp-z", "fingerprintComputed": "pfp-b", "pods": null}]"#;
        let found = find(&records(EXPORTER), &records(scheduler)).expect("comparable");
        assert!(report(&found).contains("Found on RTE: false\n"));
    }

    #[test]
    fn records_that_agree_are_in_sync() {
        let scheduler = r#"{"fingerprintExpected": "pfp-z", "fingerprintComputed": "pfp-z"}"#;
        let found = find(&records(EXPORTER), &records(scheduler)).expect("comparable");
        assert_eq!(report(&found), IN_SYNC);
    }

    #[test]
    fn other_fingerprints_of_the_same_pods_are_an_error() {
        let scheduler = r#"[{"fingerprintExpected": "pfp-a", "fingerprintComputed": "pfp-b",
            "pods": [{"Namespace": "n", "Name": "q"}, {"Namespace": "n", "Name": "p"}]}]"#;
        assert_eq!(
            find(&records(EXPORTER), &records(scheduler)),
            Err(Contradiction)
        );
        assert!(parse("[]").is_err());
        assert!(parse("[{").is_err());
    }
}
