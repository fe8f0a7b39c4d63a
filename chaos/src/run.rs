//! One run: a cluster with the stack, the plan of a seed, and the verdict.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use api::names;
use api::operator::v1::NumaResourcesOperator;
use api::scheduler::v1::NumaResourcesScheduler;
use cluster_faults::Faults;
use futures::future::FutureExt as _;
use kube::Client;
use kube::api::Api;
use parking_lot::Mutex;
use programs::console::note;
use reports::event::Verdict;
use serde_json::Value;
use suite::context::Context;
use suite::interrupt::Interrupt;
use suite::recorder::Deadlines;
use suite::scenario::Scenario;
use suite::setup;
use suite::step::StepError;
use testbed::lane::Lane;

use crate::check::{self, Report};
use crate::churn::Churn;
use crate::end::{self, Expected};
use crate::inject;
use crate::plan::{Edited, Plan};
use crate::recorder::Recorder;
use crate::recording::{self, Entry};
use crate::start;
use crate::wanted;

/// What a run is.
#[derive(Clone, Debug)]
pub struct Options {
    /// The seed.
    pub seed: u64,
    /// How long churn and faults last.
    pub length: Duration,
    /// The lane of the cluster.
    pub lane: Lane,
    /// Directory with the programs of the stack, in place of those that are built from the sources.
    pub bin_dir: Option<PathBuf>,
    /// Directory for the recording and the reports.
    pub directory: PathBuf,
}

/// What the scenario needs of the run.
struct Shared {
    plan: Plan,
    faults: Faults,
    recorder: Recorder,
    /// The administrator's kubeconfig, if the pods of the cluster can be reached from here.
    kubeconfig: Option<PathBuf>,
    report: Mutex<Report>,
}

/// Carries out the plan of a seed on a cluster of its own. Returns what is wrong.
///
/// # Errors
/// Returns an error if there is no verdict: the cluster or the stack did not come up, a file cannot be written, or the run was interrupted. The
/// cluster is down then.
pub async fn run(options: &Options, interrupt: &Interrupt) -> anyhow::Result<Report> {
    let plan = Plan::draw(options.seed, options.length, options.lane);
    let directory = &options.directory;
    fs_err::create_dir_all(directory)?;
    fs_err::write(directory.join("plan.txt"), plan.to_string())?;
    let setup = setup::Options::own(options.lane, &[]).context("the default cluster")?;
    let setup = setup::Options {
        deadlines: Deadlines::default().scaled(2.0),
        ..setup
    };
    let bin_dir = options.bin_dir.as_deref();
    let session = start::session(setup, bin_dir, directory, interrupt).await?;
    let cluster = session.own().context("the cluster is not ours")?;
    let shared = Arc::new(Shared {
        plan,
        faults: cluster.faults(),
        recorder: Recorder::create(&directory.join(recording::FILE))?,
        kubeconfig: cluster.embedded().map(|_| cluster.kubeconfig()),
        report: Mutex::default(),
    });
    let verdict = session.run(&scenario(Arc::clone(&shared))).await;
    let is_down = session.finish().await;
    shared.recorder.flush()?;
    let mut report = std::mem::take(&mut *shared.report.lock());
    match verdict {
        Verdict::Passed => {}
        Verdict::Failed(failure) => report.violations.push(failure.to_string()),
        Verdict::Interrupted { reason } => anyhow::bail!("{reason}"),
        Verdict::Skipped { reason, .. } => anyhow::bail!("the run was skipped: {reason}"),
    }
    if !is_down {
        report
            .violations
            .push("the cluster could not be taken down".to_owned());
    }
    fs_err::write(directory.join("report.txt"), text(&report))?;
    Ok(report)
}

/// Formats a report for people.
fn text(report: &Report) -> String {
    let violations = report.violations.iter();
    let violations = violations.map(|text| format!("VIOLATION: {text}"));
    let lines: Vec<String> = violations.chain(report.notes.iter().cloned()).collect();
    lines.join("\n")
}

fn scenario(shared: Arc<Shared>) -> Scenario {
    Scenario {
        id: "chaos/seed",
        test_id: None,
        title: format!("what seed {} brings", shared.plan.seed),
        labels: Vec::new(),
        needs: Vec::new(),
        body: suite::scenario::body(move |context| {
            let shared = Arc::clone(&shared);
            async move { story(context, &shared).await }.boxed_local()
        }),
    }
}

async fn story(context: &Context, shared: &Shared) -> Result<(), StepError> {
    let client = context.client();
    let recorder = &shared.recorder;
    let churn = Churn::new(client.clone(), &context.namespace, recorder.clone()).await;
    let churn = churn.map_err(|error| failed(&error))?;
    let objects = wanted::read(&client).await?;
    let levels = log_levels(&client).await?;
    let _following = recorder.follow(&client);
    reached(shared, "faults");
    let (changed, ()) = tokio::join!(
        churn.play(&shared.plan.churn),
        inject::play(&client, &shared.faults, &shared.plan.faults.steps, recorder),
    );
    changed.map_err(|error| failed(&error))?;
    reached(shared, "settling");
    let restored = churn.restore(&levels).await;
    restored.map_err(|error| failed(&error))?;
    let expected = Expected {
        objects: &objects,
        kubeconfig: shared.kubeconfig.as_deref(),
    };
    let mut wrong = end::settles(context, expected).await;
    reached(shared, "end");
    let mut report = recorder.with(check::recording);
    report.violations.append(&mut wrong);
    report.notes.push(recorder.with(injected));
    *shared.report.lock() = report;
    churn.clear().await.map_err(|error| failed(&error))?;
    // the engine compares the NRTs with those before, afterwards
    context.settle().await.map(drop)
}

fn reached(shared: &Shared, part: &str) {
    shared.recorder.add(Entry::Reached {
        part: part.to_owned(),
    });
    note(&format!("seed {}: {part}", shared.plan.seed));
}

fn failed(error: &dyn std::error::Error) -> StepError {
    StepError::fail(suite::context::chain(error))
}

/// Says how many faults could be injected, and how many could not.
fn injected(lines: &[recording::Line]) -> String {
    let outcomes = || {
        lines.iter().filter_map(|line| match &line.entry {
            Entry::FaultEnded { outcome, .. } => Some(outcome),
            _ => None,
        })
    };
    let failures: Vec<&str> = outcomes()
        .filter_map(|outcome| outcome.as_ref().err())
        .map(String::as_str)
        .collect();
    let done = outcomes().count() - failures.len();
    format!(
        "{done} faults were injected, {} were not: {}",
        failures.len(),
        failures.join("; ")
    )
}

/// Returns the log levels of the two custom resources; null where none is set.
async fn log_levels(client: &Client) -> kube::Result<Vec<(Edited, Value)>> {
    let operators: Api<NumaResourcesOperator> = Api::all(client.clone());
    let schedulers: Api<NumaResourcesScheduler> = Api::all(client.clone());
    let operator = operators.get(names::OPERATOR_CR).await?;
    let scheduler = schedulers.get(names::SCHEDULER_CR).await?;
    let level = |object: Result<Value, _>| {
        let object = object.map_err(kube::Error::SerdeError)?;
        Ok::<_, kube::Error>(object["spec"]["logLevel"].clone())
    };
    Ok(vec![
        (Edited::Operator, level(serde_json::to_value(operator))?),
        (Edited::Scheduler, level(serde_json::to_value(scheduler))?),
    ])
}

/// Returns the directory of a seed's recording and reports, below the directory of all.
pub fn directory_of(all: &Path, lane: Lane, seed: u64) -> PathBuf {
    all.join(format!("{}-{seed}", lane.name()))
}
