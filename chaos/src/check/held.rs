//! No NRT gives away what a pod holds that runs for long, whatever its fingerprint says.

use std::collections::{BTreeMap, BTreeSet};

use super::restarts::Restarts;
use super::{Report, nrts, taken_cpus};
use crate::recording::{Clock, Entry, Line, PodView};

/// How long a pod must have run before an NRT, in milliseconds: what an exporter publishes late is not older.
const BEFORE: u64 = 20_000;
/// How long a pod must run after an NRT, in milliseconds: its kubelet may tell of its end that much later than it gave back what the pod held.
const AFTER: u64 = 20_000;

/// A pod with CPUs of its own, and from when until when it ran, in milliseconds.
#[derive(Debug)]
struct Held<'a> {
    node: &'a str,
    name: &'a str,
    cpus: i64,
    from: u64,
    until: u64,
}

impl Held<'_> {
    fn until(self, until: u64) -> Self {
        Self { until, ..self }
    }
}

/// Returns every NRT whose zones lack fewer CPUs than pods held for long before and after it. An NRT at a time without a kubelet is left out.
/// The note says how many NRTs there were with such pods.
pub fn nothing_given_away(lines: &[Line]) -> Report {
    let clock = Clock::of(lines);
    let held = held(lines, &clock);
    let restarts = Restarts::of(lines);
    let mut violations = Vec::new();
    let mut compared = 0;
    for (line, node, object) in nrts(lines) {
        let at = clock.when(object).unwrap_or(line.at);
        let there = held
            .iter()
            .filter(|pod| pod.node == node && pod.from + BEFORE <= at && at + AFTER <= pod.until);
        let (names, cpus): (Vec<&str>, Vec<i64>) = there.map(|pod| (pod.name, pod.cpus)).unzip();
        if names.is_empty() || restarts.excuse(node, at.saturating_sub(BEFORE), line.at) {
            continue;
        }
        compared += 1;
        let (least, taken) = (cpus.iter().sum::<i64>(), taken_cpus(object));
        if taken < least {
            violations.push(format!(
                "the NRT of {node} at {} ms says that {taken} CPUs are taken, and {names:?} hold {least}",
                line.at
            ));
        }
    }
    let note = format!("{compared} NRTs were compared with what pods held for long");
    Report {
        violations,
        notes: vec![note],
    }
}

/// Finds when the pods with CPUs of their own ran.
fn held<'a>(lines: &'a [Line], clock: &Clock) -> Vec<Held<'a>> {
    let mut open: BTreeMap<&str, Held<'_>> = BTreeMap::new();
    let mut closed = Vec::new();
    let mut listed: BTreeSet<&str> = BTreeSet::new();
    for line in lines {
        match &line.entry {
            Entry::Applied { kind, object } if kind == "Pod" => {
                let pod = PodView(object);
                listed.insert(pod.uid());
                let at = clock.when(object).unwrap_or(line.at);
                let runs = pod.phase() == "Running" && !pod.is_being_deleted();
                if !runs {
                    closed.extend(open.remove(pod.uid()).map(|pod| pod.until(at)));
                } else if pod.exclusive_cpus() > 0 {
                    open.entry(pod.uid()).or_insert_with(|| Held {
                        node: pod.node(),
                        name: pod.key().1,
                        cpus: pod.exclusive_cpus(),
                        from: at,
                        until: u64::MAX,
                    });
                }
            }
            Entry::Deleted { kind, object } if kind == "Pod" => {
                let at = clock.when(object).unwrap_or(line.at);
                let gone = open.remove(PodView(object).uid());
                closed.extend(gone.map(|pod| pod.until(at)));
            }
            Entry::Listing { kind } if kind == "Pod" => listed.clear(),
            Entry::Listed { kind } if kind == "Pod" => {
                let gone = open.extract_if(.., |uid, _| !listed.contains(*uid));
                closed.extend(gone.map(|(_, pod)| pod.until(line.at)));
            }
            _ => {}
        }
    }
    // what has not ended runs to the end of the recording, and nobody knows for how long after it
    let last = lines.last().map_or(0, |line| line.at);
    closed.extend(open.into_values().map(|pod| pod.until(last)));
    closed
}

#[cfg(test)]
mod tests {
    use cluster_faults::Disturbance;
    use rstest::rstest;
    use serde_json::json;

    use super::super::tests::{applied, deleted, mk_pod, pod};
    use super::*;

    fn nrt(at: u64, available: u32) -> Line {
        let cpu = json!({"name": "cpu", "allocatable": "16", "available": available.to_string()});
        let zones = json!([{"name": "node-0", "type": "Node", "resources": [cpu]}]);
        let object = json!({"metadata": {"name": "a"}, "zones": zones});
        applied(at, "NodeResourceTopology", object)
    }

    /// A pod with four CPUs runs from 10 s to 100 s.
    fn recorded(nrt: Line) -> Vec<Line> {
        let running = || mk_pod("p", Some("a"), "Running", 4);
        let mut lines = vec![pod(10_000, running()), nrt, deleted(100_000, running())];
        lines.sort_by_key(|line| line.at);
        lines
    }

    #[test]
    fn zones_without_what_a_pod_holds_are_found() {
        assert_eq!(
            nothing_given_away(&recorded(nrt(50_000, 13))).violations,
            ["the NRT of a at 50000 ms says that 3 CPUs are taken, and [\"p\"] hold 4"]
        );
    }

    #[rstest]
    #[case::it_is_told(50_000, 12)]
    #[case::others_hold_more(50_000, 0)]
    #[case::it_has_just_started(20_000, 16)]
    #[case::it_ends_soon(95_000, 16)]
    fn what_an_exporter_could_not_know_is_no_violation(#[case] at: u64, #[case] available: u32) {
        let report = nothing_given_away(&recorded(nrt(at, available)));
        assert_eq!(report.violations, Vec::<String>::new());
    }

    /// As on a machine with so much to do that the watch of pods is far behind that of NRTs.
    #[test]
    fn what_was_heard_of_late_happened_when_its_version_says() {
        let version = |mut line: Line, version: u64| {
            if let Entry::Applied { object, .. } = &mut line.entry {
                object["metadata"]["resourceVersion"] = version.to_string().into();
            }
            line
        };
        let running = pod(10_000, mk_pod("p", Some("a"), "Running", 4));
        let ended = pod(90_000, mk_pod("p", Some("a"), "Succeeded", 4));
        let told = |ended_at| {
            let lines = [
                version(running.clone(), 1),
                version(nrt(50_000, 16), 5),
                version(ended.clone(), ended_at),
            ];
            nothing_given_away(&lines).violations.len()
        };
        assert_eq!([told(4), told(6)], [0, 1]);
    }

    #[test]
    fn a_kubelet_that_has_just_started_may_not_know_it() {
        let mut lines = recorded(nrt(50_000, 16));
        let what = Box::new(Disturbance::RestartKubelet { node: "a".into() });
        let began = Entry::FaultBegan { id: 1, what };
        let outcome = Ok(1);
        let ended = Entry::FaultEnded { id: 1, outcome };
        for (at, entry) in [(48_000, began), (48_100, ended)] {
            lines.push(Line { at, entry });
        }
        lines.sort_by_key(|line| line.at);
        let report = nothing_given_away(&lines);
        assert_eq!(report.violations, Vec::<String>::new());
    }
}
