//! The record of a cluster: what it says, and the file that keeps it.

use std::path::Path;

use cluster_spec::plan::ClusterSpec;
use cluster_spec::subnet::Subnet;
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::layout::{dir, lock};
use crate::process::ProcessRef;

/// Name of the file in the directory of the cluster.
pub(crate) const RECORD: &str = "cluster.json";

/// The stored record of a cluster.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Record {
    /// The process that brought it up.
    pub owner: ProcessRef,
    /// The ancestor of all other processes; none before it is started.
    pub holder: Option<ProcessRef>,
    /// Whether the cluster outlives its owner.
    pub detached: bool,
    /// Number of nodes.
    pub nodes: usize,
    /// Fields that only a cluster of real Kubernetes parts has.
    pub local: Option<Local>,
}

/// The part of the record that only a cluster of real Kubernetes parts has.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Local {
    /// Its network; none until the holder has found a free one.
    pub subnet: Option<Subnet>,
    /// The spec that it was brought up from.
    pub spec: ClusterSpec,
}

impl Record {
    pub(crate) fn holder_runs(&self) -> bool {
        self.holder.as_ref().is_some_and(ProcessRef::is_alive)
    }

    /// Returns whether nobody can use the cluster any more, so that its remains may be removed.
    pub(crate) fn is_stale(&self) -> bool {
        if self.detached {
            !self.holder_runs()
        } else {
            !self.owner.is_alive()
        }
    }
}

/// Changes the record of a cluster.
pub fn update(root: &Path, name: &str, change: impl FnOnce(&mut Record)) -> Result<(), Error> {
    let _lock = lock(root)?;
    let dir = dir(root, name);
    let mut record = read(&dir)?.ok_or_else(|| Error::absent(root, name))?;
    change(&mut record);
    write(&dir, &record)
}

/// Reads the record in the directory of a cluster; none if there is none.
pub(crate) fn read(dir: &Path) -> Result<Option<Record>, Error> {
    let path = dir.join(RECORD);
    match std::fs::read_to_string(&path) {
        Ok(text) => serde_json::from_str(&text)
            .map(Some)
            .map_err(|source| Error::Damaged { path, source }),
        Err(error)
            if matches!(
                error.kind(),
                std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory
            ) =>
        {
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

/// Stores the record in the directory of a cluster.
pub(crate) fn write(dir: &Path, record: &Record) -> Result<(), Error> {
    let text = serde_json::to_string_pretty(record).map_err(std::io::Error::other)?;
    let draft = dir.join(format!("{RECORD}.new"));
    fs_err::write(&draft, text)?;
    fs_err::rename(draft, dir.join(RECORD))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    mod fuzz {
        use serde_json::json;

        use super::super::*;

        #[test]
        fn no_record_stops_its_reader_and_an_accepted_one_is_written_alike() {
            let process = json!({"pid": 1, "start_ticks": 7, "boot_id": "b"});
            let seed = json!({"owner": process, "holder": process, "detached": true, "nodes": 4, "local": null});
            let dir = tempfile::tempdir().expect("a directory");
            ::fuzz::run(file!(), |input| {
                let mut changed = seed.clone();
                ::fuzz::mutate::document(&mut changed, input)?;
                let text = ::fuzz::mutate::text(&changed.to_string(), input)?;
                std::fs::write(dir.path().join(RECORD), text).expect("written");
                if let Ok(Some(record)) = read(dir.path()) {
                    record.is_stale();
                    write(dir.path(), &record).expect("written");
                    let again = read(dir.path()).expect("a record").expect("there");
                    let [one, other] = [&record, &again]
                        .map(|record| serde_json::to_string(record).expect("JSON"));
                    assert_eq!(one, other);
                }
                Ok(())
            });
        }
    }
}
