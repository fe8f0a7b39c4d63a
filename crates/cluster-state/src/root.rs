//! Where the directories of clusters are: the state root.

use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use fs_err::os::unix::fs::OpenOptionsExt as _;
use nix::sys::statfs::{TMPFS_MAGIC, statfs};
use nix::sys::statvfs::statvfs;
use nix::unistd::{AccessFlags, access, getuid};

use crate::error::Error;

/// In-memory file system that every Linux has, and the bytes that must be free there for a whole run.
const MEMORY_ROOT: &str = "/dev/shm";
const MIN_FREE_BYTES: u64 = 256 << 20;
/// Mode of the directories here: nobody else lists them or reaches what is below.
pub(crate) const PRIVATE: u32 = 0o700;
/// Mode of the files with secrets.
const PRIVATE_FILE: u32 = 0o600;
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// Returns the default state root: `$XDG_STATE_HOME/numaresources`, or `~/.local/state/numaresources`; if that is not writable, this user's
/// directory below the one for temporary files.
pub fn default_root() -> PathBuf {
    let home = || PathBuf::from(std::env::var_os("HOME").unwrap_or_else(|| "/".into()));
    let root = std::env::var_os("XDG_STATE_HOME")
        .filter(|dir| !dir.is_empty())
        .map_or_else(|| home().join(".local/state"), PathBuf::from)
        .join("numaresources");
    if make(&root).is_ok() && access(&root, AccessFlags::W_OK).is_ok() {
        return root;
    }
    let temporary = std::env::temp_dir().join(format!("numaresources-{}", getuid()));
    // where it is somebody else's, the first root fails, with its reason
    if is_own(&temporary) { temporary } else { root }
}

/// Makes a directory for this user alone, and those above it, where they are missing.
pub(crate) fn make(dir: &Path) -> std::io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true).mode(PRIVATE).create(dir)
}

/// Makes the directory of a cluster, for this user alone: kubeconfigs, keys and sockets are below it.
pub(crate) fn make_new(dir: &Path) -> std::io::Result<()> {
    std::fs::DirBuilder::new().mode(PRIVATE).create(dir)
}

/// Writes a file that only this user may read and change: one with a token or a key.
///
/// # Errors
/// When the file cannot be made or written.
pub fn write_private(path: &Path, content: &str) -> std::io::Result<()> {
    let mut options = fs_err::OpenOptions::new();
    options.create(true).write(true).truncate(true);
    options.mode(PRIVATE_FILE);
    options.open(path)?.write_all(content.as_bytes())
}

/// Refuses a state root that others may change: its records say which processes are ended and which directories removed.
pub(crate) fn check(root: &Path) -> Result<(), Error> {
    let found = fs_err::metadata(root)?;
    if found.uid() == getuid().as_raw() && found.mode() & WRITABLE_BY_OTHERS == 0 {
        Ok(())
    } else {
        Err(Error::NotOurs(root.to_owned()))
    }
}

/// Returns the state root for a cluster that ends with this process: in memory if there is enough room, otherwise the default one.
///
/// Each pod has a dozen directories. A disk takes milliseconds to remove one, and the pods of a run would spend most of their time on that.
pub fn temporary_root() -> PathBuf {
    let root = Path::new(MEMORY_ROOT).join(format!("numaresources-{}", getuid()));
    if has_free_memory() && is_own(&root) {
        root
    } else {
        default_root()
    }
}

fn has_free_memory() -> bool {
    let is_in_memory = statfs(MEMORY_ROOT).is_ok_and(|it| it.filesystem_type() == TMPFS_MAGIC);
    let free = statvfs(MEMORY_ROOT).map_or(0, |it| it.blocks_available() * it.fragment_size());
    is_in_memory && free >= MIN_FREE_BYTES
}

/// Returns whether a directory belongs to this user, because anybody could have made it; makes it when it is missing.
fn is_own(dir: &Path) -> bool {
    let _ = std::fs::DirBuilder::new().mode(PRIVATE).create(dir);
    std::fs::symlink_metadata(dir).is_ok_and(|it| it.is_dir() && it.uid() == getuid().as_raw())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_root_in_memory_is_a_directory_of_ours_that_nobody_else_reads() {
        use std::os::unix::fs::PermissionsExt as _;
        let place = tempfile::tempdir().unwrap();
        let dir = place.path().join("ours");
        assert!(is_own(&dir), "it is made");
        assert!(is_own(&dir), "it is there");
        let mode = fs_err::metadata(&dir).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        let link = place.path().join("link");
        fs_err::os::unix::fs::symlink(&dir, &link).unwrap();
        assert!(!is_own(&link), "it may lead anywhere");
        assert!(!is_own(&place.path().join("none/ours")));
    }

    #[test]
    fn a_root_that_others_may_write_to_is_refused() {
        use std::os::unix::fs::PermissionsExt as _;
        let place = tempfile::tempdir().unwrap();
        let root = place.path().join("a/b");
        make(&root).unwrap();
        check(&root).unwrap();
        for (mode, refused) in [(0o755, false), (0o775, true), (0o1777, true)] {
            let permissions = std::fs::Permissions::from_mode(mode);
            fs_err::set_permissions(&root, permissions).unwrap();
            let outcome = check(&root);
            assert_eq!(
                matches!(outcome, Err(Error::NotOurs(_))),
                refused,
                "{mode:o}"
            );
        }
    }
}
