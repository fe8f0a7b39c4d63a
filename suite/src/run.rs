//! A whole run, from options to an outcome: the part that the command line and the tests share.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};

use futures::future::join_all;
use reports::event::{Event, Failure, SETUP, SkipClass, Verdict};
use reports::junit::Junit;
use reports::stream::{Reader, Shared, Stream};
use reports::summary::Summary;
use tokio::time::Instant;

use crate::environment::Environment;
use crate::interrupt::Interrupt;
use crate::recorder::millis;
use crate::scenario::Scenario;
use crate::session::{Session, StartError};
use crate::setup::{ClusterSource, Options};
use crate::skips::Skips;

/// Name of the `JUnit` suite and stem of its file, the same as in the original's runner.
pub const SUITE: &str = "e2e-serial-run";

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
}

impl Outcome {
    /// Returns the exit code of the program.
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Passed => 0,
            Self::SetupFailed | Self::StackFailed | Self::SkipsDiffer => 1,
            Self::ScenarioFailed => 2,
            Self::Interrupted => 130,
        }
    }
}

/// Where reports are written.
#[derive(Clone, Debug)]
pub struct ReportPaths {
    /// Directory of all reports.
    pub artifacts: PathBuf,
    /// The `JUnit` file.
    pub report: PathBuf,
}

impl ReportPaths {
    /// Places everything below an artefacts directory, as the original's runner does. `report` names another report file.
    pub fn new(artifacts: &Path, report: Option<PathBuf>) -> Self {
        let dir = artifacts.join("nrop");
        Self {
            report: report.unwrap_or_else(|| dir.join(format!("{SUITE}.xml"))),
            artifacts: dir,
        }
    }

    /// Returns the path of the event log.
    pub fn events(&self) -> PathBuf {
        self.artifacts.join("events.jsonl")
    }
}

/// Creates the stream of a run with its standard readers. The summary can be read afterwards.
pub fn stream(
    paths: &ReportPaths,
    more: Vec<Box<dyn Reader>>,
) -> Result<(Stream, Shared<Summary>), reports::log::Error> {
    let summary = Shared::new(Summary::default());
    let mut readers: Vec<Box<dyn Reader>> = vec![
        Box::new(reports::log::Writer::create(&paths.events())?),
        Box::new(Junit::new(&paths.report, SUITE)),
        Box::new(summary.clone()),
    ];
    readers.extend(more);
    Ok((Stream::new(readers), summary))
}

/// Builds the event with what is known before anything starts.
pub fn started(options: &Options, selected: usize, paths: &ReportPaths) -> Event {
    let cluster = match &options.cluster {
        ClusterSource::Own(lane) if options.clusters > 1 => {
            format!("{} clusters, {}", options.clusters, lane.name())
        }
        ClusterSource::Own(lane) => lane.name().to_owned(),
        ClusterSource::Kubeconfig(path) => format!("kubeconfig {}", path.display()),
    };
    Event::RunStarted {
        run: options.run.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        selected,
        facts: BTreeMap::from([
            ("cluster".to_owned(), cluster),
            ("report".to_owned(), paths.report.display().to_string()),
            ("events".to_owned(), paths.events().display().to_string()),
        ]),
    }
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
    stream.emit(started(options, chosen.len(), paths));
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
    let as_listed = match (skips, left.environment.into_inner()) {
        (Some(skips), Some(environment)) if !(interrupt.is_stop_requested() || stack_failed) => {
            let verdicts = verdicts.iter().map(|(id, verdict)| (*id, verdict));
            skips.check(environment, verdicts, stream)
        }
        _ => true,
    };
    let verdicts: Vec<Verdict> = verdicts.into_iter().map(|(_, verdict)| verdict).collect();
    let outcome = if stack_failed && !interrupt.is_stop_requested() {
        Outcome::StackFailed
    } else {
        outcome(interrupt, in_order, as_listed, &verdicts)
    };
    stream.emit(Event::RunFinished {
        interrupted: outcome == Outcome::Interrupted,
        duration_ms: millis(begun.elapsed()),
    });
    outcome
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

/// A scenario that failed says more than a tear-down that did, and both less than a set-up without which none ran.
fn outcome(
    interrupt: &Interrupt,
    in_order: bool,
    as_listed: bool,
    verdicts: &[Verdict],
) -> Outcome {
    if interrupt.is_stop_requested() {
        Outcome::Interrupted
    } else if !in_order && verdicts.is_empty() {
        Outcome::SetupFailed
    } else if verdicts.iter().any(Verdict::is_failed) || !verdicts.iter().any(Verdict::is_passed) {
        Outcome::ScenarioFailed
    } else if !in_order {
        Outcome::SetupFailed
    } else if as_listed {
        Outcome::Passed
    } else {
        Outcome::SkipsDiffer
    }
}
