//! What exporter and scheduler write down of the pods in a fingerprint (operator.md 8).

use std::fmt;

use jiff::Timestamp;
use serde::Deserialize;

/// One record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Record {
    /// What the exporter published; only the scheduler has it.
    #[serde(default)]
    pub(crate) fingerprint_expected: String,
    /// The fingerprint of the pods.
    #[serde(default)]
    pub(crate) fingerprint_computed: String,
    /// The pods. Go writes `null` for none.
    #[serde(default)]
    pods: Option<Vec<PodName>>,
    /// When it was written.
    #[serde(default, rename = "recordTime")]
    pub(crate) written: Option<Timestamp>,
}

impl Record {
    /// Returns the pods.
    pub(crate) fn pods(&self) -> &[PodName] {
        self.pods.as_deref().unwrap_or_default()
    }
}

/// A pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct PodName {
    namespace: String,
    name: String,
}

impl fmt::Display for PodName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// A file is no dump.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// It is not JSON, or JSON of another form.
    #[error("it is no list of fingerprint records")]
    Form(#[from] serde_json::Error),
    /// It has no records.
    #[error("it has no fingerprint record")]
    Empty,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Dump {
    Several(Vec<Record>),
    /// Older programs write one.
    Single(Record),
}

/// Reads a dump.
pub(crate) fn parse(text: &str) -> Result<Vec<Record>, Error> {
    let records = match serde_json::from_str(text)? {
        Dump::Several(records) => records,
        Dump::Single(record) => vec![record],
    };
    if records.is_empty() {
        return Err(Error::Empty);
    }
    Ok(records)
}
