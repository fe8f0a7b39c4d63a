//! A file that causes a scan when it is written or touched (rte.md 3). Its content is never read.
//!
//! The watch is on the directory, so it also notices when the file is removed and created again, or replaced.

use std::ffi::OsString;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::{fs, io};

use futures::{FutureExt as _, StreamExt as _};
use inotify::{EventMask, EventStream, Inotify, WatchMask};

/// Buffer size of one read, in bytes: enough for at least one event with the longest name.
const BUFFER: usize = 4096;

/// The file cannot be used for notifications.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The path exists, and is a file with content or not a regular file.
    #[error("cannot use \"{}\": already exists with size={size} isRegular={regular}", path.display())]
    AlreadyExists {
        /// The path.
        path: PathBuf,
        /// Size in bytes.
        size: u64,
        /// Whether it is a regular file.
        regular: bool,
    },
    /// The path is not an absolute path of a file.
    #[error("cannot use \"{}\": not an absolute path of a file", .0.display())]
    Path(PathBuf),
    /// The file or its directory cannot be created.
    #[error("cannot create \"{}\"", path.display())]
    Create {
        /// The path.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The directory cannot be watched.
    #[error("error adding watch on [{}]", path.display())]
    Watch {
        /// The path.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The directory is gone, and with it the watch.
    #[error("the directory of \"{}\" is gone", .0.display())]
    Lost(PathBuf),
}

/// Creates the file and its directories. Accepts an existing empty file.
pub(crate) fn prepare(path: &Path) -> Result<(), Error> {
    let (Some(dir), true) = (
        path.parent(),
        path.is_absolute() && path.file_name().is_some(),
    ) else {
        return Err(Error::Path(path.to_owned()));
    };
    match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_file() && metadata.len() == 0 => return Ok(()),
        Ok(metadata) => {
            return Err(Error::AlreadyExists {
                path: path.to_owned(),
                size: metadata.len(),
                regular: metadata.is_file(),
            });
        }
        Err(_absent_or_unreadable) => {}
    }
    let create = |source| Error::Create {
        path: path.to_owned(),
        source,
    };
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o750)
        .create(dir)
        .map_err(create)?;
    fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o644)
        .open(path)
        .map_err(create)?;
    Ok(())
}

/// Watches one file.
pub(crate) struct Watcher {
    events: EventStream<Vec<u8>>,
    path: PathBuf,
    name: OsString,
}

impl Watcher {
    /// Starts the watch; needs tokio's runtime.
    pub(crate) fn new(path: &Path) -> Result<Self, Error> {
        let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(Error::Path(path.to_owned()));
        };
        let watch = |source| Error::Watch {
            path: path.to_owned(),
            source,
        };
        let inotify = Inotify::init().map_err(watch)?;
        let interest = WatchMask::MODIFY
            | WatchMask::ATTRIB
            | WatchMask::CREATE
            | WatchMask::MOVED_TO
            | WatchMask::ONLYDIR;
        inotify.watches().add(dir, interest).map_err(watch)?;
        Ok(Self {
            events: inotify.into_event_stream(vec![0; BUFFER]).map_err(watch)?,
            path: path.to_owned(),
            name: name.to_owned(),
        })
    }

    /// Waits until the file is written or touched. All events since the last call are merged into one.
    pub(crate) async fn next(&mut self) -> Result<(), Error> {
        while !self.concerns_file().await? {}
        while let Some(event) = self.concerns_file().now_or_never() {
            event?;
        }
        Ok(())
    }

    /// Waits for the next event of the directory. Returns whether it may concern the file.
    async fn concerns_file(&mut self) -> Result<bool, Error> {
        match self.events.next().await {
            None => Err(Error::Lost(self.path.clone())),
            Some(Err(source)) => Err(Error::Watch {
                path: self.path.clone(),
                source,
            }),
            Some(Ok(event)) if event.mask.contains(EventMask::IGNORED) => {
                Err(Error::Lost(self.path.clone()))
            }
            // after an overflow the lost events may have concerned the file
            Some(Ok(event)) => Ok(event.mask.contains(EventMask::Q_OVERFLOW)
                || event.name.as_ref() == Some(&self.name)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;

    async fn event(watcher: &mut Watcher) {
        tokio::time::timeout(Duration::from_secs(20), watcher.next())
            .await
            .unwrap()
            .unwrap();
    }

    fn touch(path: &Path) {
        let file = fs::OpenOptions::new().append(true).open(path).unwrap();
        file.set_modified(SystemTime::now()).unwrap();
    }

    #[tokio::test]
    async fn touches_writes_and_replacements_are_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("deep/er/notify");
        prepare(&path).unwrap();
        prepare(&path).unwrap();
        let mut watcher = Watcher::new(&path).unwrap();

        touch(&path);
        event(&mut watcher).await;

        fs::write(&path, "x").unwrap();
        event(&mut watcher).await;

        fs::remove_file(&path).unwrap();
        fs::write(&path, "").unwrap();
        event(&mut watcher).await;

        let other = path.with_file_name("other");
        fs::write(&other, "").unwrap();
        fs::rename(&other, &path).unwrap();
        event(&mut watcher).await;
    }

    #[tokio::test]
    async fn other_files_are_not_and_a_lost_directory_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run/notify");
        prepare(&path).unwrap();
        let mut watcher = Watcher::new(&path).unwrap();
        fs::write(path.with_file_name("other"), "x").unwrap();
        fs::remove_dir_all(path.parent().unwrap()).unwrap();
        // an event of the other file would come first
        assert!(matches!(watcher.next().await, Err(Error::Lost(_))));
    }

    #[test]
    fn file_with_content_is_not_touched() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        fs::write(&path, "precious").unwrap();
        let error = prepare(&path).unwrap_err().to_string();
        assert!(
            error.ends_with("already exists with size=8 isRegular=true"),
            "{error}"
        );
        assert!(prepare(dir.path()).is_err());
        assert!(matches!(prepare(Path::new("notify")), Err(Error::Path(_))));
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
    }
}
