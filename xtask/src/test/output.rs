//! Parses the output of a test process into verdicts of its tests.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use super::job::Job;
use super::process::Ended;

/// The outcome of a test.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Outcome {
    Passed,
    Failed,
    /// The test itself reported that it cannot run (a scenario that the cluster does not support).
    Skipped,
}

/// A test that has ended.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Verdict {
    pub(crate) name: String,
    pub(crate) outcome: Outcome,
    pub(crate) took: Duration,
    /// Its output, if it failed.
    pub(crate) output: String,
}

impl Verdict {
    pub(crate) fn failed(&self) -> bool {
        self.outcome == Outcome::Failed
    }
}

/// Returns the verdicts of a job's tests. A test that the process does not report has failed.
pub(crate) fn verdicts(job: &Job, ended: &Ended) -> Vec<Verdict> {
    let outcomes = parse_outcomes(&ended.lines);
    let complete = ended.status.is_some() && ended.trouble.is_none();
    let mut verdicts: Vec<Verdict> = job
        .tests
        .iter()
        .filter_map(|name| {
            let (outcome, took) = *outcomes.get(name.as_str())?;
            Some(Verdict {
                name: name.clone(),
                outcome,
                took: if job.is_batch { took } else { ended.wall },
                output: String::new(),
            })
        })
        .collect();
    let unreported: Vec<&String> = job
        .tests
        .iter()
        .filter(|name| !outcomes.contains_key(name.as_str()))
        .collect();
    for name in unreported {
        verdicts.push(Verdict {
            name: name.clone(),
            outcome: Outcome::Failed,
            took: Duration::ZERO,
            output: String::new(),
        });
    }
    let failed = verdicts.iter().any(Verdict::failed);
    let success = ended.status.is_some_and(|status| status.success());
    if complete && !success && !failed {
        // every test passed but the process failed: the fault is in what it does at its end
        if let Some(last) = verdicts.last_mut() {
            last.outcome = Outcome::Failed;
        }
    }
    for verdict in verdicts.iter_mut().filter(|verdict| verdict.failed()) {
        verdict.output = section(&ended.lines, &verdict.name)
            .filter(|_| complete)
            .unwrap_or_else(|| shown(ended));
    }
    verdicts
}

/// Returns the output of a failed test of a batch, from the block that its runner prints at the end.
fn section(lines: &[(Duration, String)], name: &str) -> Option<String> {
    let heads = [
        format!("---- {name} stdout ----"),
        format!("---- {name} ----"),
    ];
    let start = lines.iter().position(|(_, line)| heads.contains(line))?;
    let text: Vec<&str> = lines
        .iter()
        .skip(start + 1)
        .map(|(_, line)| line.as_str())
        .take_while(|line| {
            !(line.starts_with("---- ") && line.ends_with(" ----")) && *line != "failures:"
        })
        .collect();
    Some(text.join("\n").trim_end().to_owned())
}

/// Returns all lines but those of passed tests, and how the process ended.
fn shown(ended: &Ended) -> String {
    let mut text = String::new();
    for (_, line) in &ended.lines {
        let passed =
            parse_test_line(line).is_some_and(|(_, rest)| outcome(rest) == Some(Outcome::Passed));
        if !passed {
            text.push_str(line);
            text.push('\n');
        }
    }
    match (&ended.trouble, ended.status) {
        (Some(trouble), _) => text.push_str(trouble),
        (None, Some(status)) => {
            // writing to a string cannot fail
            let _ = write!(text, "the process ended with {status}");
        }
        (None, None) => {}
    }
    text
}

/// Returns outcome and time by test. Tests run one after another, so a test took the time since the verdict before.
fn parse_outcomes(lines: &[(Duration, String)]) -> BTreeMap<&str, (Outcome, Duration)> {
    let mut outcomes = BTreeMap::new();
    let mut before = Duration::ZERO;
    // output that a test prints past its runner separates the line with its name from the outcome
    let mut open: Option<&str> = None;
    for (at, line) in lines {
        let (name, rest) = match parse_test_line(line) {
            Some((name, rest)) => (Some(name), rest),
            None => (open, line.as_str()),
        };
        match (name, outcome(rest)) {
            (Some(name), Some(outcome)) => {
                outcomes.insert(name, (outcome, at.saturating_sub(before)));
                before = *at;
                open = None;
            }
            (name, _) => {
                if open.is_none() && name.is_none() {
                    before = *at;
                }
                open = name;
            }
        }
    }
    outcomes
}

