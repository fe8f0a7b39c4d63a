//! A whole run, from options to an outcome: the part that the command line and the tests share.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};

use futures::future::join_all;
use reports::changes::OpenChanges;
use reports::event::{Event, Failure, SETUP, ScenarioInfo, SkipClass, Verdict};
use reports::stream::{Reader, Shared, Stream};
use reports::summary::Summary;
use thiserror::Error;
use tokio::time::Instant;

use crate::artifacts;
use crate::environment::Environment;
use crate::interrupt::Interrupt;
use crate::recorder::millis;
use crate::scenario::Scenario;
use crate::session::{Session, StartError};
use crate::setup::{ClusterSource, Options};
use crate::skips::Skips;

pub use crate::artifacts::ReportPaths;

/// How a run ended; each has its exit code (README.tests.md).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All selected scenarios that could run passed, and at least one did.
    Passed,
    /// The set-up or tear-down failed.
    SetupFailed,
    /// The stack died: containers of it do not stay up.
    StackFailed,
    /// A scenario failed, or none could run.
    ScenarioFailed,
    /// All that ran passed, but others were skipped than expected.
    SkipsDiffer,
    /// Stopped from outside.
    Interrupted,
    /// A report is not complete, whatever the scenarios say.
    ReportFailed,
}

impl Outcome {
    /// Returns the exit code of the program.
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Passed => 0,
            Self::SetupFailed | Self::StackFailed | Self::SkipsDiffer | Self::ReportFailed => 1,
            Self::ScenarioFailed => 2,
            Self::Interrupted => 130,
        }
    }
}

/// Why a run did not begin. Nothing was started or changed.
#[derive(Debug, Error)]
pub enum BeginError {
    /// A report cannot be opened.
    #[error(transparent)]
    Open(#[from] artifacts::Error),
    /// A report cannot be written.
    #[error("{0}")]
    Write(String),
}

/// The reports of a run.
pub struct Reports {
    /// Where the events of the run go.
    pub stream: Stream,
    /// Verdicts and counts so far.
    pub summary: Shared<Summary>,
    /// What has to be undone on the cluster that was given to the run.
    pub open: Shared<OpenChanges>,
}

/// Opens the reports of a run, in which everything selected has not run yet. Must be called before anything starts.
pub fn begin(
    options: &Options,
    plan: Vec<ScenarioInfo>,
    paths: &ReportPaths,
    more: Vec<Box<dyn Reader>>,
) -> Result<Reports, BeginError> {
    let (summary, open) = (Shared::default(), Shared::default());
    let (log, [report, own]) = paths.open()?;
    let mut readers: Vec<Box<dyn Reader>> = vec![
        Box::new(log),
        Box::new(report),
        Box::new(own),
        Box::new(summary.clone()),
        Box::new(open.clone()),
    ];
    readers.extend(more);
    let stream = Stream::new(readers);
    stream.emit(started(options, plan, paths));
    match stream.failures().first() {
        Some(failure) => Err(BeginError::Write(failure.clone())),
        None => Ok(Reports {
            stream,
            summary,
            open,
        }),
    }
}

/// Builds the event with what is known before anything starts.
fn started(options: &Options, plan: Vec<ScenarioInfo>, paths: &ReportPaths) -> Event {
    let cluster = match &options.cluster {
        ClusterSource::Own(lane) if options.clusters > 1 => {
            format!("{} clusters, {}", options.clusters, lane.name())
        }
        ClusterSource::Own(lane) => lane.name().to_owned(),
        ClusterSource::Kubeconfig(kubeconfig) => kubeconfig.to_string(),
    };
    let mut facts = BTreeMap::from([
        ("cluster".to_owned(), cluster),
        ("report".to_owned(), paths.report.display().to_string()),
        ("events".to_owned(), paths.events().display().to_string()),
    ]);
    if let Some(seed) = options.seed {
        facts.insert("order".to_owned(), format!("--shuffle={seed}"));
    }
    Event::RunStarted {
        run: options.run.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        plan,
        facts,
    }
}

/// Ends the reports of a run. Returns how it ended: a run whose reports are not complete is not a good one.
pub fn conclude(stream: &Stream, outcome: Outcome, begun: Instant) -> Outcome {
    let of_reports = || {
        if stream.failures().is_empty() {
            outcome
        } else {
            Outcome::ReportFailed
        }
    };
    stream.emit(Event::RunFinished {
        interrupted: outcome == Outcome::Interrupted,
        duration_ms: millis(begun.elapsed()),
        exit_code: of_reports().exit_code(),
    });
    of_reports()
}

/// What a run consists of.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// How its clusters are prepared, and how many there are.
    pub options: &'a Options,
    /// All scenarios of the catalogue.
    pub scenarios: &'a [Scenario],
    /// Which of them run.
    pub selected: &'a [bool],
    /// The skips that are expected, if others are to make the run fail.
    pub skips: Option<&'a Skips>,
    /// Where reports are written.
    pub paths: &'a ReportPaths,
    /// Where its events go.
    pub stream: &'a Stream,
    /// How it is stopped from outside.
    pub interrupt: &'a Interrupt,
}

