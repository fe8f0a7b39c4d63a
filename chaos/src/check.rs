//! What must hold, each as a function over a recording that returns what is wrong, one sentence for each case.
//!
//! Faults excuse nothing here but what the documentation of the scheduler says (`docs/placement.md`, "What remains possible").

mod accounts;
mod bindings;
mod held;
mod losses;
mod refusals;
mod restarts;

use serde_json::Value;

use crate::recording::{Entry, Line};

pub(crate) use accounts::taken_cpus;
pub use accounts::{Counted, accounts};
pub use bindings::bound_once;
pub use held::nothing_given_away;
pub use losses::nothing_lost;
pub use refusals::no_refusal;

/// What is wrong in a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// One sentence for each violation.
    pub violations: Vec<String>,
    /// What was compared, for people: a check that compared nothing has shown nothing.
    pub notes: Vec<String>,
}

/// Checks a whole recording.
pub fn recording(lines: &[Line]) -> Report {
    let mut report = Report::default();
    report.violations.extend(bound_once(lines));
    let refusals = no_refusal(lines);
    report.violations.extend(refusals.violations);
    report.notes.extend(refusals.notes);
    report.violations.extend(nothing_lost(lines));
    let counted = accounts(lines);
    report.notes.push(format!(
        "{} NRTs were compared with the pods of their fingerprint, {} had a set of pods that the API never showed",
        counted.compared, counted.unknown
    ));
    report.violations.extend(counted.violations);
    let held = nothing_given_away(lines);
    report.violations.extend(held.violations);
    report.notes.extend(held.notes);
    report
}

/// Returns every NRT that was told, with its line and its node.
fn nrts(lines: &[Line]) -> impl Iterator<Item = (&Line, &str, &Value)> {
    lines.iter().filter_map(|line| match &line.entry {
        Entry::Applied { kind, object } if kind == "NodeResourceTopology" => {
            let node = object.pointer("/metadata/name")?.as_str()?;
            Some((line, node, object))
        }
        _ => None,
    })
}

#[cfg(test)]
pub(crate) mod tests {
    //! Recordings that tests make up.

    use api::names;
    use serde_json::{Value, json};

    use crate::recording::{Entry, Line};

    /// Makes a Guaranteed pod of the stack's scheduler with this many CPUs.
    pub(crate) fn mk_pod(name: &str, node: Option<&str>, phase: &str, cpus: u32) -> Value {
        json!({
            "metadata": {"name": name, "namespace": "chaos", "uid": format!("uid-{name}")},
            "spec": {"nodeName": node, "schedulerName": names::SCHEDULER_PROFILE,
                "containers": [{"name": "c", "resources": {"requests": {"cpu": cpus.to_string(), "memory": "1Gi"}}}]},
            "status": {"phase": phase, "qosClass": "Guaranteed"},
        })
    }

    pub(crate) fn applied(at: u64, kind: &str, object: Value) -> Line {
        let kind = kind.to_owned();
        Line {
            at,
            entry: Entry::Applied { kind, object },
        }
    }

    pub(crate) fn pod(at: u64, object: Value) -> Line {
        applied(at, "Pod", object)
    }

    pub(crate) fn deleted(at: u64, object: Value) -> Line {
        let kind = "Pod".to_owned();
        Line {
            at,
            entry: Entry::Deleted { kind, object },
        }
    }

    #[test]
    fn a_good_day_has_no_violation() {
        let lines = [
            pod(0, mk_pod("job-1", None, "Pending", 4)),
            pod(10, mk_pod("job-1", Some("a"), "Pending", 4)),
            pod(20, mk_pod("job-1", Some("a"), "Running", 4)),
            pod(90, mk_pod("job-1", Some("a"), "Succeeded", 4)),
        ];
        assert_eq!(super::recording(&lines).violations, Vec::<String>::new());
    }
}
