//! The terminal view: shows every step when it occurs.

use std::collections::BTreeMap;
use std::io::{self, Write};

use owo_colors::OwoColorize;

use crate::event::{Event, Record, SkipClass, StepOutcome, Verdict, is_phase};
use crate::stream::Reader;
use crate::summary::{Summary, human_duration};

/// Writes the run for people. Colours are always written; the given writer must strip them where they are not wanted.
#[derive(Debug)]
pub struct Terminal<W> {
    out: W,
    verbose: bool,
    selected: usize,
    started: usize,
    /// Number and title of the step that runs in each unit.
    steps: BTreeMap<String, (u32, String)>,
    summary: Summary,
}

impl<W: Write> Terminal<W> {
    /// Creates a view that writes to `out`. A verbose view also shows the start of each step, changes and artefacts.
    pub fn new(out: W, verbose: bool) -> Self {
        Self {
            out,
            verbose,
            selected: 0,
            started: 0,
            steps: BTreeMap::new(),
            summary: Summary::default(),
        }
    }

    fn show(&mut self, event: &Event) -> io::Result<()> {
        let out = &mut self.out;
        match event {
            Event::RunStarted {
                run,
                version,
                plan,
                facts,
            } => {
                self.selected = plan.len();
                writeln!(out, "{} {version}, run {run}", "numaresources-tests".bold())?;
                show_facts(out, facts)?;
            }
            Event::FactsFound { facts, .. } => show_facts(out, facts)?,
            Event::PhaseFailed { unit, failure } => {
                writeln!(
                    out,
                    "{} {}",
                    format!("{unit} failed:").red().bold(),
                    indent(&failure.to_string(), 4).trim_start()
                )?;
            }
            Event::ScenarioStarted { scenario } => {
                self.started += 1;
                let place = format!("[{}/{}]", self.started, self.selected);
                writeln!(out, "\n{} {}", place.dimmed(), scenario.id.bold())?;
                if self.verbose {
                    writeln!(out, "  {}", scenario.title.dimmed())?;
                }
            }
            Event::StepStarted { unit, step, title } => self.step_started(unit, *step, title)?,
            Event::Noted { text, .. } => writeln!(out, "    {}", text.dimmed())?,
            Event::Waiting {
                unit,
                what,
                waited_ms,
                ..
            } => {
                let title = self.steps.get(unit).map_or("", |(_, title)| title.as_str());
                let waited = format!("(waiting for {})", human_duration(*waited_ms));
                let waited = waited.yellow();
                writeln!(out, "  {} {title} {waited}: {what}", "…".yellow())?;
            }
            Event::StepFinished {
                unit,
                outcome,
                duration_ms,
                ..
            } => self.step_finished(unit, outcome, *duration_ms)?,
            Event::ChangePlanned { what, .. } if self.verbose => {
                writeln!(out, "    {} {what}", "+".dimmed())?;
            }
            Event::ChangeUndone {
                change,
                error: Some(error),
                ..
            } => {
                let text = format!("change {change} could not be undone: {error}");
                writeln!(out, "    {}", text.red())?;
            }
            Event::ArtifactWritten { path, .. } if self.verbose => {
                writeln!(out, "    wrote {path}")?;
            }
            Event::ScenarioFinished {
                scenario,
                verdict,
                duration_ms,
            } => self.scenario_finished(&scenario.id, verdict, *duration_ms)?,
            Event::RunFinished { interrupted, .. } => self.run_finished(*interrupted)?,
            Event::ClusterClaimed { .. }
            | Event::ChangePlanned { .. }
            | Event::ChangeUndone { .. }
            | Event::ChangesKept { .. }
            | Event::ClusterFreed { .. }
            | Event::ArtifactWritten { .. } => {}
        }
        self.out.flush()
    }

