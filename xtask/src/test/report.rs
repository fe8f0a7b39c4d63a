//! The output of a run of tests: a line for each test or library when it ends, and the sums.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::time::Duration;

use super::job::Job;
use super::output::Outcome;
use super::plan::LeftOut;
use super::run::Done;
use super::seconds;

/// Number of the slowest tests that are shown.
const SLOWEST: usize = 10;

/// Counts of tests.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Totals {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    pub(crate) skipped: usize,
}

impl Totals {
    pub(crate) fn all(self) -> usize {
        self.passed + self.failed + self.skipped
    }

    fn count(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Passed => self.passed += 1,
            Outcome::Failed => self.failed += 1,
            Outcome::Skipped => self.skipped += 1,
        }
    }
}

/// The cost of a target.
#[derive(Clone, Copy, Debug, Default)]
struct Spent {
    totals: Totals,
    wall: Duration,
    processor: Duration,
}

/// Collects the results and prints them.
#[derive(Debug)]
pub(crate) struct Report {
    expected: usize,
    verbose: bool,
    built: Duration,
    totals: Totals,
    targets: BTreeMap<String, Spent>,
    slowest: Vec<(Duration, String)>,
    /// Names and outputs of failed tests.
    failures: Vec<(String, String)>,
}

impl Report {
    pub(crate) fn new(jobs: &[Job], verbose: bool, built: Duration) -> Self {
        Self {
            expected: jobs.iter().map(|job| job.tests.len()).sum(),
            verbose,
            built,
            totals: Totals::default(),
            targets: BTreeMap::new(),
            slowest: Vec::new(),
            failures: Vec::new(),
        }
    }

    /// Prints the result of a job.
    pub(crate) fn add(&mut self, done: Done) {
        let Done {
            job,
            ended,
            verdicts,
        } = done;
        let target = self.targets.entry(job.target.clone()).or_default();
        target.wall += ended.wall;
        target.processor += ended.processor;
        let mut totals = Totals::default();
        for verdict in &verdicts {
            totals.count(verdict.outcome);
            target.totals.count(verdict.outcome);
            self.totals.count(verdict.outcome);
        }
        if job.is_batch {
            let word = if totals.failed > 0 { "FAILED" } else { "ok" };
            let skipped = if totals.skipped > 0 {
                format!(", {} skipped", totals.skipped)
            } else {
                String::new()
            };
            self.line(
                word,
                ended.wall,
                &format!(
                    "{}: {} passed, {} failed{skipped}",
                    job.id, totals.passed, totals.failed
                ),
            );
        }
        for verdict in verdicts {
            let id = format!("{}/{}", job.target, verdict.name);
            let word = match verdict.outcome {
                Outcome::Passed => "ok",
                Outcome::Failed => "FAILED",
                Outcome::Skipped => "skipped",
            };
            if !job.is_batch || self.verbose || verdict.failed() {
                self.line(word, verdict.took, &id);
            }
            if verdict.failed() {
                write(&indented(&verdict.output));
                self.failures.push((id.clone(), verdict.output));
            }
            self.slowest.push((verdict.took, id));
        }
    }

    fn line(&self, word: &str, took: Duration, what: &str) {
        let done = self.totals.all();
        write(&format!(
            "[{done:>4}/{}] {word:<7} {:>8}  {what}\n",
            self.expected,
            seconds(took)
        ));
    }

    /// Prints the sums; the last line has the counts. `idle` is the share of the run in which the processors had nothing to do.
    pub(crate) fn close(
        mut self,
        left_out: &LeftOut,
        begun: Duration,
        idle: Option<f64>,
    ) -> Totals {
        let mut text = String::from("\ntarget                        tests      time  processor\n");
        for (target, spent) in &self.targets {
            let _ = writeln!(
                text,
                "  {target:<26} {:>6} {:>9} {:>10}",
                spent.totals.all(),
                seconds(spent.wall),
                seconds(spent.processor)
            );
        }
        text.push_str("\nslowest\n");
        self.slowest.sort_by(|one, other| other.cmp(one));
        for (took, id) in self.slowest.iter().take(SLOWEST) {
            let _ = writeln!(text, "  {:>8}  {id}", seconds(*took));
        }
        if !self.failures.is_empty() {
            let _ = writeln!(text, "\nfailed ({}), once more", self.failures.len());
            for (id, output) in &self.failures {
                let _ = write!(text, "  {id}\n{}", indented(output));
            }
        }
        let processor: Duration = self.targets.values().map(|spent| spent.processor).sum();
        let _ = writeln!(
            text,
            "\nbuilt in {}, tested in {} with {} of processor time{}",
            seconds(self.built),
            seconds(begun.saturating_sub(self.built)),
            seconds(processor),
            idle.map_or_else(String::new, |share| format!(
                ", processors idle for {:.0} % of it",
                share * 100.0
            ))
        );
        text.push_str(&describe_left_out(left_out));
        let missing = self.expected.saturating_sub(self.totals.all());
        if missing > 0 {
            let _ = writeln!(text, "not run: {missing} tests, the run was interrupted");
        }
        let skipped = if self.totals.skipped > 0 {
            format!(", {} skipped", self.totals.skipped)
        } else {
            String::new()
        };
        let _ = writeln!(
            text,
            "tests: {} passed, {} failed{skipped}",
            self.totals.passed, self.totals.failed
        );
        write(&text);
        self.totals
    }
}

/// Describes which tests did not run, and how to run them.
fn describe_left_out(left_out: &LeftOut) -> String {
    let LeftOut {
        real,
        long,
        catalogue,
        filtered,
    } = *left_out;
    let mut text = String::new();
    let mut add_line = |count: usize, what: &str| {
        if count > 0 {
            let _ = writeln!(text, "left out: {count} {what}");
        }
    };
    add_line(
        real,
        "tests that need root and real Kubernetes programs (cargo xtask test --real)",
    );
    add_line(long, "tests that take long (cargo xtask test --all)");
    add_line(
        catalogue,
        "scenarios one by one (cargo test -p suite --test suite -- --include-ignored); with --real, suite/it runs all of them on the embedded lane, with --all also on the local one",
    );
    add_line(filtered, "tests that no filter names");
    text
}

fn indented(text: &str) -> String {
    text.lines().fold(String::new(), |mut text, line| {
        // writing to a string cannot fail, here and above
        let _ = writeln!(text, "    {line}");
        text
    })
}

/// Writes to standard output. A failure is ignored, because there is no other place to report it.
fn write(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes());
    let _ = out.flush();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_left_out_is_told_with_what_runs_it() {
        let left_out = LeftOut {
            real: 3,
            filtered: 1,
            ..LeftOut::default()
        };
        assert_eq!(
            describe_left_out(&left_out),
            "left out: 3 tests that need root and real Kubernetes programs (cargo xtask test --real)\n\
             left out: 1 tests that no filter names\n"
        );
    }
}
