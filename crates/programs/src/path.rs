//! Programs of this machine.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

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
