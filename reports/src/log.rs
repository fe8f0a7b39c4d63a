//! The event log: one JSON object per line, on disk as soon as the event occurs.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::event::Record;
use crate::stream::Reader;

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
    /// Reading the file failed.
    #[error("cannot read the event log {path}")]
    Read {
        /// Which file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A line, other than an unfinished last one, is not a record.
    #[error("line {line} of the event log {path} is not a record")]
    Line {
        /// Which file.
        path: PathBuf,
        /// Which line, from 1.
        line: usize,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
}

/// Writes every record as it arrives. Each line is one write, so a written line survives the end of the process.
#[derive(Debug)]
pub struct Writer {
    file: File,
    failed: Option<std::io::Error>,
}

impl Writer {
    /// Starts a log, replacing an older one.
    pub fn create(path: &Path) -> Result<Self, Error> {
        let open = |source| Error::Open {
            path: path.to_owned(),
            source,
        };
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).map_err(open)?;
        }
        let file = File::create(path).map_err(open)?;
        Ok(Self { file, failed: None })
    }

    /// Returns the first error. After it nothing more is written.
    pub fn failure(&self) -> Option<&std::io::Error> {
        self.failed.as_ref()
    }
}

impl Reader for Writer {
    fn read(&mut self, record: &Record) {
        if self.failed.is_some() {
            return;
        }
        let written = serde_json::to_vec(record)
            .map_err(std::io::Error::from)
            .and_then(|mut line| {
                line.push(b'\n');
                self.file.write_all(&line)
            });
        self.failed = written.err();
    }
}

/// Reads a log. An unfinished last line (the writer was killed) is left out.
pub fn read(path: &Path) -> Result<Vec<Record>, Error> {
    let file = File::open(path).map_err(|source| Error::Open {
        path: path.to_owned(),
        source,
    })?;
    let mut lines = BufReader::new(file).split(b'\n').enumerate().peekable();
    let mut records = Vec::new();
    while let Some((index, line)) = lines.next() {
        let line = line.map_err(|source| Error::Read {
            path: path.to_owned(),
            source,
        })?;
        match serde_json::from_slice(&line) {
            Ok(record) => records.push(record),
            Err(_) if lines.peek().is_none() => {}
            Err(source) => {
                return Err(Error::Line {
                    path: path.to_owned(),
                    line: index + 1,
                    source,
                });
            }
        }
    }
    Ok(records)
}

/// Passes a recorded run to a reader as if it took place now.
pub fn replay(records: &[Record], reader: &mut dyn Reader) {
    for record in records {
        reader.read(record);
    }
}
