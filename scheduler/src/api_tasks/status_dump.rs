//! Files that show which pod sets were compared, for people who search for a difference (scheduler.md 5.10).
//!
//! Each node has a file with its latest records as an array, named after the node, and `<node>.json` with only the last record, which
//! older readers expect. Both are replaced as a whole.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;
use tokio::time::Instant;

use crate::numa::Check;

/// Number of records kept for each node.
const RECORDS: usize = 10;
/// Maximum number of nodes for which records are kept.
const NODES: usize = 5000;
/// Minimum interval between two writes.
const PERIOD: Duration = Duration::from_secs(10);

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Record {
    fingerprint_expected: String,
    fingerprint_computed: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pods: Vec<PodName>,
    node_name: String,
    #[serde(rename = "recordTime")]
    time: Timestamp,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
struct PodName {
    namespace: String,
    name: String,
}

/// The records and their directory.
#[derive(Debug)]
pub struct StatusDump {
    directory: PathBuf,
    records: BTreeMap<String, VecDeque<Record>>,
    changed: BTreeSet<String>,
    written: Option<Instant>,
}

impl StatusDump {
    /// Creates a dump into `directory`; `None` if there is no such directory.
    pub fn new(directory: &Path) -> Option<Self> {
        if !directory.is_dir() {
            tracing::warn!(directory = %directory.display(), "base directory not found, will discard everything");
            return None;
        }
        Some(Self {
            directory: directory.to_owned(),
            records: BTreeMap::new(),
            changed: BTreeSet::new(),
            written: None,
        })
    }

    /// Adds a record of a comparison made at `now`.
    pub fn add(&mut self, check: Check, now: Timestamp) {
        if self.records.len() == NODES && !self.records.contains_key(&check.node) {
            return;
        }
        let name = |key: crate::state::pod::PodKey| PodName {
            namespace: key.namespace,
            name: key.name,
        };
        let records = self.records.entry(check.node.clone()).or_default();
        if records.len() == RECORDS {
            records.pop_front();
        }
        records.push_back(Record {
            fingerprint_expected: check.expected,
            fingerprint_computed: check.computed,
            pods: check.pods.into_iter().map(name).collect(),
            node_name: check.node.clone(),
            time: now,
        });
        self.changed.insert(check.node);
    }

    /// Returns the files that changed, if it is time to write them. Pass them to [`write()`] where blocking does no harm.
    pub fn due(&mut self, now: Instant) -> Option<Vec<(PathBuf, Vec<u8>)>> {
        if self.changed.is_empty() || self.written.is_some_and(|written| now < written + PERIOD) {
            return None;
        }
        self.written = Some(now);
        let mut files = Vec::new();
        for node in std::mem::take(&mut self.changed) {
            let Some(records) = self.records.get(&node) else {
                continue;
            };
            let name = node.replace('.', "_");
            files.extend(
                serde_json::to_vec(records)
                    .ok()
                    .map(|text| (self.directory.join(&name), text)),
            );
            let last = records
                .back()
                .and_then(|record| serde_json::to_vec(record).ok());
            files.extend(last.map(|text| (self.directory.join(format!("{name}.json")), text)));
        }
        Some(files)
    }
}

/// Writes files so that readers see either the old or the new content, never a part.
pub fn write(files: Vec<(PathBuf, Vec<u8>)>) {
    for (path, content) in files {
        if let Err(error) = daemon::file::replace(&path, &content) {
            tracing::debug!(file = %path.display(), %error, "Status not written");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::pod::PodKey;

    fn mk_check(number: usize) -> Check {
        Check {
            node: "worker.0".to_owned(),
            expected: format!("expected-{number}"),
            computed: "computed".to_owned(),
            pods: vec![PodKey {
                namespace: "ns".to_owned(),
                name: "p".to_owned(),
            }],
        }
    }

    #[test]
    fn both_files_hold_what_their_readers_expect() {
        let directory = tempfile::tempdir().expect("directory");
        let mut dump = StatusDump::new(directory.path()).expect("exists");
        for number in 0..12 {
            dump.add(mk_check(number), Timestamp::UNIX_EPOCH);
        }
        let now = Instant::now();
        write(dump.due(now).expect("due"));
        let read = |name| -> serde_json::Value {
            let text = std::fs::read(directory.path().join(name)).expect("written");
            serde_json::from_slice(&text).expect("json")
        };
        let all = read("worker_0");
        assert_eq!(all.as_array().map(Vec::len), Some(10));
        assert_eq!(all[0]["fingerprintExpected"], "expected-2");
        assert_eq!(all[9], read("worker_0.json"));
        assert_eq!(
            all[9],
            serde_json::json!({
                "fingerprintExpected": "expected-11", "fingerprintComputed": "computed",
                "pods": [{"Namespace": "ns", "Name": "p"}], "nodeName": "worker.0", "recordTime": "1970-01-01T00:00:00Z",
            })
        );
        assert_eq!(
            std::fs::read_dir(directory.path())
                .expect("directory")
                .count(),
            2
        );
    }

    #[test]
    fn files_are_written_once_in_a_while_and_only_when_something_changed() {
        let directory = tempfile::tempdir().expect("directory");
        let mut dump = StatusDump::new(directory.path()).expect("exists");
        let now = Instant::now();
        assert_eq!(dump.due(now), None);
        dump.add(mk_check(0), Timestamp::UNIX_EPOCH);
        assert!(dump.due(now).is_some());
        dump.add(mk_check(1), Timestamp::UNIX_EPOCH);
        assert_eq!(dump.due(now), None);
        assert!(dump.due(now + PERIOD).is_some());
        assert!(StatusDump::new(Path::new("/nowhere")).is_none());
    }
}
