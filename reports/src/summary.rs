//! Verdicts and counts of a run.

use std::collections::BTreeMap;
use std::fmt;

use crate::event::{Event, Record, SkipClass, Verdict};
use crate::stream::Reader;

/// Verdicts so far, by scenario id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    verdicts: BTreeMap<String, Verdict>,
    phase_failed: Option<String>,
    exit_code: Option<u8>,
    duration_ms: u64,
}

/// Counts of a summary. None of them includes scenarios that were not selected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Selected scenarios with a verdict.
    pub total: usize,
    /// Passed.
    pub passed: usize,
    /// Failed.
    pub failed: usize,
    /// Skipped, for a missing prerequisite or at run time.
    pub skipped: usize,
    /// Interrupted, or not started because of an interruption.
    pub interrupted: usize,
}

impl Summary {
    /// Returns the verdicts by scenario id, without scenarios that were not selected.
    pub fn verdicts(&self) -> impl Iterator<Item = (&str, &Verdict)> {
        self.verdicts
            .iter()
            .filter(|(_, verdict)| {
                !matches!(
                    verdict,
                    Verdict::Skipped {
                        class: SkipClass::NotSelected,
                        ..
                    }
                )
            })
            .map(|(id, verdict)| (id.as_str(), verdict))
    }

    /// Returns the verdict of one scenario.
    pub fn verdict(&self, id: &str) -> Option<&Verdict> {
        self.verdicts.get(id)
    }

    /// Returns the exit code of the run, if it has come to its end.
    pub fn exit_code(&self) -> Option<u8> {
        self.exit_code
    }

    /// Returns why the set-up or tear-down failed.
    pub fn phase_failure(&self) -> Option<&str> {
        self.phase_failed.as_deref()
    }

    /// Returns the counts.
    pub fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for (_, verdict) in self.verdicts() {
            counts.total += 1;
            match verdict {
                Verdict::Passed => counts.passed += 1,
                Verdict::Failed(_) => counts.failed += 1,
                Verdict::Skipped { .. } => counts.skipped += 1,
                Verdict::Interrupted { .. } => counts.interrupted += 1,
            }
        }
        counts
    }
}

impl Reader for Summary {
    fn read(&mut self, record: &Record) {
        match &record.event {
            Event::ScenarioFinished {
                scenario, verdict, ..
            } => {
                self.verdicts.insert(scenario.id.clone(), verdict.clone());
            }
            Event::PhaseFailed { unit, failure } => {
                self.phase_failed
                    .get_or_insert_with(|| format!("{unit}: {failure}"));
            }
            Event::RunFinished {
                duration_ms,
                exit_code,
                ..
            } => {
                self.exit_code = Some(*exit_code);
                self.duration_ms = *duration_ms;
            }
            _ => {}
        }
    }
}

impl fmt::Display for Summary {
    /// Writes `21 scenarios: 19 passed, 1 failed, 1 skipped in 2 min 3 s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = self.counts();
        write!(
            f,
            "{} scenario{}: {} passed, {} failed, {} skipped",
            counts.total,
            if counts.total == 1 { "" } else { "s" },
            counts.passed,
            counts.failed,
            counts.skipped
        )?;
        if counts.interrupted > 0 {
            write!(f, ", {} interrupted", counts.interrupted)?;
        }
        if self.duration_ms > 0 {
            write!(f, " in {}", human_duration(self.duration_ms))?;
        }
        Ok(())
    }
}

/// Formats a duration for people: `0.3 s`, `12.5 s`, `2 min 3 s`.
pub(crate) fn human_duration(ms: u64) -> String {
    if ms < 60_000 {
        return format!("{}.{} s", ms / 1000, ms % 1000 / 100);
    }
    let seconds = ms / 1000;
    format!("{} min {} s", seconds / 60, seconds % 60)
}
