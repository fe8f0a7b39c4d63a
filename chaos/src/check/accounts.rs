//! No NRT is older than its fingerprint says: where the pods of a fingerprint are known, the zones account for exactly these pods.

use std::collections::{BTreeMap, BTreeSet};

use api::attributes;
use serde_json::Value;
use suite::context::settle::fingerprint;

use super::nrts;
use crate::recording::{Entry, Line, PodView, milli};

/// How long before an NRT its pods may have been what its fingerprint says, in milliseconds: longer than any exporter stands still.
const OLDEST: u64 = 60_000;
/// How long after an NRT its pods may become known, in milliseconds: pods and NRTs come by different watches.
const SKEW: u64 = 2_000;

/// What a comparison of all NRTs has shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// NRTs whose fingerprint is that of pods that the API showed about then.
    pub compared: usize,
    /// NRTs of other sets of pods: a kubelet lists a pod for a moment that the API no longer has, or not yet.
    pub unknown: usize,
    /// NRTs that account for more or less than the pods of their fingerprint.
    pub violations: Vec<String>,
}

/// A set of pods of a node: since when it was so, its fingerprint, its exclusive CPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Snapshot {
    at: u64,
    fingerprint: String,
    cpus: i64,
    names: Vec<String>,
}

/// Compares every NRT with the pods that its fingerprint covers.
pub fn accounts(lines: &[Line]) -> Counted {
    let history = history(lines);
    let mut counted = Counted::default();
    for (line, node, object) in nrts(lines) {
        let Some(published) = attribute(object, attributes::POD_FINGERPRINT) else {
            continue;
        };
        let snapshots = history.get(node).map(Vec::as_slice).unwrap_or_default();
        let candidates: Vec<&Snapshot> = snapshots
            .iter()
            .filter(|one| {
                one.fingerprint == published
                    && one.at <= line.at + SKEW
                    && one.at + OLDEST >= line.at
            })
            .collect();
        let Some(last) = candidates.last() else {
            counted.unknown += 1;
            continue;
        };
        counted.compared += 1;
        let taken = taken_cpus(object);
        if candidates.iter().all(|one| one.cpus != taken) {
            counted.violations.push(format!(
                "the NRT of {node} at {} ms has the fingerprint of {:?} with {} CPUs, and {taken} CPUs are taken in its zones",
                line.at, last.names, last.cpus
            ));
        }
    }
    counted
}

/// Returns the sets of exclusive pods that each node had, one after another. A set lasts until the next, so it is listed again where it ends.
fn history(lines: &[Line]) -> BTreeMap<String, Vec<Snapshot>> {
    let mut pods: BTreeMap<&str, &Value> = BTreeMap::new();
    let mut listed: BTreeSet<&str> = BTreeSet::new();
    let mut history: BTreeMap<String, Vec<Snapshot>> = BTreeMap::new();
    for line in lines {
        match &line.entry {
            Entry::Applied { kind, object } if kind == "Pod" => {
                let pod = PodView(object);
                listed.insert(pod.uid());
                if !pod.node().is_empty() && pod.is_exclusive() {
                    change(&mut history, &mut pods, line.at, pod.node(), |pods| {
                        pods.insert(pod.uid(), object);
                    });
                }
            }
            Entry::Deleted { kind, object } if kind == "Pod" => {
                let pod = PodView(object);
                if pods.contains_key(pod.uid()) {
                    change(&mut history, &mut pods, line.at, pod.node(), |pods| {
                        pods.remove(pod.uid());
                    });
                }
            }
            Entry::Listing { kind } if kind == "Pod" => listed.clear(),
            Entry::Listed { kind } if kind == "Pod" => {
                let gone: Vec<(&str, &str)> = pods
                    .iter()
                    .filter(|(uid, _)| !listed.contains(*uid))
                    .map(|(uid, pod)| (*uid, PodView(pod).node()))
                    .collect();
                for (uid, node) in gone {
                    change(&mut history, &mut pods, line.at, node, |pods| {
                        pods.remove(uid);
                    });
                }
            }
            _ => {}
        }
    }
    // what is so at the end lasts
    let end = lines.last().map_or(0, |line| line.at);
    for (node, all) in &mut history {
        all.extend(snapshots(end, node, &pods));
    }
    history
}

/// Changes the pods, and notes the sets of a node before and after the change.
fn change<'a>(
    history: &mut BTreeMap<String, Vec<Snapshot>>,
    pods: &mut BTreeMap<&'a str, &'a Value>,
    at: u64,
    node: &str,
    edit: impl FnOnce(&mut BTreeMap<&'a str, &'a Value>),
) {
    let all = history.entry(node.to_owned()).or_default();
    all.extend(snapshots(at, node, pods));
    edit(pods);
    all.extend(snapshots(at, node, pods));
}

