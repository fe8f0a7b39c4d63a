//! Every scenario gives the same verdict on a cluster of real Kubernetes parts and on an embedded one.
//!
//! One test, because each cluster fills the machine; it leaves the reports of both runs in the target directory.

use std::collections::BTreeMap;
use std::path::Path;

use clap::Parser;
use reports::event::Verdict;
use suite::interrupt::Interrupt;
use suite::recorder::Deadlines;
use suite::run::{self, Outcome, Places};
use suite::scenarios;
use suite::setup::{Lane, Options};
use testbed::cli::PlanArgs;
use testbed::lane;

#[derive(Parser)]
struct Plan {
    #[command(flatten)]
    plan: PlanArgs,
}

#[test]
fn every_scenario_gives_the_same_verdict_on_both_lanes() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let embedded = verdicts(lane::Lane::Embedded);
    let local = verdicts(lane::Lane::Local);
    let differing: Vec<String> = local
        .iter()
        .filter(|(id, verdict)| embedded.get(*id) != Some(verdict))
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

/// What became of each scenario of the catalogue, in words.
fn verdicts(lane: lane::Lane) -> BTreeMap<String, String> {
    let places = Places::new(
        &Path::new(env!("CARGO_TARGET_TMPDIR"))
            .join("lanes")
            .join(lane.name()),
        None,
    );
    let (stream, summary) =
        run::stream(&places, Vec::new()).expect("the artefacts directory is writable");
    let scenarios = scenarios::all();
    let options = Options {
        lane: Lane::Own(lane),
        plan: Plan::parse_from(["lanes"]).plan,
        state_root: None,
        install: true,
        manifests: None,
        scheduler: None,
        deadlines: Deadlines::default(),
        run: run::new_run_id(),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime can be made");
    let outcome = runtime.block_on(run::run(
        &options,
        &scenarios,
        &vec![true; scenarios.len()],
        &places,
        &stream,
        &Interrupt::default(),
        async |_| Ok(()),
    ));
    let why = summary.with(|summary| summary.phase_failure().map(str::to_owned));
    assert!(
        matches!(outcome, Outcome::Passed | Outcome::ScenarioFailed),
        "{}: {why:?}; see {}",
        lane.name(),
        places.events().display()
    );
    summary.with(|summary| {
        let word = |verdict: &Verdict| match verdict {
            Verdict::Passed => "passed".to_owned(),
            Verdict::Failed(failure) => format!("failed: {failure}"),
            Verdict::Skipped { class, reason } => format!("skipped: {}: {reason}", class.as_str()),
            Verdict::Interrupted { reason } => format!("interrupted: {reason}"),
        };
        summary
            .verdicts()
            .map(|(id, verdict)| (id.to_owned(), word(verdict)))
            .collect()
    })
}
