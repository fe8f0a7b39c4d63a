//! The events of a run.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// One line of the stream: an event with its position and time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Position in the stream, from 0 without gaps.
    pub seq: u64,
    /// When the event was recorded.
    pub at: Timestamp,
    /// The event.
    pub event: Event,
}

/// The part of a run that steps, changes and artefacts belong to: a scenario's id, or one of the names below.
pub type Unit = String;

/// Unit of everything before the first scenario. The second cluster of a run has `setup 2`, and so on.
pub const SETUP: &str = "setup";
/// Unit of everything after the last scenario. The second cluster of a run has `teardown 2`, and so on.
pub const TEARDOWN: &str = "teardown";
/// Unit of a stack that died while scenarios ran. That of the second cluster of a run is `stack 2`, and so on.
pub const STACK: &str = "stack";
/// Unit of the comparison of the run's skips with the list of expected ones, after the last scenario.
pub const SKIPS: &str = "skips";

/// Returns whether a unit is the set-up of a cluster.
pub fn is_setup(unit: &str) -> bool {
    unit.split(' ').next() == Some(SETUP)
}

/// Returns whether a unit is the stack on a cluster.
pub fn is_stack(unit: &str) -> bool {
    unit.split(' ').next() == Some(STACK)
}

/// Returns whether a unit is the set-up or the tear-down of a cluster, or its stack, not a scenario.
pub fn is_phase(unit: &str) -> bool {
    is_setup(unit) || is_stack(unit) || unit.split(' ').next() == Some(TEARDOWN)
}

fn setup() -> Unit {
    SETUP.to_owned()
}

/// An event of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Event {
    /// First event of a run.
    RunStarted {
        /// Identity of the run; also the value of the label on every object that the run creates.
        run: String,
        /// Version of the suite.
        version: String,
        /// The selected scenarios, in the order of the catalogue.
        plan: Vec<ScenarioInfo>,
        /// What is known before anything starts (lane, options).
        facts: BTreeMap<String, String>,
    },
    /// Facts of the cluster, found during the set-up.
    FactsFound {
        /// The set-up, which is over with this.
        #[serde(default = "setup")]
        unit: Unit,
        /// Name → value, for people.
        facts: BTreeMap<String, String>,
    },
    /// The set-up or the tear-down failed, or the skips are not those that are expected. After a failed set-up no scenario can give a verdict.
    PhaseFailed {
        /// The set-up, the tear-down or the comparison, which is over with this.
        unit: Unit,
        /// What went wrong.
        failure: Failure,
    },
    /// A scenario begins.
    ScenarioStarted {
        /// Which one.
        scenario: ScenarioInfo,
    },
    /// A step begins.
    StepStarted {
        /// Where it belongs.
        unit: Unit,
        /// Number within the unit, from 1.
        step: u32,
        /// What is done or expected, as a claim.
        title: String,
    },
    /// Something worth reporting while a step runs, such as a line of a build.
    Noted {
        /// Where it belongs.
        unit: Unit,
        /// One line.
        text: String,
    },
    /// A step has been waiting for a while; repeated when what is missing changes.
    Waiting {
        /// Where it belongs.
        unit: Unit,
        /// Number within the unit.
        step: u32,
        /// What is still missing.
        what: String,
        /// How long it has been waiting, in milliseconds.
        waited_ms: u64,
    },
    /// A step is over.
    StepFinished {
        /// Where it belongs.
        unit: Unit,
        /// Number within the unit.
        step: u32,
        /// How it went.
        outcome: StepOutcome,
        /// How long it took, in milliseconds.
        duration_ms: u64,
    },
    /// The run works on a cluster that was given to it, and may change it from now on. What it changes outlives the process.
    ClusterClaimed {
        /// Where it belongs.
        unit: Unit,
        /// Identity of the cluster: nobody else's changes are to be undone with this log.
        cluster: String,
        /// The kubeconfig files with which it is reached; none inside a pod of the cluster.
        kubeconfig: Vec<String>,
    },
    /// Something is about to be created or changed. Recorded before the call, so that it can be undone whatever follows.
    ChangePlanned {
        /// Where it belongs.
        unit: Unit,
        /// Number within the unit, from 1.
        change: u32,
        /// What is changed, for people (`create Pod ns/name`).
        what: String,
        /// How to undo it, as data of the engine that recorded it.
        undo: serde_json::Value,
    },
    /// A change was undone, or could not be.
    ChangeUndone {
        /// Where it belongs.
        unit: Unit,
        /// Number within the unit.
        change: u32,
        /// Why it could not be undone.
        error: Option<String>,
    },
    /// All changes of a unit so far are to stay.
    ChangesKept {
        /// Where they belong.
        unit: Unit,
    },
    /// A cleanup after the run left nothing of it on the cluster that was given to it.
    ClusterFreed {
        /// Where it belongs.
        unit: Unit,
    },
    /// A file with details was written.
    ArtifactWritten {
        /// Where it belongs.
        unit: Unit,
        /// Path of the file.
        path: String,
    },
    /// A scenario is over. Scenarios that never ran have this event without a start.
    ScenarioFinished {
        /// Which one.
        scenario: ScenarioInfo,
        /// How it went.
        verdict: Verdict,
        /// How long it took, in milliseconds.
        duration_ms: u64,
    },
    /// Last event of a run.
    RunFinished {
        /// Whether the run ended before all selected scenarios had run.
        interrupted: bool,
        /// How long everything took, in milliseconds.
        duration_ms: u64,
        /// Exit code of the program.
        exit_code: u8,
    },
}

