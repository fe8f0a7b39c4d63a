//! Faults change no verdict. All scenarios of tier0 pass without faults (`suite.rs`); they also pass on an embedded cluster while requests
//! fail, watches end, leases are lost, processes die or stop, and kubelets and their sockets fail, drawn from a seed.
//!
//! Each fault ends after seconds, as on a real cluster. The suite's own requests are not disturbed, because they are the measurement.
//! `NUMARESOURCES_SEED` repeats a run; `NUMARESOURCES_FAULT_SECONDS` is its least duration. It is one round of all scenarios in any case.
#![expect(
    clippy::print_stdout,
    reason = "what clippy allows in test functions, the code that they share may do too"
)]

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use api::names;
use cluster_faults::{Process, Schedule, Targets};
use cri_runtime::control::State;
use suite::scenario::Scenario;
use suite::scenarios;
use suite::select::Selection;
use suite::session::Session;
use suite::setup::Options;
use testbed::embedded::EmbeddedCluster;
use testbed::lane;
use tokio::sync::watch;

use crate::harness::{begin, describe, number, report_paths, runtime, start};

/// Least duration of the faults in seconds, unless the environment sets another.
const SECONDS: u64 = 30;
/// Number of faults per minute.
const PER_MINUTE: u32 = 30;
/// Length of one drawn schedule. It is short because processes start and end meanwhile.
const SCHEDULE_LENGTH: Duration = Duration::from_secs(20);

#[test]
fn bad_days_change_no_verdict_of_tier0() {
    let seed = number("NUMARESOURCES_SEED").unwrap_or_else(|| uuid::Uuid::new_v4().as_u64_pair().0);
    let seconds = number("NUMARESOURCES_FAULT_SECONDS").unwrap_or(SECONDS);
    println!("NUMARESOURCES_SEED={seed} repeats this run");
    runtime().block_on(check(seed, Duration::from_secs(seconds)));
}

async fn check(seed: u64, length: Duration) {
    let scenarios = scenarios::all();
    let selection = Selection {
        labels: Some("tier0 && !openshift".to_owned()),
        // these need OpenShift
        skip: Some("^tls/".to_owned()),
        ..Selection::default()
    };
    let selected = selection.apply(&scenarios).expect("tier0 is not empty");
    let chosen: Vec<&Scenario> = scenarios
        .iter()
        .zip(&selected)
        .filter_map(|(scenario, selected)| selected.then_some(scenario))
        .collect();
    let options = Options::own(lane::Lane::Embedded, &[]).expect("no flag is wrong");
    let paths = report_paths("disturbed", &options);
    let stream = begin(&options, &paths);
    let session = start(&options, &stream, &paths).await;
    let cluster = session
        .own()
        .and_then(lane::Cluster::embedded)
        .expect("the cluster is an embedded one");

    let over = watch::Sender::new(false);
    let rounds = async {
        let end = Instant::now() + length;
        let mut rounds = Vec::new();
        while rounds.is_empty() || Instant::now() < end {
            rounds.push(verdicts(&session, &chosen).await);
        }
        over.send_replace(true);
        rounds
    };
    let (rounds, played) = tokio::join!(rounds, inject_faults(cluster, seed, over.subscribe()));
    let differing: Vec<String> = (1..)
        .zip(&rounds)
        .flat_map(|(number, round)| {
            let differs = |(id, verdict): (&String, &String)| {
                (verdict != "passed").then(|| format!("round {number}, {id}: {verdict}"))
            };
            round.iter().filter_map(differs).collect::<Vec<_>>()
        })
        .collect();
    println!("{} rounds, what went wrong: {played:#?}", rounds.len());
    let finished = session.finish().await;
    assert_eq!(
        differing,
        Vec::<String>::new(),
        "seed {seed}; see {}",
        paths.events().display()
    );
    assert!(
        finished,
        "the tear-down failed; see {}",
        paths.events().display()
    );
    let count = rounds.iter().map(BTreeMap::len).sum::<usize>();
    assert!(count > 0, "tier0 has no scenarios");
    assert!(played.values().sum::<u64>() > 0, "nothing went wrong");
}

/// Runs each scenario and returns the verdicts, in words.
async fn verdicts(session: &Session, chosen: &[&Scenario]) -> BTreeMap<String, String> {
    let mut words = BTreeMap::new();
    for scenario in chosen {
        let verdict = session.run(scenario).await;
        words.insert(scenario.id.to_owned(), describe(&verdict));
    }
    words
}

/// Injects faults until the run is over. Returns how many there were of each kind.
async fn inject_faults(
    cluster: &EmbeddedCluster,
    seed: u64,
    over: watch::Receiver<bool>,
) -> BTreeMap<String, u64> {
    let faults = cluster.faults();
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    let mut part = 0;
    while !*over.borrow() {
        let targets = targets(cluster);
        let seed = seed.wrapping_add(part);
        let schedule = Schedule::random(seed, PER_MINUTE, SCHEDULE_LENGTH, &targets);
        part += 1;
        let mut stop = over.clone();
        let over = async move {
            // a sender that is gone means the same
            let _ = stop.wait_for(|over| *over).await;
        };
        let answers = faults.play_until(&schedule, over).await;
        for (step, answer) in schedule.steps.iter().zip(answers) {
            match answer {
                Some(Ok(_)) => {
                    let what = serde_json::to_value(&step.what).expect("it can be written");
                    let fault = &what["rule"]["fault"]["kind"];
                    let kind = [&what["kind"], fault].map(|word| word.as_str().unwrap_or_default());
                    *counts.entry(kind.join(" ")).or_default() += 1;
                }
                // a process that has just died cannot be killed or stopped, and a lease without a holder cannot be lost
                Some(Err(error)) => println!("{:?}: {error}", step.what),
                None => {}
            }
        }
    }
    counts
}

/// Returns the targets: the stack, the controllers, the default scheduler and the kubelets.
fn targets(cluster: &EmbeddedCluster) -> Targets {
    let processes = cluster.nodes().iter().flat_map(|node| {
        let stack = node.containers().into_iter().filter(|container| {
            container.target.namespace == names::NAMESPACE && container.state == State::Running
        });
        stack.map(|container| Process {
            node: node.name().to_owned(),
            namespace: container.target.namespace,
            pod: container.target.pod,
            container: container.target.container,
        })
    });
    Targets {
        leases: vec![(
            names::NAMESPACE.to_owned(),
            names::OPERATOR_LEASE.to_owned(),
        )],
        processes: processes.collect(),
        nodes: cluster
            .nodes()
            .iter()
            .map(|node| node.name().to_owned())
            .collect(),
        // no outages: one would also affect the suite itself
        ..suite::targets::requests()
    }
}
