//! Programs of this machine.

use std::fs::File;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use cluster_spec::progress::{Report, note};

/// Returns the first executable file of this name on `PATH`.
pub fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    find_in(std::env::split_paths(&path), name)
}

/// Returns the first executable file of this name in `directories`.
pub fn find_in(directories: impl IntoIterator<Item = PathBuf>, name: &str) -> Option<PathBuf> {
    directories
        .into_iter()
        .map(|dir| dir.join(name))
        .find(|file| {
            fs_err::metadata(file)
                .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
        })
}

/// Returns the directory in the user's cache for programs that were made or unpacked here.
pub fn cache_dir() -> PathBuf {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let cache = set("XDG_CACHE_HOME").map_or_else(
        || PathBuf::from(set("HOME").unwrap_or_else(|| "/".into())).join(".cache"),
        PathBuf::from,
    );
    cache.join("numaresources")
}

/// Waits until no other process has this file locked, and locks it until the returned value is dropped. `waiting` is told if another one has it.
pub(crate) fn lock(file: &Path, waiting: &str, report: Report<'_>) -> std::io::Result<File> {
    let lock = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(file)?;
    if lock.try_lock().is_err() {
        note(report, waiting);
        lock.lock()?;
    }
    Ok(lock)
}