/// Returns the sets that a kubelet may have of the pods of a node at a time: all of them, without those that it has not admitted yet, and
/// without those that it is ending.
#[expect(
    clippy::redundant_closure_for_method_calls,
    reason = "the method itself is of one lifetime only"
)]
fn snapshots(at: u64, node: &str, pods: &BTreeMap<&str, &Value>) -> [Snapshot; 4] {
    let of = |is_in: fn(PodView<'_>) -> bool| {
        let there: Vec<PodView<'_>> = pods
            .values()
            .map(|pod| PodView(pod))
            .filter(|pod| pod.node() == node && !pod.has_ended() && is_in(*pod))
            .collect();
        let names: Vec<(String, String)> = there
            .iter()
            .map(|pod| pod.key())
            .map(|(namespace, name)| (namespace.to_owned(), name.to_owned()))
            .collect();
        Snapshot {
            at,
            fingerprint: fingerprint(&names),
            cpus: there.iter().map(|pod| pod.exclusive_cpus()).sum(),
            names: names.into_iter().map(|(_, name)| name).collect(),
        }
    };
    [
        of(|_| true),
        of(|pod| pod.is_admitted()),
        of(|pod| !pod.is_being_deleted()),
        of(|pod| pod.is_admitted() && !pod.is_being_deleted()),
    ]
}

/// Returns an attribute of an NRT.
pub(crate) fn attribute<'a>(object: &'a Value, name: &str) -> Option<&'a str> {
    let all = object["attributes"].as_array()?;
    let found = all.iter().find(|one| one["name"] == name)?;
    found["value"].as_str()
}

/// Returns the CPUs that are allocatable and not available, in all zones together.
pub(crate) fn taken_cpus(object: &Value) -> i64 {
    let zones = object["zones"].as_array();
    let resources = zones
        .into_iter()
        .flatten()
        .filter_map(|zone| zone["resources"].as_array())
        .flatten();
    let cpus = resources.filter(|resource| resource["name"] == "cpu");
    let amount =
        |resource: &Value, field: &str| milli(resource[field].as_str().unwrap_or_default());
    cpus.map(|cpu| amount(cpu, "allocatable") - amount(cpu, "available"))
        .sum::<i64>()
        / 1_000
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::tests::{applied, deleted, mk_pod, pod};
    use super::*;

    fn nrt(at: u64, pods: &[&str], available: u32) -> Line {
        let names: Vec<(String, String)> = pods
            .iter()
            .map(|name| ("chaos".to_owned(), (*name).to_owned()))
            .collect();
        let zone = json!({"name": "node-0", "type": "Node", "resources": [
            {"name": "cpu", "capacity": "16", "allocatable": "16", "available": available.to_string()},
            {"name": "memory", "capacity": "1Gi", "allocatable": "1Gi", "available": "1Gi"},
        ]});
        let object = json!({"metadata": {"name": "a"}, "zones": [zone],
            "attributes": [{"name": attributes::POD_FINGERPRINT, "value": fingerprint(&names)}]});
        applied(at, "NodeResourceTopology", object)
    }

    fn run(name: &str, at: u64) -> Line {
        pod(at, mk_pod(name, Some("a"), "Running", 4))
    }

    #[test]
    fn zones_without_a_pod_of_the_fingerprint_are_found() {
        let lines = [run("p", 10), nrt(20, &["p"], 16)];
        let counted = accounts(&lines);
        assert_eq!(
            counted.violations,
            [
                "the NRT of a at 20 ms has the fingerprint of [\"p\"] with 4 CPUs, and 0 CPUs are taken in its zones"
            ]
        );
    }

    #[test]
    fn zones_with_a_pod_that_is_gone_are_found() {
        let lines = [
            run("p", 10),
            nrt(20, &["p"], 12),
            deleted(30, mk_pod("p", Some("a"), "Running", 4)),
            nrt(40, &[], 12),
        ];
        let counted = accounts(&lines);
        assert_eq!((counted.compared, counted.violations.len()), (2, 1));
    }

    #[test]
    fn an_nrt_may_be_of_the_pods_of_a_moment_ago() {
        let lines = [
            run("p", 10),
            run("q", 20),
            nrt(500, &["p"], 12),
            nrt(600, &["p", "q"], 8),
        ];
        let counted = accounts(&lines);
        assert_eq!((counted.compared, counted.violations), (2, Vec::new()));
    }

    #[test]
    fn an_nrt_may_be_of_the_pods_that_the_kubelet_has_admitted() {
        let mut admitted = mk_pod("p", Some("a"), "Running", 4);
        admitted["status"]["startTime"] = "2026-01-01T00:00:00Z".into();
        let lines = [
            pod(10, mk_pod("q", Some("a"), "Pending", 4)),
            pod(10, admitted),
            nrt(20, &["p"], 12),
            nrt(30, &["p"], 8),
        ];
        let counted = accounts(&lines);
        assert_eq!((counted.compared, counted.violations.len()), (2, 1));
    }

    #[test]
    fn a_set_that_lasted_until_a_moment_ago_is_known_however_old_it_is() {
        let lines = [
            run("p", 10),
            nrt(OLDEST * 3, &["p"], 12),
            run("q", OLDEST * 3 + 10),
        ];
        assert_eq!(accounts(&lines).compared, 1);
    }
}
