//! A run of the suite against one build of the stack: which scenarios fail.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use reports::event::{self, Event};
use reports::log;
use serde::{Deserialize, Serialize};
use wait_timeout::ChildExt as _;

/// A run in which so many scenarios failed has noticed the fault; the others would only take time.
const ENOUGH: usize = 5;
/// How often the event log of a run is read.
const LOOK: Duration = Duration::from_secs(2);
/// How long a run that was asked to stop has for its tear-down.
const GRACE: Duration = Duration::from_mins(2);
/// What the time limits of the suite are multiplied with. Nothing on an embedded cluster takes a fifth of them.
const DEADLINES: &str = "0.4";
/// Variables that the suite reads; none of the caller's is meant for these runs.
const VARIABLES: [&str; 4] = ["KUBECONFIG", "NUMARESOURCES_", "KUBEBUILDER_ASSETS", "E2E_"];

/// A part of the catalogue, in the order in which they run: a mutant that one catches does not meet the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Stage {
    /// The scenarios of tier 0.
    Tier0,
    /// Those of tier 0 that do more on OpenShift, or run only there.
    Tier0Openshift,
    /// All others.
    Others,
    /// What needs OpenShift.
    Openshift,
}

impl Stage {
    pub(crate) const ALL: [Self; 4] = [
        Self::Tier0,
        Self::Tier0Openshift,
        Self::Others,
        Self::Openshift,
    ];
    pub(crate) const OF_TIER0: [Self; 2] = [Self::Tier0, Self::Tier0Openshift];

    /// Returns the name for people.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Tier0 => "tier 0",
            Self::Tier0Openshift => "tier 0 on OpenShift",
            Self::Others => "the others",
            Self::Openshift => "OpenShift",
        }
    }

    fn directory(self) -> &'static str {
        match self {
            Self::Tier0 => "tier0",
            Self::Tier0Openshift => "tier0-openshift",
            Self::Others => "others",
            Self::Openshift => "openshift",
        }
    }

    /// Returns the arguments that ask for its cluster.
    fn cluster(self) -> &'static [&'static str] {
        match self {
            Self::Tier0 | Self::Others => &[],
            Self::Tier0Openshift | Self::Openshift => {
                &["--flavour", "openshift", "--schedulable-control-plane"]
            }
        }
    }

    /// Returns the arguments that select its scenarios.
    fn selection(self) -> &'static [&'static str] {
        match self {
            Self::Tier0 => &["--label", "tier0"],
            Self::Tier0Openshift => &["--label", "tier0", "--focus", "^(config|install|tls)/"],
            Self::Others => &["--label", "!tier0"],
            Self::Openshift => &["--focus", "^(config|tls|upgrade)/"],
        }
    }

    /// Returns the stage in which a scenario runs that is not of tier 0.
    pub(crate) fn of(scenario: &str) -> Self {
        let (group, _) = scenario.split_once('/').unwrap_or_default();
        if ["config", "tls", "upgrade"].contains(&group) {
            Self::Openshift
        } else {
            Self::Others
        }
    }

    /// Returns the time after which a run hangs: several times what a run takes in which nothing fails.
    fn limit(self) -> Duration {
        match self {
            Self::Tier0 | Self::Tier0Openshift => Duration::from_mins(20),
            Self::Others | Self::Openshift => Duration::from_hours(1),
        }
    }
}

/// What a run has shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Seen {
    /// Which part of the catalogue it was.
    pub(crate) stage: Stage,
    /// The scenarios that failed, and the phases: `set-up`, `stack`, `tear-down`.
    pub(crate) failed: BTreeSet<String>,
    /// Whether it came to its end.
    pub(crate) whole: bool,
}

impl Seen {
    /// Starts a list of runs of the same part.
    pub(crate) fn nothing_failed(stage: Stage) -> Self {
        Self {
            stage,
            failed: BTreeSet::new(),
            whole: true,
        }
    }

    /// Adds what another run of the same part has shown.
    pub(crate) fn add(&mut self, other: Self) {
        self.failed.extend(other.failed);
        self.whole &= other.whole;
    }
}

