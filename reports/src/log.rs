//! The event log: one JSON object per line, on disk as soon as the event occurs.
//!
//! On a cluster that was given to the run it is also the ledger: the undo of each change is on disk before the change is made.

use std::fs::{File, TryLockError};
use std::io::{BufRead, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::event::{Event, Record};
use crate::stream::{Reader, chain};

/// Why the log cannot be written or read.
#[derive(Debug, Error)]
pub enum Error {
    /// The file cannot be opened.
    #[error("cannot open the event log {path}")]
    Open {
        /// Which file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// Another process writes the file.
    #[error("the event log {path} is that of a run that is not over, or of a cleanup that is not")]
    InUse {
        /// Which file.
        path: PathBuf,
    },
    /// Writing the file failed.
    #[error("cannot write the event log {path}")]
    Write {
        /// Which file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// Reading the file failed.
    #[error("cannot read the event log {path}")]
    Read {
        /// Which file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// No line of the file is a record.
    #[error("{path} is no event log: none of its lines is a record")]
    NoRecord {
        /// Which file.
        path: PathBuf,
    },
}

/// Writes every record as it arrives. Each line is one write, so a written line survives the end of the process. The file is locked as long
/// as the writer lives, by which others learn that the run is not over.
#[derive(Debug)]
pub struct Writer {
    path: PathBuf,
    file: File,
    /// Whether undos must survive the end of the machine, too.
    is_ledger: bool,
    failed: Option<Error>,
}

impl Writer {
    /// Starts a log. A file that is there already is left alone: it may be the only copy of what another run has to undo.
    pub fn create(path: &Path) -> Result<Self, Error> {
        let open = |source| Error::Open {
            path: path.to_owned(),
            source,
        };
        let dir = path.parent();
        if let Some(dir) = dir {
            std::fs::create_dir_all(dir).map_err(open)?;
        }
        let file = File::options().append(true).create_new(true).open(path);
        let writer = Self::of(path, file.map_err(open)?)?;
        // the name of the file has to survive as well as its content
        if let Some(dir) = dir {
            File::open(dir)
                .and_then(|dir| dir.sync_all())
                .map_err(open)?;
        }
        Ok(writer)
    }

    /// Continues a log whose run is over.
    pub fn append(path: &Path) -> Result<Self, Error> {
        let open = |source| Error::Open {
            path: path.to_owned(),
            source,
        };
        let file = File::options().read(true).append(true).open(path);
        let mut writer = Self::of(path, file.map_err(open)?)?;
        writer.end_last_line().map_err(|source| Error::Write {
            path: path.to_owned(),
            source,
        })?;
        Ok(writer)
    }

    fn of(path: &Path, file: File) -> Result<Self, Error> {
        // a file system without locks cannot say whether a run is over; everything else works there
        if let Err(TryLockError::WouldBlock) = file.try_lock() {
            return Err(Error::InUse {
                path: path.to_owned(),
            });
        }
        Ok(Self {
            path: path.to_owned(),
            file,
            is_ledger: false,
            failed: None,
        })
    }

    /// Ends the line at which the former writer was killed.
    fn end_last_line(&mut self) -> std::io::Result<()> {
        let mut last = [b'\n'];
        if self.file.seek(SeekFrom::End(0))? > 0 {
            self.file.seek(SeekFrom::End(-1))?;
            self.file.read_exact(&mut last)?;
        }
        if last == [b'\n'] {
            return Ok(());
        }
        self.file.write_all(b"\n")
    }

    fn fails(&mut self, source: std::io::Error) {
        self.failed = Some(Error::Write {
            path: self.path.clone(),
            source,
        });
    }
}

impl Reader for Writer {
    /// After the first error nothing more is written: what follows a gap would mislead.
    fn read(&mut self, record: &Record) {
        if self.failed.is_some() {
            return;
        }
        self.is_ledger |= matches!(record.event, Event::ClusterClaimed { .. });
        let written = serde_json::to_vec(record)
            .map_err(std::io::Error::from)
            .and_then(|mut line| {
                line.push(b'\n');
                self.file.write_all(&line)
            });
        if let Err(error) = written {
            self.fails(error);
        }
    }

    fn secure(&mut self) -> Result<(), String> {
        if self.failed.is_none()
            && self.is_ledger
            && let Err(error) = self.file.sync_data()
        {
            self.fails(error);
        }
        self.failure().map_or(Ok(()), Err)
    }

    fn failure(&self) -> Option<String> {
        self.failed.as_ref().map(|error| chain(error))
    }
}

/// What a log holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Log {
    /// Its records.
    pub records: Vec<Record>,
    /// How many lines are no records. The last line is not counted if the writer was killed while it wrote it.
    pub damaged: usize,
}

impl Log {
    /// Returns whether the run came to its end.
    pub fn is_finished(&self) -> bool {
        let is_end = |record: &Record| matches!(record.event, Event::RunFinished { .. });
        self.records.iter().any(is_end)
    }
}

/// Reads a log, also a damaged one. That of a run that was killed at once has no record.
pub fn read(path: &Path) -> Result<Log, Error> {
    let file = File::open(path).map_err(|source| Error::Open {
        path: path.to_owned(),
        source,
    })?;
    let mut file = BufReader::new(file);
    let mut log = Log::default();
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = file.read_until(b'\n', &mut line);
        let read = read.map_err(|source| Error::Read {
            path: path.to_owned(),
            source,
        })?;
        if read == 0 {
            break;
        }
        match serde_json::from_slice(&line) {
            Ok(record) => log.records.push(record),
            Err(_) if line.last() == Some(&b'\n') => log.damaged += 1,
            Err(_) => {}
        }
    }
    if log.records.is_empty() && log.damaged > 0 {
        return Err(Error::NoRecord {
            path: path.to_owned(),
        });
    }
    Ok(log)
}

/// Returns whether a process writes this log, as far as the file system can say it.
pub fn is_in_use(path: &Path) -> bool {
    let locked = File::open(path).map(|file| file.try_lock());
    matches!(locked, Ok(Err(TryLockError::WouldBlock)))
}

/// Returns whether it is certain that no process writes this log: the file system has locks, and nobody has that of the file.
pub fn is_released(path: &Path) -> bool {
    let locked = File::open(path).map(|file| file.try_lock());
    matches!(locked, Ok(Ok(())))
}

/// Passes a recorded run to a reader as if it took place now.
pub fn replay(records: &[Record], reader: &mut dyn Reader) {
    for record in records {
        reader.read(record);
    }
}

#[cfg(test)]
mod tests;
