//! Finds clusters by their records.

use std::path::Path;

use crate::error::Error;
use crate::layout::{check_name, dir, directories};
use crate::record::{Record, read};

/// Returns the record of a cluster whose holder runs.
pub fn find(root: &Path, name: &str) -> Result<Record, Error> {
    check_name(name)?;
    match read(&dir(root, name))? {
        Some(record) if record.holder_runs() => Ok(record),
        _ => Err(Error::absent(root, name)),
    }
}

/// Returns the record of a cluster, whether its holder runs or not.
pub fn recorded(root: &Path, name: &str) -> Result<Record, Error> {
    check_name(name)?;
    read(&dir(root, name))?.ok_or_else(|| Error::absent(root, name))
}

/// Returns the names and records of all clusters below the root, and whether the holder of each runs.
pub fn list(root: &Path) -> Result<Vec<(String, Record, bool)>, Error> {
    let mut clusters = Vec::new();
    for (name, dir) in directories(root)? {
        if let Some(record) = read(&dir)? {
            let runs = record.holder_runs();
            clusters.push((name, record, runs));
        }
    }
    clusters.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(clusters)
}
