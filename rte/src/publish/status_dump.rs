//! Records of the pods in each fingerprint, for comparison with the scheduler's fingerprint (rte.md 6.4).

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};

use k8s_openapi::jiff::Timestamp;
use serde::Serialize;

/// Number of records in the file in the directory.
const MAX_RECORDS: usize = 10;

/// One computed fingerprint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Record {
    /// The fingerprint.
    pub(crate) fingerprint_computed: String,
    /// The pods, in the order of the kubelet's list.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) pods: Vec<PodName>,
    /// Name of the node.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) node_name: String,
}

/// A pod, with the keys that readers of these files expect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct PodName {
    /// Namespace of the pod.
    pub(crate) namespace: String,
    /// Name of the pod.
    pub(crate) name: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct DatedRecord {
    #[serde(flatten)]
    record: Record,
    record_time: Timestamp,
}

/// The files with the records.
#[derive(Default)]
pub(crate) struct StatusDump {
    /// Contains only the last record.
    file: Option<PathBuf>,
    /// Contains the last few records.
    history: Option<(PathBuf, VecDeque<DatedRecord>)>,
}

impl StatusDump {
    /// Creates a dump: the last record goes to `file`, if given; the last ten go to a file named after the node in `dir`, if `dir` is given
    /// and exists.
    pub(crate) fn new(file: Option<PathBuf>, dir: Option<&Path>, node: &str) -> Self {
        let history = dir.and_then(|dir| {
            if !dir.is_dir() {
                tracing::warn!(dir = %dir.display(), "Base directory not found, will discard everything");
                return None;
            }
            Some((dir.join(node.replace('.', "_")), VecDeque::new()))
        });
        Self { file, history }
    }

    /// Adds a record with the time `now`.
    pub(crate) fn add(&mut self, record: &Record, now: Timestamp) {
        if let Some(file) = &self.file {
            log_failure(file, replace(file, record));
        }
        if let Some((file, records)) = &mut self.history {
            if records.len() == MAX_RECORDS {
                records.pop_front();
            }
            records.push_back(DatedRecord {
                record: record.clone(),
                record_time: now,
            });
            log_failure(file, replace(file, records));
        }
    }
}

fn log_failure(file: &Path, outcome: io::Result<()>) {
    if let Err(error) = outcome {
        tracing::warn!(file = %file.display(), %error, "Cannot write the fingerprint status");
    }
}

/// Replaces a file with the JSON form of `content`.
fn replace(file: &Path, content: &impl Serialize) -> io::Result<()> {
    daemon::file::replace(file, &serde_json::to_vec(content)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(name: &str) -> Record {
        Record {
            fingerprint_computed: "pfp0v0010c5658d8bde5056f".to_owned(),
            pods: vec![PodName {
                namespace: "default".to_owned(),
                name: name.to_owned(),
            }],
            node_name: "worker-0".to_owned(),
        }
    }

    #[test]
    fn file_holds_the_last_record_as_its_readers_know_it() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("status.json");
        let mut dump = StatusDump::new(Some(file.clone()), None, "worker-0");
        dump.add(&record("pod-0"), Timestamp::UNIX_EPOCH);
        dump.add(&record("pod-1"), Timestamp::UNIX_EPOCH);
        assert_eq!(
            std::fs::read_to_string(file).unwrap(),
            r#"{"fingerprintComputed":"pfp0v0010c5658d8bde5056f","pods":[{"Namespace":"default","Name":"pod-1"}],"nodeName":"worker-0"}"#
        );
    }

    #[test]
    fn directory_holds_the_last_ten_records_with_their_times() {
        let dir = tempfile::tempdir().unwrap();
        let mut dump = StatusDump::new(None, Some(dir.path()), "worker-0.example.com");
        for i in 0..12 {
            dump.add(&record(&format!("pod-{i}")), Timestamp::UNIX_EPOCH);
        }
        let text = std::fs::read_to_string(dir.path().join("worker-0_example_com")).unwrap();
        let records: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(records.as_array().unwrap().len(), 10);
        assert_eq!(records[0]["pods"][0]["Name"], "pod-2");
        assert_eq!(records[9]["recordTime"], "1970-01-01T00:00:00Z");
    }

    #[test]
    fn missing_directory_discards_everything() {
        let dir = tempfile::tempdir().unwrap();
        let missing = dir.path().join("missing");
        StatusDump::new(None, Some(&missing), "n").add(&record("p"), Timestamp::UNIX_EPOCH);
        assert!(!missing.exists());
    }
}
