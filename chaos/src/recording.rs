//! What happened in a run, in the order in which it was heard of: one JSON object a line.

use std::io::{BufRead as _, BufReader};
use std::path::Path;

use cluster_faults::Disturbance;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::plan::Action;

/// Name of the file in the folder of a run.
pub const FILE: &str = "recording.jsonl";

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(
    tag = "entry",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
pub enum Entry {
    /// An object is there or has changed, as a watch or a list says.
    Applied {
        /// Its kind.
        kind: String,
        /// The object.
        object: Value,
    },
    /// An object is gone; its last state.
    Deleted {
        /// Its kind.
        kind: String,
        /// The object.
        object: Value,
    },
    /// All objects of a kind are listed from here to [`Self::Listed`]. What is not among them is gone.
    Listing {
        /// The kind.
        kind: String,
    },
    /// All objects of a kind were listed.
    Listed {
        /// The kind.
        kind: String,
    },
    /// Somebody changed something, as the plan has it.
    Done {
        /// What.
        #[serde(flatten)]
        action: Action,
    },
    /// A fault begins. `id` is the same at its end.
    FaultBegan {
        /// Number of the fault in the plan.
        id: usize,
        /// The fault, with the pod that was found for it.
        what: Box<Disturbance>,
    },
    /// A fault has ended.
    FaultEnded {
        /// Number of the fault in the plan.
        id: usize,
        /// How many requests, watches or connections it met, where that can be counted; or why it could not be injected.
        outcome: Result<u64, String>,
    },
    /// The run has reached a part: `faults`, `settling`, `end`.
    Reached {
        /// The part.
        part: String,
    },
}

/// A thing that happened and its time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// Milliseconds since the start of the recording.
    pub at: u64,
    /// What happened.
    #[serde(flatten)]
    pub entry: Entry,
}

/// Why a recording cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be read.
    #[error("cannot read the recording")]
    File(#[from] std::io::Error),
    /// A line is not one of a recording.
    #[error("line {number} is not one of a recording")]
    Line {
        /// Its number, from 1.
        number: usize,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
}

/// Reads a recording.
///
/// # Errors
/// Returns an error if the file cannot be read or a line is not one of a recording.
pub fn read(path: &Path) -> Result<Vec<Line>, Error> {
    let file = BufReader::new(fs_err::File::open(path)?);
    let lines = (1..).zip(file.lines());
    lines
        .map(|(number, line)| {
            serde_json::from_str(&line?).map_err(|source| Error::Line { number, source })
        })
        .collect()
}

/// When versions of objects came to be. The watches of different kinds are not equally late, so an object is at most as old as the first
/// object of any kind with its version or a later one.
#[derive(Clone, Debug)]
pub struct Clock(Vec<(u64, u64)>);

impl Clock {
    /// Reads all versions of a recording.
    pub fn of(lines: &[Line]) -> Self {
        let versions = lines.iter().filter_map(|line| match &line.entry {
            Entry::Applied { object, .. } | Entry::Deleted { object, .. } => {
                Some((version(object)?, line.at))
            }
            _ => None,
        });
        let mut versions: Vec<(u64, u64)> = versions.collect();
        versions.sort_unstable();
        let mut first = u64::MAX;
        for (_, at) in versions.iter_mut().rev() {
            first = first.min(*at);
            *at = first;
        }
        Self(versions)
    }

    /// Returns until when an object had its version at the latest, in milliseconds; `None` if it has none that the recording knows.
    pub fn when(&self, object: &Value) -> Option<u64> {
        let wanted = version(object)?;
        let index = self.0.partition_point(|(version, _)| *version < wanted);
        self.0.get(index).map(|(_, at)| *at)
    }
}

fn version(object: &Value) -> Option<u64> {
    let version = object.pointer("/metadata/resourceVersion")?.as_str()?;
    version.parse().ok()
}

/// A pod as a recording has it.
#[derive(Clone, Copy, Debug)]
pub struct PodView<'a>(pub &'a Value);

impl<'a> PodView<'a> {
    fn text(self, path: &str) -> &'a str {
        self.0
            .pointer(path)
            .and_then(Value::as_str)
            .unwrap_or_default()
    }

    /// Returns its UID.
    pub fn uid(self) -> &'a str {
        self.text("/metadata/uid")
    }

    /// Returns namespace and name.
    pub fn key(self) -> (&'a str, &'a str) {
        (
            self.text("/metadata/namespace"),
            self.text("/metadata/name"),
        )
    }

    /// Returns its node; empty if it has none.
    pub fn node(self) -> &'a str {
        self.text("/spec/nodeName")
    }

    /// Returns the scheduler that places it.
    pub fn scheduler(self) -> &'a str {
        self.text("/spec/schedulerName")
    }

    /// Returns its phase.
    pub fn phase(self) -> &'a str {
        self.text("/status/phase")
    }

    /// Returns the reason of its phase.
    pub fn reason(self) -> &'a str {
        self.text("/status/reason")
    }

    /// Returns the message of its phase.
    pub fn message(self) -> &'a str {
        self.text("/status/message")
    }

    /// Returns whether its containers have ended for good.
    pub fn has_ended(self) -> bool {
        matches!(self.phase(), "Succeeded" | "Failed")
    }

    /// Returns whether somebody has asked for its deletion.
    pub fn is_being_deleted(self) -> bool {
        self.0.pointer("/metadata/deletionTimestamp").is_some()
    }

    /// Returns whether its kubelet says that it has taken it.
    pub fn is_admitted(self) -> bool {
        !self.text("/status/startTime").is_empty()
    }

    /// Returns whether a condition of this type is True.
    pub fn has_condition(self, kind: &str) -> bool {
        let conditions = self
            .0
            .pointer("/status/conditions")
            .and_then(Value::as_array);
        conditions
            .into_iter()
            .flatten()
            .any(|one| one["type"] == kind && one["status"] == "True")
    }

    /// Returns whether its kubelet gives it something for itself: a Guaranteed pod holds memory in any case.
    pub fn is_exclusive(self) -> bool {
        self.text("/status/qosClass") == "Guaranteed"
    }

    /// Returns the CPUs that it has for itself.
    pub fn exclusive_cpus(self) -> i64 {
        if !self.is_exclusive() {
            return 0;
        }
        let containers = self.0.pointer("/spec/containers").and_then(Value::as_array);
        let each = containers.into_iter().flatten().map(|container| {
            let cpus = container.pointer("/resources/requests/cpu");
            let milli = milli(cpus.and_then(Value::as_str).unwrap_or_default());
            if milli % 1_000 == 0 { milli / 1_000 } else { 0 }
        });
        each.sum()
    }
}

/// Returns a quantity in thousandths; 0 if it is none.
pub fn milli(text: &str) -> i64 {
    let quantity = k8s_openapi::apimachinery::pkg::api::resource::Quantity(text.to_owned());
    api::quantity::milli(&quantity).unwrap_or_default()
}
