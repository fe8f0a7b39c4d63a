//! Progress reports of a long operation.

use std::time::Duration;

/// One event while a cluster comes up (or a binary is built). `Display` is one line for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// A step has begun.
    Started {
        /// Name of the step.
        step: String,
    },
    /// The step of this name that began last is done.
    Finished {
        /// Name of the step.
        step: String,
        /// How long it took.
        took: Duration,
    },
    /// Information that changes nothing.
    Note(String),
    /// How far the current step is.
    Advanced(String),
}

impl std::fmt::Display for Progress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Started { step } => write!(f, "{step} ..."),
            Self::Finished { step, took } => {
                write!(f, "{step}: done in {:.1} s", took.as_secs_f64())
            }
            Self::Note(note) => write!(f, "note: {note}"),
            Self::Advanced(text) => write!(f, "  {text}"),
        }
    }
}

/// Receiver of progress.
pub type Report<'a> = &'a (dyn Fn(Progress) + Send + Sync);

/// Reports a note.
pub fn note(report: Report<'_>, text: impl Into<String>) {
    report(Progress::Note(text.into()));
}

/// A step that reports its start, and its end when it is [finished](Step::finish).
pub struct Step<'a> {
    report: Report<'a>,
    name: String,
    begun: std::time::Instant,
}

impl<'a> Step<'a> {
    /// Reports the start of a step.
    pub fn begin(report: Report<'a>, name: impl Into<String>) -> Self {
        let name = name.into();
        report(Progress::Started { step: name.clone() });
        Self {
            report,
            name,
            begun: std::time::Instant::now(),
        }
    }

    /// Reports its end.
    pub fn finish(self) {
        (self.report)(Progress::Finished {
            step: self.name,
            took: self.begun.elapsed(),
        });
    }
}
