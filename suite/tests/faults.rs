//! The suite can fail: for each of three faults, exactly the scenarios of a committed table fail, and all others pass.
//!
//! Each fault gets a local cluster of its own. They run one after another, because each fills the machine.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use reports::event::Verdict;
use suite::interrupt::Interrupt;
use suite::recorder::Deadlines;
use suite::run::{self, Outcome, Places};
use suite::scenarios;
use suite::select::Selection;
use suite::session::Session;
use suite::setup::Options;
use testbed::lane;
use testbed::node::control::{Signal, Target};

/// Scenarios that look at more than the attributes of an NRT: without an exporter that tells what pods hold, none of them can pass.
const NEED_ACCOUNTING: &[&str] = &[
    "byres/cpu-decides",
    "byres/memory-decides",
    "fundamentals/all-gu",
    "hostlevel/gu-multi",
    "hostlevel/gu-multi-frac",
    "hostlevel/gu-single",
    "tmpol/1cnt-devs-pod",
    "tmpol/2cnt-same-pod",
    "tmpol/2cnt-split-cnt",
    "tmpol/dp-single-zone-cnt",
    "tmpol/dp-single-zone-pod",
    "tmpol/pend-cpu-cnt",
    "tmpol/pend-hp1g-cnt",
    "tmpol/pend-mem-cnt",
];

/// Scenarios in which the zones decide on the node: a scheduler that does not look at them is wrong for certain. A burst of small pods fills
/// zones evenly whoever places them, and the hostlevel pods fit everywhere.
const NEED_PLACEMENT: &[&str] = &[
    "byres/cpu-decides",
    "byres/memory-decides",
    "tmpol/1cnt-devs-pod",
    "tmpol/2cnt-same-pod",
    "tmpol/2cnt-split-cnt",
    "tmpol/dp-single-zone-cnt",
    "tmpol/dp-single-zone-pod",
    "tmpol/pend-cpu-cnt",
    "tmpol/pend-hp1g-cnt",
    "tmpol/pend-mem-cnt",
];

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

#[test]
fn the_default_scheduler_in_place_of_ours_is_found_out() {
    check(
        "default-scheduler",
        &[],
        Some("default-scheduler"),
        Deadlines::default(),
        NEED_PLACEMENT,
        |_| Ok(()),
    );
}

#[test]
fn a_stopped_exporter_is_found_out() {
    check(
        "stopped-exporter",
        &[],
        None,
        impatient(),
        NEED_ACCOUNTING,
        stop_exporters,
    );
}

#[test]
fn hidden_allocations_are_found_out() {
    check(
        "hidden-allocations",
        &["--hide-allocations"],
        None,
        impatient(),
        NEED_ACCOUNTING,
        |_| Ok(()),
    );
}

/// What is right takes a second or two; what waits for an exporter that tells nothing takes all of it, each time.
fn impatient() -> Deadlines {
    Deadlines {
        settled: Duration::from_secs(6),
        ..Deadlines::default()
    }
}

fn stop_exporters(session: &Session) -> Result<(), String> {
    let local = session
        .own()
        .and_then(lane::Cluster::local)
        .ok_or("the cluster is not a local one")?;
    let mut stopped = 0;
    for node in local.nodes() {
        let runtime = node.runtime();
        let containers = runtime.containers().map_err(|error| error.to_string())?;
        for container in containers
            .iter()
            .filter(|container| container.target.container == api::names::RTE_CONTAINER)
        {
            let Target {
                namespace,
                pod,
                container,
            } = &container.target;
            runtime
                .signal(&Target::new(namespace, pod, container), Signal::Stop)
                .map_err(|error| error.to_string())?;
            stopped += 1;
        }
    }
    if stopped == 0 {
        Err("there is no exporter to stop".to_owned())
    } else {
        Ok(())
    }
}

/// Runs tier0 with a fault and compares what failed with the table.
fn check(
    fault: &str,
    plan: &[&str],
    scheduler: Option<&str>,
    deadlines: Deadlines,
    must_fail: &[&str],
    break_it: impl FnOnce(&Session) -> Result<(), String>,
) {
    // a panic of another fault says nothing about this one
    let _one = ONE_AT_A_TIME
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let _ = rustls::crypto::ring::default_provider().install_default();
    let places = Places::new(
        &Path::new(env!("CARGO_TARGET_TMPDIR"))
            .join("faults")
            .join(fault),
        None,
    );
    let (stream, summary) =
        run::stream(&places, Vec::new()).expect("the artefacts directory is writable");
    let scenarios = scenarios::all();
    let selection = Selection {
        // an installation starts exporters anew, which would end what is wrong with them
        labels: Some("tier0 && !openshift && !install".to_owned()),
        ..Selection::default()
    };
    let selected = selection.apply(&scenarios).expect("tier0 is not empty");
    let options = Options {
        scheduler: scheduler.map(str::to_owned),
        deadlines,
        ..Options::own(lane::Lane::Local, plan).expect("the flags exist")
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime can be made");
    let outcome = runtime.block_on(run::run(
        &options,
        &scenarios,
        &selected,
        &places,
        &stream,
        &Interrupt::default(),
        async |session| break_it(session),
    ));
    let events = places.events();
    let why = summary.with(|summary| summary.phase_failure().map(str::to_owned));
    assert_eq!(
        outcome,
        Outcome::ScenarioFailed,
        "{fault}: {why:?}; see {}",
        events.display()
    );
    let failed: BTreeSet<String> = summary.with(|summary| {
        summary
            .verdicts()
            .filter(|(_, verdict)| verdict.is_failed())
            .map(|(id, _)| id.to_owned())
            .collect()
    });
    let undecided: Vec<String> = summary.with(|summary| {
        let undecided = |verdict: &Verdict| !verdict.is_failed() && !verdict.is_passed();
        summary
            .verdicts()
            .filter(|(_, verdict)| undecided(verdict))
            .map(|(id, _)| id.to_owned())
            .collect()
    });
    let expected: BTreeSet<String> = must_fail.iter().map(|&id| id.to_owned()).collect();
    assert_eq!(
        undecided,
        Vec::<String>::new(),
        "{fault}: neither passed nor failed; see {}",
        events.display()
    );
    assert_eq!(
        failed,
        expected,
        "{fault}: other scenarios failed than the table says; see {}",
        events.display()
    );
}
