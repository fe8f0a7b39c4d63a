//! What a state root holds: a lock, and a directory for each cluster.

use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::root;

const LOCK: &str = "lock";

/// Returns the directory of a cluster.
pub fn dir(root: &Path, name: &str) -> PathBuf {
    root.join(name)
}

/// Returns the names and paths of all directories below the root.
pub(crate) fn directories(root: &Path) -> Result<Vec<(String, PathBuf)>, Error> {
    if !root.exists() {
        return Ok(Vec::new());
    }
    let mut list = Vec::new();
    for entry in fs_err::read_dir(root)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            list.push((
                entry.file_name().to_string_lossy().into_owned(),
                entry.path(),
            ));
        }
    }
    Ok(list)
}

/// Waits for the lock of the root and holds it until the file is dropped. Every change begins here, so a root that others may change is
/// refused here.
pub(crate) fn lock(root: &Path) -> Result<std::fs::File, Error> {
    root::check(root)?;
    let file = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(root.join(LOCK))?;
    file.lock()?;
    Ok(file)
}

/// Refuses a name that is not valid for a cluster and its directory.
pub(crate) fn check_name(name: &str) -> Result<(), Error> {
    let valid = (1..=32).contains(&name.len())
        && name
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
        && name != LOCK;
    if valid {
        Ok(())
    } else {
        Err(Error::Name(name.to_owned()))
    }
}