/// A run of the suite that is to be made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trial<'a> {
    /// The suite's program.
    pub(crate) suite: &'a Path,
    /// Directory of the programs under test.
    pub(crate) bin_dir: &'a Path,
    /// Directory for reports.
    pub(crate) artifacts: &'a Path,
}

impl Trial<'_> {
    /// Runs a part of the catalogue, or only some scenarios of it, until enough have failed or its time is over.
    ///
    /// # Errors
    /// Returns an error if the run says nothing about the programs: it cannot be started, or it ended without a reason.
    pub(crate) fn run(&self, stage: Stage, only: &[&str]) -> anyhow::Result<Seen> {
        let dir = self.artifacts.join(stage.directory());
        // of a run before
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).with_context(|| format!("making {}", dir.display()))?;
        let output = dir.join("output.txt");
        let out =
            File::create(&output).with_context(|| format!("creating {}", output.display()))?;
        let mut child = self
            .command(stage, only, &dir, out)?
            .spawn()
            .with_context(|| format!("starting {}", self.suite.display()))?;
        let events = dir.join("nrop/events.jsonl");
        let ended = watch(&mut child, &events, stage.limit());
        if ended.is_err() {
            // nothing that was started may outlive the error
            let _ = child.kill();
            let _ = child.wait();
        }
        let ended = ended?;
        let failed = failed(&events);
        let whole = ended.is_some_and(|status| matches!(status.code(), Some(0..=2)));
        if failed.is_empty() && ended.is_some_and(|status| !status.success()) {
            bail!(
                "a run of {} ended without a scenario that failed: look at {} and run it again",
                stage.name(),
                output.display()
            );
        }
        Ok(Seen {
            stage,
            failed,
            whole,
        })
    }

    fn command(
        &self,
        stage: Stage,
        only: &[&str],
        dir: &Path,
        out: File,
    ) -> anyhow::Result<Command> {
        let mut command = Command::new(self.suite);
        for (name, _) in std::env::vars_os() {
            let is_of_suite = name
                .to_str()
                .is_some_and(|name| VARIABLES.iter().any(|variable| name.starts_with(variable)));
            if is_of_suite {
                command.env_remove(name);
            }
        }
        command
            // a scenario that a fault has skipped is red in CI, too
            .args(["--cluster", "embedded", "--strict-skips", "--no-color"])
            // a fault that lets a wait run out costs minutes; the run without a fault has the same limits
            .args(["--deadline-factor", DEADLINES, "--bin-dir"])
            .arg(self.bin_dir)
            .arg("--artifacts")
            .arg(dir)
            .args(stage.cluster())
            .args(if only.is_empty() {
                stage.selection()
            } else {
                only
            })
            .stdin(Stdio::null())
            .stderr(out.try_clone().context("sharing the output of a run")?)
            .stdout(out);
        Ok(command)
    }
}

/// Waits for the end of a run, and stops it when it has shown enough or takes too long. Returns how it ended, or None if it was stopped.
fn watch(child: &mut Child, events: &Path, limit: Duration) -> anyhow::Result<Option<ExitStatus>> {
    let late = Instant::now() + limit;
    loop {
        let ended = child.wait_timeout(LOOK).context("waiting for the suite")?;
        if ended.is_some() {
            return Ok(ended);
        }
        if Instant::now() > late || failed(events).len() >= ENOUGH {
            return stop(child).map(|()| None);
        }
    }
}

/// Asks a run to stop, and ends it if it does not. Its cluster ends with it.
fn stop(child: &mut Child) -> anyhow::Result<()> {
    let pid = i32::try_from(child.id()).context("a process has a number")?;
    // it may have ended just now
    let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
    if child
        .wait_timeout(GRACE)
        .context("waiting for the suite")?
        .is_none()
    {
        child.kill().context("ending the suite")?;
        child.wait().context("waiting for the suite")?;
    }
    Ok(())
}

/// Returns what has failed so far, as the event log has it. A log that is not there yet has nothing.
fn failed(events: &Path) -> BTreeSet<String> {
    let Ok(log) = log::read(events) else {
        return BTreeSet::new();
    };
    log.records
        .into_iter()
        .filter_map(|record| match record.event {
            Event::ScenarioFinished {
                scenario, verdict, ..
            } if verdict.is_failed() => Some(scenario.id),
            Event::PhaseFailed { unit, .. } => Some(phase(&unit).to_owned()),
            _ => None,
        })
        .collect()
}

