//! Every scenario gives the same verdict on a cluster of real Kubernetes parts and on an embedded one, but for those that need what only
//! one of them has.
//!
//! Both lanes at the same time, because each waits for half of it; the reports of all runs are left in the target directory.

use std::collections::BTreeMap;

use suite::run::Outcome;
use suite::select::Selection;
use suite::setup::Options;
use testbed::lane;

use crate::harness::{judge, runtime, word};

/// Passed on the embedded lane, skipped on the local one: nobody can make a real API server answer wrong, or take the place of a real
/// kubelet's socket.
const EMBEDDED_ONLY: &[&str] = &[
    "fault/binding-fails",
    "fault/binding-unanswered",
    "fault/nrt-conflicts",
    "fault/podresources-garbage",
    "fault/podresources-hangs",
    "fault/too-many-requests",
    "fault/watches-expire",
];

/// Not skipped for want of something on the local lane, and skipped so on the embedded one, where pods have no networks.
const LOCAL_ONLY: &str = "netpol/";

#[test]
#[ignore = "real: root and the Kubernetes programs"]
fn every_scenario_gives_the_same_verdict_on_both_lanes() {
    agree("plain", &[], &Selection::default());
}

/// All that has to do with what only `OpenShift` has.
#[test]
#[ignore = "real: root and the Kubernetes programs"]
fn scenarios_of_openshift_give_the_same_verdict_on_both_lanes() {
    let selection = Selection {
        focus: Some("^(config|tls|upgrade)/".to_owned()),
        ..Selection::default()
    };
    let flags = ["--flavour", "openshift", "--schedulable-control-plane"];
    agree("openshift", &flags, &selection);
}

/// Runs the scenarios on both lanes; they must have the same verdicts, and none may fail.
fn agree(name: &str, flags: &[&str], selection: &Selection) {
    let on = |lane| verdicts(lane, name, flags, selection);
    let (embedded, local) = std::thread::scope(|scope| {
        let embedded = scope.spawn(|| on(lane::Lane::Embedded));
        let local = on(lane::Lane::Local);
        let embedded = embedded.join();
        (embedded.expect("the embedded lane's run ended"), local)
    });
    let as_expected = |id: &String, on_local: &String| match embedded.get(id) {
        Some(on_embedded) if EMBEDDED_ONLY.contains(&id.as_str()) => {
            on_embedded == "passed" && on_local.starts_with("skipped: prerequisite-missing: ")
        }
        Some(on_embedded) if id.starts_with(LOCAL_ONLY) => {
            on_embedded.starts_with("skipped: prerequisite-missing: ")
                && !on_local.starts_with("skipped: prerequisite-missing: ")
        }
        on_embedded => on_embedded == Some(on_local),
    };
    let differing: Vec<String> = local
        .iter()
        .filter(|(id, verdict)| !as_expected(id, verdict))
        .map(|(id, verdict)| format!("{id}: local {verdict}, embedded {:?}", embedded.get(id)))
        .collect();
    assert_eq!(differing, Vec::<String>::new());
    let wrong: Vec<&String> = local
        .iter()
        .filter(|(_, verdict)| !verdict.starts_with("passed") && !verdict.starts_with("skipped"))
        .map(|(id, _)| id)
        .collect();
    assert_eq!(wrong, Vec::<&String>::new());
    assert!(
        local.values().any(|verdict| verdict == "passed"),
        "nothing ran"
    );
}

/// What became of each selected scenario of the catalogue, in words.
fn verdicts(
    lane: lane::Lane,
    name: &str,
    flags: &[&str],
    selection: &Selection,
) -> BTreeMap<String, String> {
    let options = Options::own(lane, flags).expect("the flags exist");
    let test = format!("lanes/{name}/{}", lane.name());
    let judged = runtime().block_on(judge(&test, &options, selection, async |_| Ok(())));
    assert!(
        matches!(judged.outcome, Outcome::Passed | Outcome::ScenarioFailed),
        "{test}: {:?}; see {}",
        judged.phase_failure,
        judged.events.display()
    );
    let verdicts = judged.verdicts.iter();
    verdicts
        .map(|(id, verdict)| (id.clone(), word(verdict)))
        .collect()
}
