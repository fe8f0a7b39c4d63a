//! Container log files in the CRI's format: `<RFC 3339 time> <stdout|stderr> <F|P> <text>`, one record per line.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use k8s_openapi::jiff::Timestamp;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt as _};

/// Longest text of one record, in bytes; a longer line is split into records, all but the last marked `P`.
const RECORD_LIMIT: usize = 16 * 1024;

/// The source of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

impl Stream {
    fn as_str(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }
}

/// The text of one record.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Part {
    text: Vec<u8>,
    /// Whether the line ends with this record.
    full: bool,
}

/// Splits a stream of bytes into records.
#[derive(Debug, Default)]
struct Splitter {
    pending: Vec<u8>,
}

impl Splitter {
    fn feed(&mut self, bytes: &[u8]) -> Vec<Part> {
        self.pending.extend_from_slice(bytes);
        let mut parts = Vec::new();
        let mut start = 0;
        loop {
            let rest = &self.pending[start..];
            let window = &rest[..rest.len().min(RECORD_LIMIT + 1)];
            let (length, skip, full) = match window.iter().position(|byte| *byte == b'\n') {
                Some(at) => (at, at + 1, true),
                None if rest.len() > RECORD_LIMIT => (RECORD_LIMIT, RECORD_LIMIT, false),
                None => break,
            };
            parts.push(Part {
                text: rest[..length].to_vec(),
                full,
            });
            start += skip;
        }
        self.pending.drain(..start);
        parts
    }

    /// Returns the rest at the end of the stream: a line without its newline.
    fn finish(self) -> Option<Part> {
        (!self.pending.is_empty()).then_some(Part {
            text: self.pending,
            full: false,
        })
    }
}

fn record(at: Timestamp, stream: Stream, part: &Part) -> Vec<u8> {
    let mark = if part.full { "F" } else { "P" };
    let mut record = format!("{at:.9} {} {mark} ", stream.as_str()).into_bytes();
    record.extend_from_slice(&part.text);
    record.push(b'\n');
    record
}

/// The log file of one container, shared by both streams.
#[derive(Debug)]
pub struct LogFile {
    path: PathBuf,
    file: Mutex<File>,
}

impl LogFile {
    /// Opens the file for appending; creates missing directories.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self {
            path: path.to_owned(),
            file: Mutex::new(open(path)?),
        })
    }

    /// Reopens the path, because the kubelet renamed the old file to rotate it.
    pub fn reopen(&self) -> io::Result<()> {
        let file = open(&self.path)?;
        *self.file.lock() = file;
        Ok(())
    }

    fn write(&self, stream: Stream, parts: &[Part]) {
        let now = Timestamp::now();
        let bytes: Vec<u8> = parts
            .iter()
            .flat_map(|part| record(now, stream, part))
            .collect();
        let mut file = self.file.lock();
        if let Err(error) = file.write_all(&bytes) {
            tracing::warn!(path = %self.path.display(), %error, "Cannot write container output");
        }
    }

    /// Writes everything from `source` until it ends.
    pub async fn copy(&self, stream: Stream, mut source: impl AsyncRead + Unpin) {
        let mut splitter = Splitter::default();
        let mut buffer = vec![0; 8 * 1024];
        // A pipe that cannot be read has ended, too.
        while let Ok(length @ 1..) = source.read(&mut buffer).await {
            let parts = splitter.feed(&buffer[..length]);
            if !parts.is_empty() {
                self.write(stream, &parts);
            }
        }
        if let Some(part) = splitter.finish() {
            self.write(stream, &[part]);
        }
    }
}

fn open(path: &Path) -> io::Result<File> {
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent)?;
    }
    OpenOptions::new().create(true).append(true).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mk_part(text: &str, full: bool) -> Part {
        Part {
            text: text.as_bytes().to_vec(),
            full,
        }
    }

    #[test]
    fn record_has_time_stream_mark_and_text() {
        let at: Timestamp = "2026-01-02T03:04:05.6Z".parse().unwrap();
        let line = record(at, Stream::Stderr, &mk_part("hello", true));
        assert_eq!(
            String::from_utf8(line).unwrap(),
            "2026-01-02T03:04:05.600000000Z stderr F hello\n"
        );
    }

    #[test]
    fn line_without_its_newline_is_partial() {
        let at: Timestamp = "2026-01-02T03:04:05Z".parse().unwrap();
        let line = record(at, Stream::Stdout, &mk_part("x", false));
        assert_eq!(
            String::from_utf8(line).unwrap(),
            "2026-01-02T03:04:05.000000000Z stdout P x\n"
        );
    }

    #[test]
    fn lines_are_found_across_reads() {
        let mut splitter = Splitter::default();
        assert_eq!(splitter.feed(b"a"), []);
        assert_eq!(
            splitter.feed(b"b\n\nc"),
            [mk_part("ab", true), mk_part("", true)]
        );
        assert_eq!(splitter.finish(), Some(mk_part("c", false)));
    }

    #[test]
    fn long_line_is_cut_into_partial_records() {
        let mut splitter = Splitter::default();
        let mut line = "x".repeat(RECORD_LIMIT + 5);
        line.push('\n');
        let parts = splitter.feed(line.as_bytes());
        assert_eq!(
            parts,
            [
                mk_part(&"x".repeat(RECORD_LIMIT), false),
                mk_part("xxxxx", true)
            ]
        );
        assert_eq!(splitter.finish(), None);
    }

    #[test]
    fn line_of_exactly_the_limit_is_one_record() {
        let mut splitter = Splitter::default();
        assert_eq!(splitter.feed("x".repeat(RECORD_LIMIT).as_bytes()), []);
        let parts = splitter.feed(b"\n");
        assert_eq!(parts, [mk_part(&"x".repeat(RECORD_LIMIT), true)]);
    }

    #[tokio::test]
    async fn rotation_continues_in_a_new_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("deep/0.log");
        let log = LogFile::open(&path).unwrap();
        log.copy(Stream::Stdout, &b"one\n"[..]).await;
        fs_err::rename(&path, directory.path().join("deep/0.log.1")).unwrap();
        log.reopen().unwrap();
        log.copy(Stream::Stdout, &b"two\n"[..]).await;
        let text = fs_err::read_to_string(&path).unwrap();
        assert!(text.ends_with(" stdout F two\n"), "{text}");
        assert!(!text.contains("one"), "{text}");
    }
}
