//! No pod vanishes without a reason.

use std::collections::BTreeSet;

use crate::plan::{Action, job_name};
use crate::recording::{Entry, Line, PodView};

/// Condition of a pod that was preempted or evicted.
const DISRUPTED: &str = "DisruptionTarget";
/// Prefix of the names of pods that no controller creates again.
const JOB: &str = "job-";

/// Returns every pod of the plan that is gone although nobody deleted it and nothing preempted or evicted it, before the plan is over.
pub fn nothing_lost(lines: &[Line]) -> Vec<String> {
    let mut asked: BTreeSet<String> = BTreeSet::new();
    let mut disrupted: BTreeSet<&str> = BTreeSet::new();
    let mut violations = Vec::new();
    for line in lines {
        match &line.entry {
            Entry::Done {
                action: Action::Delete { number },
            } => {
                asked.insert(job_name(*number));
            }
            Entry::Reached { part } if part == "end" => break,
            Entry::Applied { kind, object } if kind == "Pod" => {
                let pod = PodView(object);
                if pod.has_condition(DISRUPTED) {
                    disrupted.insert(pod.uid());
                }
            }
            Entry::Deleted { kind, object } if kind == "Pod" => {
                let pod = PodView(object);
                let (namespace, name) = pod.key();
                let is_explained = asked.contains(name)
                    || disrupted.contains(pod.uid())
                    || pod.has_condition(DISRUPTED);
                if name.starts_with(JOB) && !is_explained {
                    violations.push(format!(
                        "pod {namespace}/{name} ({}) was deleted at {} ms, and nobody asked for it",
                        pod.phase(),
                        line.at
                    ));
                }
            }
            _ => {}
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::tests::{deleted, mk_pod, pod};
    use super::*;

    #[test]
    fn a_pod_that_vanishes_is_found() {
        let lines = [
            pod(0, mk_pod("job-1", Some("a"), "Running", 1)),
            deleted(5, mk_pod("job-1", Some("a"), "Running", 1)),
        ];
        assert_eq!(
            nothing_lost(&lines),
            ["pod chaos/job-1 (Running) was deleted at 5 ms, and nobody asked for it"]
        );
    }

    #[test]
    fn a_pod_may_go_that_somebody_deleted_or_preempted() {
        let mut preempted = mk_pod("job-2", Some("a"), "Running", 1);
        preempted["status"]["conditions"] = json!([{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}]);
        let lines = [
            Line {
                at: 1,
                entry: Entry::Done {
                    action: Action::Delete { number: 1 },
                },
            },
            deleted(5, mk_pod("job-1", Some("a"), "Running", 1)),
            pod(6, preempted),
            deleted(7, mk_pod("job-2", Some("a"), "Running", 1)),
        ];
        assert_eq!(nothing_lost(&lines), Vec::<String>::new());
    }
}
