//! Every scenario gives the same verdict on a cluster of real Kubernetes parts and on an embedded one, except those that need what only one
//! of them has: `suite/skips.yaml` says which are skipped where, and each run is compared with it.
//!
//! Both lanes run at the same time, because each spends half of the time waiting. The reports of all runs stay in the target directory. A
//! scenario takes twice as long on real parts. So CI runs only tier 0 and the scenarios without a tier there (most of those test the
//! exporter, the scheduler's settings and networks), and `long` runs all of them.

use std::collections::BTreeMap;

use suite::run::Outcome;
use suite::select::Selection;
use suite::setup::Options;
use testbed::lane;

use crate::harness::{describe, run_strictly, runtime};

/// Flags for an `OpenShift` cluster whose control plane node is a worker, too.
const OPENSHIFT: [&str; 3] = ["--flavour", "openshift", "--schedulable-control-plane"];
/// Flags for a hosted cluster.
const HYPERSHIFT: [&str; 2] = ["--flavour", "hypershift"];

/// Scenarios that depend on what a hosted cluster has in place of the pools of `OpenShift`: on its node pools, on its ConfigMaps with the configuration of
/// kubelets, and on the nodes of the schedulers. The last one is skipped there.
const OF_HOSTED: [&str; 5] = [
    "config/nrt-attributes",
    "config/poolname-status",
    "config/no-mcp-selector-hs",
    "sched/spread-nodes",
    "config/nro-modify",
];

/// Labels of the scenarios that CI runs on the local lane.
const BUT_TIERS: &str = "!tier1 && !tier2 && !tier3";

#[test]
#[ignore = "real: root and the Kubernetes programs"]
fn every_scenario_is_run_on_the_embedded_lane_and_all_but_tiers_1_to_3_agree_with_the_local_lane() {
    let on_local = Selection {
        labels: Some(BUT_TIERS.to_owned()),
        ..Selection::default()
    };
    agree("tiers", &[], &Selection::default(), &on_local);
}

#[test]
fn scenarios_of_a_hosted_cluster_pass_there_or_are_skipped_as_listed() {
    let selection = Selection {
        ids: OF_HOSTED.map(str::to_owned).into(),
        ..Selection::default()
    };
    all_is_as_listed("hosted", &HYPERSHIFT, &selection);
}

mod long {
    use super::*;

    #[test]
    #[ignore = "long: five minutes"]
    fn every_scenario_passes_on_openshift_or_is_skipped_as_listed() {
        all_is_as_listed("all-openshift", &OPENSHIFT, &Selection::default());
    }

    #[test]
    #[ignore = "long: five minutes"]
    fn every_scenario_passes_on_a_hosted_cluster_or_is_skipped_as_listed() {
        all_is_as_listed("all-hosted", &HYPERSHIFT, &Selection::default());
    }

    #[test]
    #[ignore = "long: ten minutes, root and the Kubernetes programs"]
    fn every_scenario_gives_the_same_verdict_on_both_lanes() {
        agree("plain", &[], &Selection::default(), &Selection::default());
    }

    #[test]
    #[ignore = "long: three minutes, root and the Kubernetes programs"]
    fn scenarios_of_openshift_give_the_same_verdict_on_both_lanes() {
        agree("openshift", &OPENSHIFT, &of_openshift(), &of_openshift());
    }
}

/// Selects the scenarios that depend on what only `OpenShift` has.
fn of_openshift() -> Selection {
    Selection {
        focus: Some("^(config|tls|upgrade)/".to_owned()),
        ..Selection::default()
    }
}

#[test]
#[ignore = "real: root and the Kubernetes programs"]
fn scenarios_of_openshift_are_run_on_the_embedded_lane_and_all_but_tiers_1_to_3_agree_with_the_local_lane()
 {
    let selection = of_openshift();
    let on_local = Selection {
        labels: Some(BUT_TIERS.to_owned()),
        ..selection.clone()
    };
    agree("openshift-tiers", &OPENSHIFT, &selection, &on_local);
}

/// Runs scenarios on the embedded lane, where none may fail.
fn all_is_as_listed(name: &str, flags: &[&str], selection: &Selection) {
    let verdicts = verdicts(lane::Lane::Embedded, name, flags, selection);
    assert_eq!(failed(&verdicts), Vec::<&String>::new());
    assert_something_ran(&verdicts);
}

/// Runs scenarios on both lanes, on the local one possibly fewer. Those that are skipped on neither lane must have the same verdicts, and none
/// may fail.
fn agree(name: &str, flags: &[&str], on_embedded: &Selection, on_local: &Selection) {
    let on = |lane, selection| verdicts(lane, name, flags, selection);
    let (embedded, local) = std::thread::scope(|scope| {
        let embedded = scope.spawn(|| on(lane::Lane::Embedded, on_embedded));
        let local = on(lane::Lane::Local, on_local);
        let embedded = embedded.join();
        (embedded.expect("the embedded lane's run ended"), local)
    });
    let agrees = |id: &String, on_local: &String| {
        let on_embedded = &embedded[id];
        on_embedded == on_local || is_skipped(on_embedded) || is_skipped(on_local)
    };
    let differing: Vec<String> = local
        .iter()
        .filter(|(id, verdict)| !agrees(id, verdict))
        .map(|(id, verdict)| format!("{id}: local {verdict}, embedded {}", embedded[id]))
        .collect();
    assert_eq!(differing, Vec::<String>::new());
    let wrong = [failed(&embedded), failed(&local)].concat();
    assert_eq!(wrong, Vec::<&String>::new());
    assert_something_ran(&local);
}

/// Returns the scenarios that were run and did not pass.
fn failed(verdicts: &BTreeMap<String, String>) -> Vec<&String> {
    let did_not = |verdict: &str| verdict != "passed" && !is_skipped(verdict);
    let wrong = verdicts.iter().filter(|(_, verdict)| did_not(verdict));
    wrong.map(|(id, _)| id).collect()
}

fn assert_something_ran(verdicts: &BTreeMap<String, String>) {
    assert!(
        verdicts.values().any(|verdict| verdict == "passed"),
        "nothing ran"
    );
}

fn is_skipped(verdict: &str) -> bool {
    verdict.starts_with("skipped: ")
}

/// Returns the verdict of each selected scenario of the catalogue, in words.
fn verdicts(
    lane: lane::Lane,
    name: &str,
    flags: &[&str],
    selection: &Selection,
) -> BTreeMap<String, String> {
    let options = Options::own(lane, flags).expect("the flags exist");
    let test = format!("lanes/{name}/{}", lane.name());
    let completed = runtime().block_on(run_strictly(&test, &options, selection));
    assert!(
        matches!(completed.outcome, Outcome::Passed | Outcome::ScenarioFailed),
        "{test}: {}; see {}",
        completed.phase_failure.unwrap_or_default(),
        completed.events.display()
    );
    let verdicts = completed.verdicts.iter();
    verdicts
        .map(|(id, verdict)| (id.clone(), describe(verdict)))
        .collect()
}