/// Parses name and rest of a line like `test a::b ... ok`, as libtest and libtest-mimic write it.
fn parse_test_line(line: &str) -> Option<(&str, &str)> {
    let (name, rest) = line.strip_prefix("test ")?.split_once(" ... ")?;
    let name = name.trim_end();
    Some((name.strip_suffix(" - should panic").unwrap_or(name), rest))
}

fn outcome(rest: &str) -> Option<Outcome> {
    if rest == "ok" {
        Some(Outcome::Passed)
    } else if rest.starts_with("FAILED") {
        Some(Outcome::Failed)
    } else if rest.starts_with("ignored") {
        Some(Outcome::Skipped)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::ExitStatus;

    use super::super::plan::Expected;
    use super::*;

    fn job(target: &str, id: &str, tests: &[&str]) -> Job {
        Job {
            id: id.to_owned(),
            target: target.to_owned(),
            is_batch: id == target,
            is_cargo: false,
            program: "x".into(),
            arguments: Vec::new(),
            dir: "/".into(),
            package: "p".to_owned(),
            tests: tests.iter().map(|name| (*name).to_owned()).collect(),
            expected: Expected {
                seconds: 1.0,
                load: 1.0,
            },
        }
    }

    fn ended(code: i32, lines: &[&str]) -> Ended {
        let at = |index: usize| Duration::from_secs(u64::try_from(index).expect("small"));
        Ended {
            status: Some(ExitStatus::from_raw(code << 8)),
            trouble: None,
            lines: lines
                .iter()
                .enumerate()
                .map(|(index, line)| (at(index), (*line).to_owned()))
                .collect(),
            wall: Duration::from_secs(9),
            processor: Duration::ZERO,
        }
    }

    fn outcomes(verdicts: &[Verdict]) -> Vec<(&str, Outcome)> {
        verdicts
            .iter()
            .map(|verdict| (verdict.name.as_str(), verdict.outcome))
            .collect()
    }

    #[test]
    fn verdicts_of_both_runners_are_read_with_their_times() {
        let job = job("p/lib", "p/lib", &["a::b", "c", "d", "e"]);
        let ended = ended(
            101,
            &[
                "running 4 tests",
                "test a::b ... ok",
                "test c - should panic ... ok",
                "test d ... FAILED",
                "test e   ... ignored, cannot run here",
                "failures:",
                "---- d stdout ----",
                "left: 1",
            ],
        );
        let verdicts = verdicts(&job, &ended);
        assert_eq!(
            outcomes(&verdicts),
            [
                ("a::b", Outcome::Passed),
                ("c", Outcome::Passed),
                ("d", Outcome::Failed),
                ("e", Outcome::Skipped),
            ]
        );
        assert_eq!(verdicts[0].took, Duration::from_secs(1));
        assert_eq!(verdicts[2].output, "left: 1");
    }

    #[test]
    fn what_a_test_prints_between_its_name_and_its_verdict_hides_neither() {
        let job = job("p/suite", "p/suite", &["a", "b"]);
        let lines = [
            "test a ... scenario a",
            "  a step",
            "ok",
            "test b ... scenario b",
            "FAILED",
        ];
        let verdicts = verdicts(&job, &ended(101, &lines));
        assert_eq!(
            outcomes(&verdicts),
            [("a", Outcome::Passed), ("b", Outcome::Failed)]
        );
    }

    #[test]
    fn a_test_whose_process_dies_has_failed_and_so_have_those_after_it() {
        let job = job("p/lib", "p/lib", &["a", "b", "c"]);
        let mut ended = ended(0, &["running 3 tests", "test a ... ok", "test b ... "]);
        ended.status = Some(ExitStatus::from_raw(11));
        let verdicts = verdicts(&job, &ended);
        assert_eq!(
            outcomes(&verdicts),
            [
                ("a", Outcome::Passed),
                ("b", Outcome::Failed),
                ("c", Outcome::Failed),
            ]
        );
        assert!(verdicts[2].output.contains("test b ... "));
        assert!(verdicts[2].output.contains("signal"));
    }

    #[test]
    fn a_process_that_fails_after_its_tests_passed_is_a_failure() {
        let job = job("p/it", "p/it/a", &["a"]);
        let verdicts = verdicts(&job, &ended(3, &["test a ... ok"]));
        assert_eq!(outcomes(&verdicts), [("a", Outcome::Failed)]);
        assert_eq!(verdicts[0].took, Duration::from_secs(9));
    }

    #[test]
    fn a_process_that_printed_nothing_failed_all_of_its_tests() {
        let job = job("p/it", "p/it/a", &["a"]);
        assert_eq!(
            outcomes(&verdicts(&job, &ended(0, &[]))),
            [("a", Outcome::Failed)]
        );
    }
}