/// Returns a phase by the name of its kind, whichever of the run's clusters it was on.
fn phase(unit: &str) -> &str {
    if event::is_setup(unit) {
        "set-up"
    } else if event::is_stack(unit) {
        "stack"
    } else if unit == event::SKIPS {
        "skips"
    } else if event::is_phase(unit) {
        "tear-down"
    } else {
        unit
    }
}

#[cfg(test)]
mod tests {
    use reports::event::{Failure, ScenarioInfo, Verdict};
    use reports::log::Writer;
    use reports::stream::Stream;

    use super::*;

    fn write(events: &Path, list: impl IntoIterator<Item = Event>) {
        let log = Writer::create(events).expect("a log");
        let stream = Stream::new(vec![Box::new(log)]);
        for event in list {
            stream.emit(event);
        }
    }

    fn finished(id: &str, verdict: Verdict) -> Event {
        Event::ScenarioFinished {
            scenario: ScenarioInfo {
                id: id.to_owned(),
                ..ScenarioInfo::default()
            },
            verdict,
            duration_ms: 1,
        }
    }

    fn phase_failed(unit: &str) -> Event {
        Event::PhaseFailed {
            unit: unit.to_owned(),
            failure: Failure::default(),
        }
    }

    #[test]
    fn scenarios_and_phases_that_failed_are_named_and_others_are_not() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let events = dir.path().join("events.jsonl");
        assert!(failed(&events).is_empty(), "there is no log yet");
        let interrupted = Verdict::Interrupted {
            reason: "stopped".to_owned(),
        };
        write(
            &events,
            [
                finished("tmpol/a", Verdict::Passed),
                finished("tmpol/b", Verdict::Failed(Failure::default())),
                finished("tmpol/c", interrupted),
                phase_failed("setup 2"),
                phase_failed("stack"),
                phase_failed("teardown"),
                phase_failed("skips"),
            ],
        );
        let names: Vec<String> = failed(&events).into_iter().collect();
        assert_eq!(names, ["set-up", "skips", "stack", "tear-down", "tmpol/b"]);
    }

    fn sleeping() -> Child {
        let mut sleep = Command::new("sleep");
        sleep.arg("600").spawn().expect("a process")
    }

    #[test]
    fn what_one_of_several_runs_has_shown_counts_for_all() {
        let seen = |failed: &[&str], whole| Seen {
            stage: Stage::Tier0,
            failed: failed.iter().map(|&id| id.to_owned()).collect(),
            whole,
        };
        let mut all = Seen::nothing_failed(Stage::Tier0);
        all.add(seen(&[], true));
        assert_eq!(all, seen(&[], true));
        all.add(seen(&["tmpol/a"], false));
        all.add(seen(&[], true));
        assert_eq!(all, seen(&["tmpol/a"], false));
    }

    #[test]
    fn a_run_that_takes_too_long_is_stopped() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let mut child = sleeping();
        let ended = watch(&mut child, &dir.path().join("none"), Duration::ZERO);
        assert_eq!(ended.expect("watched"), None);
        assert!(child.try_wait().expect("waited for").is_some());
    }

    #[test]
    fn a_run_is_stopped_when_enough_scenarios_have_failed() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let events = dir.path().join("events.jsonl");
        let fails = |number| {
            let verdict = Verdict::Failed(Failure::default());
            finished(&format!("tmpol/{number}"), verdict)
        };
        write(&events, (0..ENOUGH).map(fails));
        let mut child = sleeping();
        let ended = watch(&mut child, &events, Duration::from_hours(1));
        assert_eq!(ended.expect("watched"), None);
    }

    #[test]
    fn a_run_that_ends_by_itself_tells_how() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let mut child = Command::new("false").spawn().expect("a process");
        let ended = watch(&mut child, dir.path(), Duration::from_hours(1));
        let status = ended.expect("watched").expect("it ended by itself");
        assert_eq!(status.code(), Some(1));
    }
}
