//! A client of the holder of a cluster (blocking; the holder answers every request but a stop at once).

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::SOCKET;
use super::protocol::{ProcessSpec, ProcessStatus, Reply, Request};

/// Longest time that a request other than a stop may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// Why a request to the holder failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The socket could not be used: the cluster has ended, or belongs to another user.
    #[error("cannot communicate with the cluster's holder at {}", socket.display())]
    Connection {
        /// The socket.
        socket: PathBuf,
        /// What went wrong.
        #[source]
        source: std::io::Error,
    },
    /// The holder answered with an error.
    #[error("the cluster's holder refused: {0}")]
    Refused(String),
}

/// A client of one holder; each request uses a connection of its own.
#[derive(Clone, Debug)]
pub struct Client {
    socket: PathBuf,
}

impl Client {
    /// Creates a client of the holder of the cluster in this directory.
    pub fn new(state_dir: &Path) -> Self {
        Self {
            socket: state_dir.join(SOCKET),
        }
    }

    /// Starts a process.
    pub fn start(&self, start: ProcessSpec) -> Result<(), Error> {
        self.request(&Request::Start(start), ANSWER_TIMEOUT)
            .map(drop)
    }

    /// Stops a process: sends the signal, waits for `grace`, then sends `SIGKILL`. Returns when the process has ended.
    pub fn stop(&self, name: &str, signal: i32, grace: Duration) -> Result<(), Error> {
        let request = Request::Stop {
            name: name.to_owned(),
            signal,
            grace_ms: u64::try_from(grace.as_millis()).unwrap_or(u64::MAX),
        };
        self.request(&request, grace + ANSWER_TIMEOUT).map(drop)
    }

    /// Sends a signal to a process.
    pub fn signal(&self, name: &str, signal: i32) -> Result<(), Error> {
        let request = Request::Signal {
            name: name.to_owned(),
            signal,
        };
        self.request(&request, ANSWER_TIMEOUT).map(drop)
    }

    /// Returns all processes that were started by name.
    pub fn list(&self) -> Result<Vec<ProcessStatus>, Error> {
        self.request(&Request::List, ANSWER_TIMEOUT)
            .map(|reply| reply.processes)
    }

    /// Lets the cluster outlive this process.
    pub fn detach(&self) -> Result<(), Error> {
        self.request(&Request::Detach, ANSWER_TIMEOUT).map(drop)
    }

    fn request(&self, request: &Request, timeout: Duration) -> Result<Reply, Error> {
        let reply = self
            .exchange(request, timeout)
            .map_err(|source| Error::Connection {
                socket: self.socket.clone(),
                source,
            })?;
        match reply.error {
            Some(error) => Err(Error::Refused(error)),
            None => Ok(reply),
        }
    }

    fn exchange(&self, request: &Request, timeout: Duration) -> std::io::Result<Reply> {
        let mut stream = UnixStream::connect(&self.socket)?;
        stream.set_read_timeout(Some(timeout))?;
        let text = serde_json::to_string(request).map_err(std::io::Error::other)?;
        writeln!(stream, "{text}")?;
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line)?;
        serde_json::from_str(&line).map_err(std::io::Error::other)
    }
}
