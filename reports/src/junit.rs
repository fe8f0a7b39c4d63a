//! The `JUnit` view: the file is valid after every scenario.
//!
//! The report is one flat test suite. Class names are `numaresources.<area>`, case names are the scenario ids. A failure has a message and
//! a text. The reason of a skip is both message and text, because some consumers show only the text. From the first moment every selected
//! scenario is in the file as `error type="incomplete"`, until it has a verdict: a run that is killed or interrupted never looks like a
//! good one.
//! Scenarios that were not selected are left out, so that the counts equal those of the summary.
//!
//! The `junit-report` crate does not offer the following, so they are left out: the `skipped` count of the suite, counts on the root
//! element, and properties (labels and facts are in the event log).

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use junit_report::{Duration, OffsetDateTime, Report, TestCase, TestResult, TestSuite};
use thiserror::Error;

use crate::event::{
    Event, Failure, Record, SKIPS, ScenarioInfo, SkipClass, Verdict, is_setup, is_stack,
};
use crate::stream::{Reader, chain};

/// Why the report cannot be written.
#[derive(Debug, Error)]
pub enum Error {
    /// The XML cannot be rendered.
    #[error("cannot render the JUnit report")]
    Render(#[source] junit_report::Error),
    /// The file cannot be opened.
    #[error("cannot open the JUnit report {path}")]
    Open {
        /// Which file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
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
    /// None until the scenario is over.
    verdict: Option<Verdict>,
    has_begun: bool,
    broken: Option<Failure>,
}

impl Junit {
    /// Creates a report at this path, of a suite with this name. Nothing is written before the run starts, but it is certain that the file
    /// can be opened.
    pub fn create(path: &Path, suite: &str) -> Result<Self, Error> {
        Place::of(path).open().map_err(|source| Error::Open {
            path: path.to_owned(),
            source,
        })?;
        Ok(Self {
            path: path.to_owned(),
            suite: suite.to_owned(),
            started: Timestamp::UNIX_EPOCH,
            cases: Vec::new(),
            index: BTreeMap::new(),
            failed: None,
        })
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
        let written = self.render().and_then(|xml| {
            let replaced = Place::of(&self.path).replace(&xml);
            replaced.map_err(|source| Error::Write {
                path: self.path.clone(),
                source,
            })
        });
        self.failed = written.err();
    }
}

impl Reader for Junit {
    fn read(&mut self, record: &Record) {
        match &record.event {
            Event::RunStarted { plan, .. } => {
                self.started = record.at;
                for scenario in plan {
                    self.put(Case::without_verdict(scenario, false));
                }
            }
            Event::ScenarioStarted { scenario } => {
                self.put(Case::without_verdict(scenario, true));
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
                has_begun: true,
                broken: None,
            }),
            Event::PhaseFailed { unit, failure } => self.put(Case {
                scenario: ScenarioInfo {
                    id: format!("run/{unit}"),
                    ..ScenarioInfo::default()
                },
                duration_ms: 0,
                verdict: None,
                has_begun: true,
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

    fn failure(&self) -> Option<String> {
        self.failed.as_ref().map(|error| chain(error))
    }
}

impl Case {
    fn without_verdict(scenario: &ScenarioInfo, has_begun: bool) -> Self {
        Self {
            scenario: scenario.clone(),
            duration_ms: 0,
            verdict: None,
            has_begun,
            broken: None,
        }
    }

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
            (None, None) if self.has_begun => {
                incomplete("the run ended while this scenario was running")
            }
            (None, None) => incomplete("the run ended before this scenario began"),
            (None, Some(Verdict::Passed)) => TestResult::Success,
            (None, Some(Verdict::Failed(failure))) => TestResult::Failure {
                type_: "failed".to_owned(),
                message: clean_line(&failure.message),
                cause: Some(clean(&failure.to_string())),
            },
            (None, Some(Verdict::Skipped { class, reason })) => skipped(class.as_str(), reason),
            (None, Some(Verdict::Interrupted { reason })) => incomplete(reason),
        };
        case
    }
}

fn incomplete(reason: &str) -> TestResult {
    TestResult::Error {
        type_: "incomplete".to_owned(),
        message: clean_line(reason),
        cause: None,
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

/// Where a report goes.
enum Place {
    /// What is there and is no file, such as a pipe or a device: it is written to.
    Stream(PathBuf),
    /// A file, which is replaced in one step: a reader sees the old or the new text, never a part of one. The draft has the process in its
    /// name, because two runs may write to one place.
    File { draft: PathBuf, path: PathBuf },
}

impl Place {
    fn of(path: &Path) -> Self {
        if std::fs::metadata(path).is_ok_and(|there| !there.is_file()) {
            return Self::Stream(path.to_owned());
        }
        // a link stays, and leads to the new file
        let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let mut draft = path.clone().into_os_string();
        draft.push(format!(".{}.part", std::process::id()));
        Self::File {
            draft: draft.into(),
            path,
        }
    }

    /// Checks that the place can be opened, and leaves nothing behind but the directory.
    fn open(&self) -> io::Result<()> {
        match self {
            Self::Stream(path) => File::options().append(true).open(path).map(drop),
            Self::File { draft, path } => {
                if let Some(parent) = path.parent() {
                    std::fs::create_dir_all(parent)?;
                }
                File::create(draft)?;
                std::fs::remove_file(draft)
            }
        }
    }

    fn replace(&self, content: &[u8]) -> io::Result<()> {
        match self {
            Self::Stream(path) => std::fs::write(path, content),
            Self::File { draft, path } => {
                let replaced = File::create(draft)
                    .and_then(|mut file| {
                        file.write_all(content)?;
                        file.sync_all()
                    })
                    .and_then(|()| std::fs::rename(draft, path));
                if replaced.is_err() {
                    // what is left of it is of no use; the error of the write says more than that of this
                    let _ = std::fs::remove_file(draft);
                }
                replaced
            }
        }
    }
}

#[cfg(test)]
mod tests;