/// What a report shows about a scenario besides its verdict.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScenarioInfo {
    /// Stable id, `area/name`.
    pub id: String,
    /// Title of the scenario in the catalogue that it comes from.
    pub title: String,
    /// Number in the tracker that the catalogue refers to.
    pub test_id: Option<u32>,
    /// Labels.
    pub labels: Vec<String>,
}

impl ScenarioInfo {
    /// Returns the part of the id before the slash.
    pub fn area(&self) -> &str {
        self.id
            .split_once('/')
            .map_or(self.id.as_str(), |(area, _)| area)
    }
}

/// How a step went.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StepOutcome {
    /// As expected.
    Passed {
        /// What was seen, if it is worth reporting.
        seen: Option<String>,
    },
    /// Not as expected.
    Failed(Failure),
    /// The step found that the scenario cannot run here.
    Skipped {
        /// Why.
        reason: String,
    },
    /// Stopped from outside.
    Interrupted,
}

/// What did not go as expected.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// Title of the step that failed.
    pub step: String,
    /// What is wrong, in one line.
    pub message: String,
    /// What was expected.
    pub expected: Option<String>,
    /// What was seen instead.
    pub seen: Option<String>,
    /// More lines: events, logs, differences.
    pub details: Vec<String>,
    /// Directory with everything that was collected about the failure.
    pub artifacts: Option<String>,
}

impl fmt::Display for Failure {
    /// Writes all parts, one per line: the text that every view shows.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.message)?;
        if !self.step.is_empty() {
            write!(f, "\nstep:      {}", self.step)?;
        }
        if let Some(expected) = &self.expected {
            write!(f, "\nexpected:  {expected}")?;
        }
        if let Some(seen) = &self.seen {
            write!(f, "\nseen:      {seen}")?;
        }
        for line in &self.details {
            write!(f, "\n{line}")?;
        }
        if let Some(path) = &self.artifacts {
            write!(f, "\nartifacts: {path}")?;
        }
        Ok(())
    }
}

/// Why a scenario did not run to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SkipClass {
    /// It was not selected.
    NotSelected,
    /// The cluster lacks something that the scenario declares as a need.
    PrerequisiteMissing,
    /// The scenario itself found that it cannot give a verdict here.
    RuntimeSkip,
}

impl SkipClass {
    /// Returns the name as reports write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotSelected => "not-selected",
            Self::PrerequisiteMissing => "prerequisite-missing",
            Self::RuntimeSkip => "runtime-skip",
        }
    }
}

/// How a scenario went.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Everything was as expected.
    Passed,
    /// Something was not as expected.
    Failed(Failure),
    /// Did not run, or not to its end, for a reason that is no failure.
    Skipped {
        /// Which kind of reason.
        class: SkipClass,
        /// The reason.
        reason: String,
    },
    /// Stopped from outside; says nothing about the cluster.
    Interrupted {
        /// How far it got.
        reason: String,
    },
}

impl Verdict {
    /// Returns whether the scenario failed.
    pub fn is_failed(&self) -> bool {
        matches!(self, Self::Failed(_))
    }

    /// Returns whether the scenario passed.
    pub fn is_passed(&self) -> bool {
        matches!(self, Self::Passed)
    }
}