    fn step_started(&mut self, unit: &str, step: u32, title: &str) -> io::Result<()> {
        let before = self.steps.insert(unit.to_owned(), (step, title.to_owned()));
        let phase = is_phase(unit);
        if before.is_none() && phase {
            writeln!(self.out, "\n{}", unit.bold())?;
        }
        // steps of the phases may take minutes; those of a scenario are shown when they are over
        if phase || self.verbose {
            writeln!(self.out, "  {} {title}", "·".dimmed())?;
        }
        Ok(())
    }

    fn step_finished(
        &mut self,
        unit: &str,
        outcome: &StepOutcome,
        duration_ms: u64,
    ) -> io::Result<()> {
        let out = &mut self.out;
        let title = self.steps.get(unit).map_or("", |(_, title)| title.as_str());
        let took = format!("({})", human_duration(duration_ms));
        match outcome {
            StepOutcome::Passed { seen } => {
                write!(out, "  {} {title} {}", "✓".green(), took.dimmed())?;
                if let Some(seen) = seen {
                    write!(out, "  {}", seen.dimmed())?;
                }
                writeln!(out)
            }
            StepOutcome::Failed(failure) => {
                writeln!(out, "  {} {title} {}", "✗".red(), took.dimmed())?;
                // a failed phase is shown in full right after this
                if !is_phase(unit) {
                    writeln!(out, "      {}", failure.message.red())?;
                }
                Ok(())
            }
            StepOutcome::Skipped { reason } => {
                writeln!(out, "  {} {title}: {reason}", "-".yellow())
            }
            StepOutcome::Interrupted => {
                writeln!(out, "  {} {title}: interrupted", "!".yellow())
            }
        }
    }

    fn scenario_finished(
        &mut self,
        id: &str,
        verdict: &Verdict,
        duration_ms: u64,
    ) -> io::Result<()> {
        self.steps.remove(id);
        let out = &mut self.out;
        let took = human_duration(duration_ms);
        match verdict {
            Verdict::Passed => writeln!(out, "  {} in {took}", "passed".green().bold()),
            Verdict::Failed(failure) => {
                writeln!(out, "  {} in {took}", "FAILED".red().bold())?;
                writeln!(out, "{}", indent(&failure.to_string(), 6))
            }
            Verdict::Skipped {
                class: SkipClass::NotSelected,
                ..
            } => Ok(()),
            Verdict::Skipped { class, reason } => {
                let (what, class) = ("skipped".yellow(), class.as_str());
                writeln!(out, "  {} {id} ({class}): {reason}", what.bold())
            }
            Verdict::Interrupted { reason } => {
                let what = "interrupted".yellow();
                writeln!(out, "  {} {id}: {reason}", what.bold())
            }
        }
    }

    fn run_finished(&mut self, interrupted: bool) -> io::Result<()> {
        let out = &mut self.out;
        writeln!(out)?;
        for (id, verdict) in self.summary.verdicts() {
            if let Verdict::Failed(failure) = verdict {
                writeln!(out, "{} {id}: {}", "FAILED".red().bold(), failure.message)?;
            }
        }
        if interrupted {
            writeln!(out, "{}", "the run was interrupted".yellow().bold())?;
        }
        writeln!(out, "{}", self.summary.bold())
    }
}

impl<W: Write + Send> Reader for Terminal<W> {
    fn read(&mut self, record: &Record) {
        self.summary.read(record);
        // A closed terminal must not stop the run: the log and the JUnit file continue.
        let _ = self.show(&record.event);
    }
}

fn show_facts(out: &mut impl Write, facts: &BTreeMap<String, String>) -> io::Result<()> {
    let width = facts.keys().map(String::len).max().unwrap_or_default();
    for (name, value) in facts {
        writeln!(out, "  {} {value}", format!("{name:width$}").dimmed())?;
    }
    Ok(())
}

fn indent(text: &str, by: usize) -> String {
    text.lines()
        .map(|line| format!("{:by$}{line}", ""))
        .collect::<Vec<_>>()
        .join("\n")
}

#[cfg(test)]
mod tests;
