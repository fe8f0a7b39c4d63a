//! A whole run, from options to an outcome: the part that the command line and the tests share.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use reports::event::{Event, SkipClass, Verdict};
use reports::junit::Junit;
use reports::stream::{Reader, Shared, Stream};
use reports::summary::Summary;
use tokio::time::Instant;

use crate::interrupt::Interrupt;
use crate::recorder::millis;
use crate::scenario::Scenario;
use crate::session::{Session, StartError};
use crate::setup::{Lane, Options};

/// Name of the `JUnit` suite and stem of its file, the same as in the original's runner.
pub const SUITE: &str = "e2e-serial-run";

/// How a run ended; each has its exit code (README.tests.md).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All selected scenarios that could run passed, and at least one did.
    Passed,
    /// The set-up or tear-down failed.
    SetupFailed,
    /// A scenario failed, or none could run.
    ScenarioFailed,
    /// Stopped from outside.
    Interrupted,
}

impl Outcome {
    /// Returns the exit code of the program.
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Passed => 0,
            Self::SetupFailed => 1,
            Self::ScenarioFailed => 2,
            Self::Interrupted => 130,
        }
    }
}

/// Where reports are written.
#[derive(Clone, Debug)]
pub struct Places {
    /// Directory of all reports.
    pub artifacts: PathBuf,
    /// The `JUnit` file.
    pub report: PathBuf,
}

impl Places {
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
    places: &Places,
    more: Vec<Box<dyn Reader>>,
) -> Result<(Stream, Shared<Summary>), reports::log::Error> {
    let summary = Shared::new(Summary::default());
    let mut readers: Vec<Box<dyn Reader>> = vec![
        Box::new(reports::log::Writer::create(&places.events())?),
        Box::new(Junit::new(&places.report, SUITE)),
        Box::new(summary.clone()),
    ];
    readers.extend(more);
    Ok((Stream::new(readers), summary))
}

/// Builds the event with what is known before anything starts.
pub fn started(options: &Options, selected: usize, places: &Places) -> Event {
    let lane = match &options.lane {
        Lane::Own(lane) => lane.name().to_owned(),
        Lane::Kubeconfig(path) => format!("kubeconfig {}", path.display()),
    };
    Event::RunStarted {
        run: options.run.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        selected,
        facts: BTreeMap::from([
            ("cluster".to_owned(), lane),
            ("report".to_owned(), places.report.display().to_string()),
            ("events".to_owned(), places.events().display().to_string()),
        ]),
    }
}

/// Runs the selected scenarios. `prepare` may break the cluster on purpose before the first one.
pub async fn run(
    options: &Options,
    scenarios: &[Scenario],
    selected: &[bool],
    places: &Places,
    stream: &Stream,
    interrupt: &Interrupt,
    prepare: impl AsyncFnOnce(&Session) -> Result<(), String>,
) -> Outcome {
    let begun = Instant::now();
    let chosen: Vec<&Scenario> = scenarios
        .iter()
        .zip(selected)
        .filter(|(_, selected)| **selected)
        .map(|(scenario, _)| scenario)
        .collect();
    stream.emit(started(options, chosen.len(), places));
    for (scenario, _) in scenarios
        .iter()
        .zip(selected)
        .filter(|(_, selected)| !**selected)
    {
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
    let outcome = match Box::pin(Session::start(
        options,
        stream,
        interrupt,
        &places.artifacts,
    ))
    .await
    {
        Err(StartError::Interrupted) => Outcome::Interrupted,
        Err(StartError::Failed(_)) => Outcome::SetupFailed,
        Ok(session) => match prepare(&session).await {
            Err(message) => {
                let failure = reports::event::Failure {
                    message,
                    ..reports::event::Failure::default()
                };
                stream.emit(Event::PhaseFailed {
                    unit: reports::event::SETUP.to_owned(),
                    failure,
                });
                session.finish().await;
                Outcome::SetupFailed
            }
            Ok(()) => all(session, &chosen, interrupt).await,
        },
    };
    stream.emit(Event::RunFinished {
        interrupted: outcome == Outcome::Interrupted,
        duration_ms: millis(begun.elapsed()),
    });
    outcome
}

async fn all(session: Session, chosen: &[&Scenario], interrupt: &Interrupt) -> Outcome {
    let mut verdicts = Vec::new();
    for scenario in chosen {
        verdicts.push(session.run(scenario).await);
    }
    let finished = session.finish().await;
    if interrupt.asked() {
        Outcome::Interrupted
    } else if verdicts.iter().any(Verdict::is_failed) || !verdicts.iter().any(Verdict::is_passed) {
        Outcome::ScenarioFailed
    } else if finished {
        Outcome::Passed
    } else {
        Outcome::SetupFailed
    }
}

/// Makes a short identity that no other run has.
pub fn new_run_id() -> String {
    let id = uuid::Uuid::new_v4().simple().to_string();
    id[..8].to_owned()
}
