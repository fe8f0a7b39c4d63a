//! The `JUnit` view: the file is valid after every scenario.
//!
//! The report is one flat test suite. Class names are `numaresources.<area>`, case names are the scenario ids. A failure has a message and
//! a text. The reason of a skip is both message and text, because some consumers show only the text. A scenario that
//! is running when the process dies stays in the file as `error type="incomplete"`; an interrupted one is `skipped type="interrupted"`.
//! Scenarios that were not selected are left out, so that the counts equal those of the summary.
//!
//! The `junit-report` crate does not offer the following, so they are left out: the `skipped` count of the suite, counts on the root
//! element, and properties (labels and facts are in the event log).

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use junit_report::{Duration, OffsetDateTime, Report, TestCase, TestResult, TestSuite};
use thiserror::Error;

use crate::event::{
    Event, Failure, Record, SKIPS, ScenarioInfo, SkipClass, Verdict, is_setup, is_stack,
};
use crate::stream::Reader;

/// Why the report cannot be written.
#[derive(Debug, Error)]
pub enum Error {
    /// The XML cannot be rendered.
    #[error("cannot render the JUnit report")]
    Render(#[source] junit_report::Error),
    /// The file cannot be replaced.
    #[error("cannot write the JUnit report {path}")]
    Write {
        /// Which file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

/// Collects the cases of a run and rewrites the file whenever one of them changes.
#[derive(Debug)]
pub struct Junit {
    path: PathBuf,
    suite: String,
    started: Timestamp,
    cases: Vec<Case>,
    index: BTreeMap<String, usize>,
    failed: Option<Error>,
}

#[derive(Debug)]
struct Case {
    scenario: ScenarioInfo,
    duration_ms: u64,
    /// None while the scenario runs.
    verdict: Option<Verdict>,
    broken: Option<Failure>,
}

impl Junit {
    /// Creates a report at this path, of a suite with this name. Nothing is written before the run starts.
    pub fn new(path: &Path, suite: &str) -> Self {
        Self {
            path: path.to_owned(),
            suite: suite.to_owned(),
            started: Timestamp::UNIX_EPOCH,
            cases: Vec::new(),
            index: BTreeMap::new(),
            failed: None,
        }
    }

    /// Returns the last error in writing the file, if the file is not up to date.
    pub fn failure(&self) -> Option<&Error> {
        self.failed.as_ref()
    }

    /// Returns the report as it is now.
    pub fn render(&self) -> Result<Vec<u8>, Error> {
        let mut suite = TestSuite::new(&self.suite);
        "numaresources".clone_into(&mut suite.package);
        if let Ok(at) = OffsetDateTime::from_unix_timestamp(self.started.as_second()) {
            suite.set_timestamp(at);
        }
        suite.add_testcases(self.cases.iter().map(Case::render));
        let mut report = Report::new();
        report.add_testsuite(suite);
        let mut xml = Vec::new();
        report.write_xml(&mut xml).map_err(Error::Render)?;
        xml.push(b'\n');
        Ok(xml)
    }

    fn put(&mut self, case: Case) {
        if let Some(&at) = self.index.get(&case.scenario.id) {
            self.cases[at] = case;
        } else {
            self.index
                .insert(case.scenario.id.clone(), self.cases.len());
            self.cases.push(case);
        }
    }

    fn write(&mut self) {
        self.failed = self
            .render()
            .and_then(|xml| replace(&self.path, &xml))
            .err();
    }
}

impl Reader for Junit {
    fn read(&mut self, record: &Record) {
        match &record.event {
            Event::RunStarted { .. } => self.started = record.at,
            Event::ScenarioStarted { scenario } => {
                self.put(Case {
                    scenario: scenario.clone(),
                    duration_ms: 0,
                    verdict: None,
                    broken: None,
                });
            }
            Event::ScenarioFinished {
                verdict:
                    Verdict::Skipped {
                        class: SkipClass::NotSelected,
                        ..
                    },
                ..
            } => return,
            Event::ScenarioFinished {
                scenario,
                verdict,
                duration_ms,
            } => self.put(Case {
                scenario: scenario.clone(),
                duration_ms: *duration_ms,
                verdict: Some(verdict.clone()),
                broken: None,
            }),
            Event::PhaseFailed { unit, failure } => self.put(Case {
                scenario: ScenarioInfo {
                    id: format!("run/{unit}"),
                    ..ScenarioInfo::default()
                },
                duration_ms: 0,
                verdict: None,
                broken: Some(Failure {
                    step: unit.clone(),
                    ..failure.clone()
                }),
            }),
            Event::RunFinished { .. } => {}
            _ => return,
        }
        self.write();
    }
}

impl Case {
    fn render(&self) -> TestCase {
        let millis = i64::try_from(self.duration_ms).unwrap_or(i64::MAX);
        let mut case = TestCase::success(&self.scenario.id, Duration::milliseconds(millis));
        case.set_classname(&format!("numaresources.{}", self.scenario.area()));
        case.result = match (&self.broken, &self.verdict) {
            (Some(failure), _) => {
                let type_ = match failure.step.as_str() {
                    SKIPS => "unexpected-skips",
                    unit if is_setup(unit) => "setup-failed",
                    unit if is_stack(unit) => "stack-failed",
                    _ => "teardown-failed",
                };
                TestResult::Error {
                    type_: type_.to_owned(),
                    message: clean_line(&failure.message),
                    cause: Some(clean(&failure.to_string())),
                }
            }
            (None, None) => TestResult::Error {
                type_: "incomplete".to_owned(),
                message: "the run ended while this scenario was running".to_owned(),
                cause: None,
            },
            (None, Some(Verdict::Passed)) => TestResult::Success,
            (None, Some(Verdict::Failed(failure))) => TestResult::Failure {
                type_: "failed".to_owned(),
                message: clean_line(&failure.message),
                cause: Some(clean(&failure.to_string())),
            },
            (None, Some(Verdict::Skipped { class, reason })) => skipped(class.as_str(), reason),
            (None, Some(Verdict::Interrupted { reason })) => skipped("interrupted", reason),
        };
        case
    }
}

fn skipped(type_: &str, reason: &str) -> TestResult {
    TestResult::SkippedWithCause {
        type_: type_.to_owned(),
        message: clean_line(reason),
        cause: Some(clean(reason)),
    }
}

/// Drops what XML 1.0 cannot hold and terminal colours, and breaks up the end mark of a CDATA section.
fn clean(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\u{1b}' if chars.peek() == Some(&'[') => {
                chars.next();
                // parameters end at the first letter
                while chars.next().is_some_and(|c| !c.is_ascii_alphabetic()) {}
            }
            '\n' | '\t' => out.push(c),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => {}
            c => out.push(c),
        }
    }
    out.replace("]]>", "]] >")
}

fn clean_line(text: &str) -> String {
    clean(text).replace(['\n', '\t'], " ")
}

/// Replaces a file in one step: a reader sees the old or the new text, never a part of one.
fn replace(path: &Path, content: &[u8]) -> Result<(), Error> {
    let failed = |source| Error::Write {
        path: path.to_owned(),
        source,
    };
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent).map_err(failed)?;
    }
    let mut draft = path.as_os_str().to_owned();
    draft.push(".part");
    let draft = PathBuf::from(draft);
    let mut file = std::fs::File::create(&draft).map_err(failed)?;
    file.write_all(content)
        .and_then(|()| file.sync_all())
        .map_err(failed)?;
    drop(file);
    std::fs::rename(&draft, path).map_err(failed)
}

#[cfg(test)]
mod tests;
