//! No kubelet refuses a pod that the scheduler placed, as long as the scheduler could know what the kubelet knew.

use std::collections::BTreeMap;

use api::names;

use super::Report;
use super::restarts::Restarts;
use crate::recording::{Entry, Line, PodView};

/// Returns every pod of the stack's scheduler that its kubelet refused, for whatever reason it gives at admission.
///
/// One reason excuses a refusal: the kubelet was down, or started, between five seconds before the pod was bound and the refusal. It is in
/// the notes then.
pub fn no_refusal(lines: &[Line]) -> Report {
    let restarts = Restarts::of(lines);
    let mut bound: BTreeMap<&str, u64> = BTreeMap::new();
    let mut started: BTreeMap<&str, bool> = BTreeMap::new();
    let mut report = Report::default();
    for line in lines {
        let Entry::Applied { kind, object } = &line.entry else {
            continue;
        };
        let pod = PodView(object);
        if kind != "Pod" || pod.scheduler() != names::SCHEDULER_PROFILE || pod.node().is_empty() {
            continue;
        }
        let at = *bound.entry(pod.uid()).or_insert(line.at);
        let has_started = started.entry(pod.uid()).or_default();
        *has_started |= pod.phase() == "Running";
        if pod.phase() != "Failed" || *has_started || !is_refusal(pod.reason()) {
            continue;
        }
        // once is enough
        *has_started = true;
        let (namespace, name) = pod.key();
        let text = format!(
            "pod {namespace}/{name} was bound to {} at {at} ms and refused at {} ms: {} {}",
            pod.node(),
            line.at,
            pod.reason(),
            pod.message()
        );
        if restarts.excuse(pod.node(), at, line.at) {
            report
                .notes
                .push(format!("{text}; its kubelet had started"));
        } else {
            report.violations.push(text);
        }
    }
    report
}

/// Returns whether the reason of a failed pod is one that a kubelet gives at admission (kubelet-node.md 9).
fn is_refusal(reason: &str) -> bool {
    matches!(
        reason,
        "TopologyAffinityError" | "UnexpectedAdmissionError" | "NodeAffinity" | "SMTAlignmentError"
    ) || reason.starts_with("OutOf")
}

#[cfg(test)]
mod tests {
    use cluster_faults::Disturbance;
    use rstest::rstest;
    use serde_json::Value;

    use super::super::tests::{mk_pod, pod};
    use super::*;

    fn refused(name: &str) -> Value {
        let mut pod = mk_pod(name, Some("a"), "Failed", 4);
        pod["status"]["reason"] = "TopologyAffinityError".into();
        pod["status"]["message"] = "Resources cannot be allocated".into();
        pod
    }

    fn restart(from: u64, to: u64) -> [Line; 2] {
        let what = Box::new(Disturbance::RestartKubelet { node: "a".into() });
        [
            Line {
                at: from,
                entry: Entry::FaultBegan { id: 3, what },
            },
            Line {
                at: to,
                entry: Entry::FaultEnded {
                    id: 3,
                    outcome: Ok(1),
                },
            },
        ]
    }

    #[test]
    fn a_refused_pod_is_found() {
        let lines = [
            pod(10_000, mk_pod("p", Some("a"), "Pending", 4)),
            pod(10_500, refused("p")),
            pod(10_600, refused("p")),
        ];
        assert_eq!(
            no_refusal(&lines).violations,
            [
                "pod chaos/p was bound to a at 10000 ms and refused at 10500 ms: TopologyAffinityError Resources cannot be allocated"
            ]
        );
    }

    #[rstest]
    #[case::long_before(1_000, 1_200, false)]
    #[case::just_before(7_000, 7_100, true)]
    #[case::meanwhile(10_100, 10_200, true)]
    #[case::after(11_000, 11_100, false)]
    fn only_a_kubelet_that_started_about_then_may_refuse(
        #[case] from: u64,
        #[case] to: u64,
        #[case] excused: bool,
    ) {
        let mut lines = vec![
            pod(10_000, mk_pod("p", Some("a"), "Pending", 4)),
            pod(10_500, refused("p")),
        ];
        lines.extend(restart(from, to));
        lines.sort_by_key(|line| line.at);
        let report = no_refusal(&lines);
        assert_eq!(report.violations.is_empty(), excused, "{report:?}");
        assert_eq!(report.notes.len(), usize::from(excused));
    }

    #[test]
    fn a_pod_of_another_scheduler_is_not_ours() {
        let mut other = refused("p");
        other["spec"]["schedulerName"] = "default-scheduler".into();
        assert_eq!(no_refusal(&[pod(0, other)]), Report::default());
    }
}
