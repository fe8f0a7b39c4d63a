//! Files that others read while they change.

use std::ffi::OsString;
use std::io;
use std::path::Path;

/// Replaces a file in one step: readers see either the old or the new content, never a part.
///
/// The draft beside it, `__` and the file's name, is the original's (rte.md 6.4). After a crash it is there until the next call.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut name = OsString::from("__");
    name.push(path.file_name().ok_or(io::ErrorKind::InvalidInput)?);
    let draft = path.with_file_name(name);
    std::fs::write(&draft, content)?;
    std::fs::rename(draft, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_new_content_remains() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("status");
        for content in ["a longer one", "short"] {
            replace(&path, content.as_bytes()).unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), content);
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn old_content_stays_when_the_new_one_cannot_be_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("status");
        replace(&path, b"old").unwrap();
        std::fs::create_dir(dir.path().join("__status")).unwrap();
        replace(&path, b"new").unwrap_err();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "old");
    }
}
