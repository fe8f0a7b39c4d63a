//! Every scenario passes on a cluster of real Kubernetes parts and on an embedded one, except those that need what only one of them has:
//! `suite/skips.yaml` says which are skipped where, and each run is compared with it. So the lanes agree.
//!
//! The reports of all runs stay in the target directory. A scenario takes twice as long on real parts. So CI runs only tier 0 and the
//! scenarios without a tier there (most of those test the exporter, the scheduler's settings and networks), and `long` runs all of them.

use std::collections::BTreeMap;

use suite::run::Outcome;
use suite::select::Selection;
use suite::setup::Options;
use testbed::lane::Lane;

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
#[ignore = "real: minutes of processor time"]
fn every_scenario_passes_on_the_embedded_lane_or_is_skipped_as_listed() {
    passes(Lane::Embedded, "all", &[], &Selection::default());
}

#[test]
#[ignore = "real: root and the Kubernetes programs"]
fn all_but_tiers_1_to_3_pass_on_real_parts_or_are_skipped_as_listed() {
    let selection = Selection {
        labels: Some(BUT_TIERS.to_owned()),
        ..Selection::default()
    };
    passes(Lane::Local, "tiers", &[], &selection);
}

#[test]
#[ignore = "real: minutes of processor time"]
fn scenarios_of_openshift_pass_on_the_embedded_lane_or_are_skipped_as_listed() {
    passes(Lane::Embedded, "openshift", &OPENSHIFT, &of_openshift());
}

#[test]
#[ignore = "real: root and the Kubernetes programs"]
fn scenarios_of_openshift_but_tiers_1_to_3_pass_on_real_parts_or_are_skipped_as_listed() {
    let selection = Selection {
        labels: Some(BUT_TIERS.to_owned()),
        ..of_openshift()
    };
    passes(Lane::Local, "openshift-tiers", &OPENSHIFT, &selection);
}

#[test]
fn scenarios_of_a_hosted_cluster_pass_there_or_are_skipped_as_listed() {
    let selection = Selection {
        ids: OF_HOSTED.map(str::to_owned).into(),
        ..Selection::default()
    };
    passes(Lane::Embedded, "hosted", &HYPERSHIFT, &selection);
}

mod long {
    use super::*;

    #[test]
    #[ignore = "long: five minutes"]
    fn every_scenario_passes_on_openshift_or_is_skipped_as_listed() {
        let all = Selection::default();
        passes(Lane::Embedded, "all-openshift", &OPENSHIFT, &all);
    }

    #[test]
    #[ignore = "long: five minutes"]
    fn every_scenario_passes_on_a_hosted_cluster_or_is_skipped_as_listed() {
        let all = Selection::default();
        passes(Lane::Embedded, "all-hosted", &HYPERSHIFT, &all);
    }

    #[test]
    #[ignore = "long: ten minutes, root and the Kubernetes programs"]
    fn every_scenario_passes_on_real_parts_or_is_skipped_as_listed() {
        passes(Lane::Local, "all", &[], &Selection::default());
    }

    #[test]
    #[ignore = "long: three minutes, root and the Kubernetes programs"]
    fn scenarios_of_openshift_pass_on_real_parts_or_are_skipped_as_listed() {
        passes(Lane::Local, "openshift", &OPENSHIFT, &of_openshift());
    }
}

/// Selects the scenarios that depend on what only `OpenShift` has.
fn of_openshift() -> Selection {
    Selection {
        focus: Some("^(config|tls|upgrade)/".to_owned()),
        ..Selection::default()
    }
}

/// Runs scenarios, of which none may fail and none may be skipped but those of the list.
fn passes(lane: Lane, name: &str, flags: &[&str], selection: &Selection) {
    let verdicts = verdicts(lane, name, flags, selection);
    assert_eq!(failed(&verdicts), Vec::<String>::new());
    assert!(
        verdicts.values().any(|verdict| verdict == "passed"),
        "nothing ran"
    );
}

/// Returns the scenarios that were run and did not pass, with what they found.
fn failed(verdicts: &BTreeMap<String, String>) -> Vec<String> {
    let did_not = |verdict: &str| verdict != "passed" && !is_skipped(verdict);
    let wrong = verdicts.iter().filter(|(_, verdict)| did_not(verdict));
    wrong
        .map(|(id, verdict)| format!("{id} {verdict}"))
        .collect()
}

fn is_skipped(verdict: &str) -> bool {
    verdict.starts_with("skipped: ")
}

/// Returns the verdict of each selected scenario of the catalogue, in words.
fn verdicts(
    lane: Lane,
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