/// Runs the selected scenarios on all clusters of the options at the same time. `prepare` may break each cluster on purpose before its first
/// scenario.
pub async fn run(run: &Run<'_>, prepare: impl AsyncFn(&Session) -> Result<(), String>) -> Outcome {
    let Run {
        options,
        scenarios,
        selected,
        skips,
        paths,
        stream,
        interrupt,
    } = *run;
    let begun = Instant::now();
    let (chosen, others): (Vec<_>, Vec<_>) = scenarios
        .iter()
        .zip(selected)
        .partition(|(_, selected)| **selected);
    for (scenario, _) in others {
        let verdict = Verdict::Skipped {
            class: SkipClass::NotSelected,
            reason: String::new(),
        };
        stream.emit(Event::ScenarioFinished {
            scenario: scenario.info(),
            verdict,
            duration_ms: 0,
        });
    }
    let left = Left {
        scenarios: RefCell::new(chosen.into_iter().map(|(scenario, _)| scenario).collect()),
        verdicts: RefCell::default(),
        stack_failed: Cell::new(false),
        environment: RefCell::default(),
    };
    let clusters = (1..=options.clusters).map(|number| {
        let options = Options {
            number,
            ..options.clone()
        };
        let (left, prepare) = (&left, &prepare);
        async move {
            let started = Box::pin(Session::start(
                &options,
                stream,
                interrupt,
                &paths.artifacts,
            ));
            match started.await {
                Ok(session) => one_cluster(session, &options, left, stream, prepare).await,
                Err(StartError::Interrupted | StartError::Failed(_)) => false,
            }
        }
    });
    let in_order = join_all(clusters).await.into_iter().all(|is| is);
    let stack_failed = left.stack_failed.get();
    let verdicts = left.verdicts.into_inner();
    let is_whole = !(interrupt.is_stop_requested() || stack_failed);
    let skips = skips.filter(|_| is_whole);
    let as_listed = are_as_listed(skips, left.environment.into_inner(), &verdicts, stream);
    let ended = Ended {
        in_order,
        as_listed,
        stack_failed,
    };
    let verdicts = verdicts.iter().map(|(_, verdict)| verdict);
    conclude(stream, outcome(interrupt, ended, verdicts), begun)
}

/// What the clusters of a run share.
struct Left<'a> {
    /// The scenarios that have not begun.
    scenarios: RefCell<VecDeque<&'a Scenario>>,
    /// What became of the others, by their ids.
    verdicts: RefCell<Vec<(&'a str, Verdict)>>,
    /// Where they run, once a cluster is ready; all clusters of a run are alike.
    environment: RefCell<Option<Environment>>,
    /// Whether the stack on one of the clusters died.
    stack_failed: Cell<bool>,
}

impl Left<'_> {
    /// Leaves out all scenarios that have not begun.
    fn leave_out(&self, stream: &Stream) {
        for scenario in self.scenarios.take() {
            let verdict = Verdict::Interrupted {
                reason: "it did not run, because the stack had died".to_owned(),
            };
            stream.emit(Event::ScenarioFinished {
                scenario: scenario.info(),
                verdict,
                duration_ms: 0,
            });
        }
    }
}

/// Runs scenarios on one cluster as long as there are any. Returns whether set-up and tear-down were as they have to be.
async fn one_cluster(
    session: Session,
    options: &Options,
    left: &Left<'_>,
    stream: &Stream,
    prepare: impl AsyncFn(&Session) -> Result<(), String>,
) -> bool {
    let prepared = prepare(&session).await;
    if let Err(message) = prepared {
        let failure = Failure {
            message,
            ..Failure::default()
        };
        let unit = options.unit(SETUP);
        stream.emit(Event::PhaseFailed { unit, failure });
        session.finish().await;
        return false;
    }
    let environment = session.cluster().facts.environment;
    left.environment.replace(Some(environment));
    loop {
        // the borrow ends before the scenario begins
        let next = left.scenarios.borrow_mut().pop_front();
        let Some(scenario) = next else { break };
        let verdict = session.run(scenario).await;
        left.verdicts.borrow_mut().push((scenario.id, verdict));
        if session.stack_failure().is_some() {
            left.stack_failed.set(true);
            left.leave_out(stream);
        }
    }
    session.finish().await
}

/// Compares the skips of a run with those that are expected, if there is a list and a cluster was ready.
pub(crate) fn are_as_listed(
    skips: Option<&Skips>,
    environment: Option<Environment>,
    verdicts: &[(&str, Verdict)],
    stream: &Stream,
) -> bool {
    let Some((skips, environment)) = skips.zip(environment) else {
        return true;
    };
    let verdicts = verdicts.iter().map(|(id, verdict)| (*id, verdict));
    skips.check(environment, verdicts, stream)
}

/// What is known at the end of a run besides its verdicts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    /// Whether set-up and tear-down were as they have to be.
    pub(crate) in_order: bool,
    /// Whether the skips were as expected.
    pub(crate) as_listed: bool,
    /// Whether the stack died.
    pub(crate) stack_failed: bool,
}

/// A scenario that failed says more than a tear-down that did, and both less than a set-up without which none ran.
pub(crate) fn outcome<'a>(
    interrupt: &Interrupt,
    ended: Ended,
    verdicts: impl Iterator<Item = &'a Verdict>,
) -> Outcome {
    let Ended {
        in_order,
        as_listed,
        stack_failed,
    } = ended;
    let verdicts: Vec<&Verdict> = verdicts.collect();
    if interrupt.is_stop_requested() {
        Outcome::Interrupted
    } else if stack_failed {
        Outcome::StackFailed
    } else if !in_order && verdicts.is_empty() {
        Outcome::SetupFailed
    } else if verdicts.iter().any(|verdict| verdict.is_failed())
        || !verdicts.iter().any(|verdict| verdict.is_passed())
    {
        Outcome::ScenarioFailed
    } else if !in_order {
        Outcome::SetupFailed
    } else if as_listed {
        Outcome::Passed
    } else {
        Outcome::SkipsDiffer
    }
}
