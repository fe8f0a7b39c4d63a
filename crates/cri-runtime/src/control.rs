//! The control protocol of a node: operations of a harness on containers, of which the kubelet knows nothing.
//!
//! Over a unix socket, one JSON object per line in each direction, any number of requests per connection:
//!
//! | request | answer |
//! |---|---|
//! | `{"op":"containers"}` | `{"ok":"containers","containers":[{"namespace":…,"pod":…,"container":…,"id":…,"attempt":0,"state":"running","pid":…,"cpus":"2-3","mems":"0"}]}` |
//! | `{"op":"signal","namespace":N,"pod":P,"container":C,"signal":"STOP"}` | `{"ok":"done"}` |
//! | `{"op":"exec","namespace":N,"pod":P,"container":C,"command":["cat","/etc/hosts"],"timeout_seconds":5}` | `{"ok":"output","exit_code":0,"stdout":…,"stderr":…}` |
//! | `{"op":"filter","pod_uid":U,"rules":"table inet …"}` | `{"ok":"done"}` |
//!
//! An error is `{"error":"…"}`. Signals are `STOP`, `CONT`, `TERM` and `KILL`; the first two reach every process of the
//! container. Output that is not UTF-8 is shown with replacement characters.
//!
//! [`server`] answers for the runtime of this package, [`by_cri`] for any other. `filter` applies rules in the pod's own network; for another
//! runtime in that of the node, through which all traffic of its pods passes.

pub mod by_cri;
pub mod server;

use std::fmt;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use nix::sys::signal;
use serde::{Deserialize, Serialize};

/// Default time limit of a command, in seconds.
const DEFAULT_EXEC_LIMIT: u64 = 30;
/// Time limit of an answer, in addition to that of the request itself.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);

/// A container by its names in Kubernetes; it refers to the newest attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub pod: String,
    /// Name of the container.
    pub container: String,
}

impl Target {
    /// Returns the container `container` of pod `namespace/pod`.
    pub fn new(namespace: &str, pod: &str, container: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            pod: pod.to_owned(),
            container: container.to_owned(),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.namespace, self.pod, self.container)
    }
}

/// The signals that can be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Signal {
    /// Freeze every process.
    Stop,
    /// Let every process continue.
    Cont,
    /// Kill the first process.
    Kill,
    /// Ask the first process to end.
    Term,
}

impl From<Signal> for signal::Signal {
    fn from(signal: Signal) -> Self {
        match signal {
            Signal::Stop => Self::SIGSTOP,
            Signal::Cont => Self::SIGCONT,
            Signal::Term => Self::SIGTERM,
            Signal::Kill => Self::SIGKILL,
        }
    }
}

impl FromStr for Signal {
    type Err = UnknownSignal;

    fn from_str(text: &str) -> Result<Self, UnknownSignal> {
        match text.strip_prefix("SIG").unwrap_or(text) {
            "STOP" => Ok(Self::Stop),
            "CONT" => Ok(Self::Cont),
            "KILL" => Ok(Self::Kill),
            "TERM" => Ok(Self::Term),
            _ => Err(UnknownSignal(text.to_owned())),
        }
    }
}

/// The name of no supported signal.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown signal {0:?}: STOP, CONT, KILL or TERM")]
pub struct UnknownSignal(String);

/// A request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "lowercase")]
pub enum Request {
    /// List the containers.
    Containers,
    /// Send a signal.
    Signal {
        /// The container.
        #[serde(flatten)]
        target: Target,
        /// The signal.
        signal: Signal,
    },
    /// Run a command.
    Exec {
        /// The container.
        #[serde(flatten)]
        target: Target,
        /// Program and arguments.
        command: Vec<String>,
        /// Time limit of the command.
        #[serde(default = "default_exec_limit")]
        timeout_seconds: u64,
    },
    /// Apply nftables rules to the traffic of a pod.
    Filter {
        /// UID of the pod.
        pod_uid: String,
        /// Input of `nft`.
        rules: String,
    },
}

fn default_exec_limit() -> u64 {
    DEFAULT_EXEC_LIMIT
}

/// State of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Not started yet.
    Created,
    /// Running (also while frozen).
    Running,
    /// Ended.
    Exited,
}

/// The runtime's facts about a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerFacts {
    /// Its names.
    #[serde(flatten)]
    pub target: Target,
    /// UID of the pod.
    pub pod_uid: String,
    /// ID in the runtime.
    pub id: String,
    /// Number of restarts.
    pub attempt: u32,
    /// State of the container.
    pub state: State,
    /// ID of its first process in the PID namespace of the node's runtime, while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<i32>,
    /// Exit code after its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Recorded CPU set; empty if there is none.
    pub cpus: String,
    /// Recorded memory nodes; empty if there are none.
    pub mems: String,
}

/// The result of a command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecOutput {
    /// Exit code, 128 + signal if a signal ended the command.
    pub exit_code: i32,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl ExecOutput {
    /// Creates the result from what the command wrote; what is no UTF-8 is replaced.
    pub fn new(exit_code: i32, stdout: &[u8], stderr: &[u8]) -> Self {
        Self {
            exit_code,
            stdout: String::from_utf8_lossy(stdout).into_owned(),
            stderr: String::from_utf8_lossy(stderr).into_owned(),
        }
    }
}

/// The answer to a request that succeeded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ok", rename_all = "lowercase")]
enum Answer {
    Done,
    Containers { containers: Vec<ContainerFacts> },
    Output(ExecOutput),
}

/// The answer to a request that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Refusal {
    error: String,
}

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The socket could not be used.
    #[error("cannot communicate with {}", path.display())]
    Socket {
        /// The socket.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The answer is not valid in this protocol.
    #[error("cannot parse the answer of {}", path.display())]
    InvalidAnswer {
        /// The socket.
        path: PathBuf,
        /// The parse error.
        #[source]
        source: serde_json::Error,
    },
    /// The node refused the request.
    #[error("{0}")]
    Refused(String),
    /// The answer belongs to another request.
    #[error("unexpected answer")]
    Unexpected,
}

/// A blocking client. It opens a connection for each request, so it survives a restart of the node.
#[derive(Clone, Debug)]
pub struct Client {
    socket: PathBuf,
}

impl Client {
    /// Creates a client of the control socket at `socket`.
    pub fn new(socket: impl Into<PathBuf>) -> Self {
        Self {
            socket: socket.into(),
        }
    }

    /// Returns the path of the socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Returns every container in the runtime's records.
    pub fn containers(&self) -> Result<Vec<ContainerFacts>, Error> {
        match self.ask(&Request::Containers, Duration::ZERO)? {
            Answer::Containers { containers } => Ok(containers),
            _ => Err(Error::Unexpected),
        }
    }

    /// Sends a signal to a running container.
    pub fn signal(&self, target: &Target, signal: Signal) -> Result<(), Error> {
        let request = Request::Signal {
            target: target.clone(),
            signal,
        };
        match self.ask(&request, Duration::ZERO)? {
            Answer::Done => Ok(()),
            _ => Err(Error::Unexpected),
        }
    }

    /// Runs a command in a running container; `limit` is rounded up to whole seconds.
    pub fn exec(
        &self,
        target: &Target,
        command: &[&str],
        limit: Duration,
    ) -> Result<ExecOutput, Error> {
        let request = Request::Exec {
            target: target.clone(),
            command: command.iter().map(|word| (*word).to_owned()).collect(),
            timeout_seconds: limit.as_secs() + u64::from(limit.subsec_nanos() > 0),
        };
        match self.ask(&request, limit)? {
            Answer::Output(output) => Ok(output),
            _ => Err(Error::Unexpected),
        }
    }

    /// Applies nftables rules to the traffic of a pod: in its own network, or in that of its node, see the head of this module.
    pub fn filter(&self, pod_uid: &str, rules: &str) -> Result<(), Error> {
        let request = Request::Filter {
            pod_uid: pod_uid.to_owned(),
            rules: rules.to_owned(),
        };
        match self.ask(&request, Duration::ZERO)? {
            Answer::Done => Ok(()),
            _ => Err(Error::Unexpected),
        }
    }

    fn ask(&self, request: &Request, extra: Duration) -> Result<Answer, Error> {
        let exchange = || {
            let mut line = serde_json::to_vec(request)?;
            line.push(b'\n');
            let mut socket = UnixStream::connect(&self.socket)?;
            socket.set_read_timeout(Some(ANSWER_LIMIT + extra))?;
            socket.write_all(&line)?;
            let mut answer = String::new();
            BufReader::new(socket).read_line(&mut answer)?;
            io::Result::Ok(answer)
        };
        let answer = exchange().map_err(|source| Error::Socket {
            path: self.socket.clone(),
            source,
        })?;
        if let Ok(refusal) = serde_json::from_str::<Refusal>(&answer) {
            return Err(Error::Refused(refusal.error));
        }
        serde_json::from_str(&answer).map_err(|source| Error::InvalidAnswer {
            path: self.socket.clone(),
            source,
        })
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case::containers(json!({"op": "containers"}), Request::Containers)]
    #[case::signal(
        json!({"op": "signal", "namespace": "n", "pod": "p", "container": "c", "signal": "STOP"}),
        Request::Signal { target: Target::new("n", "p", "c"), signal: Signal::Stop }
    )]
    #[case::exec_with_the_default_limit(
        json!({"op": "exec", "namespace": "n", "pod": "p", "container": "c", "command": ["true"]}),
        Request::Exec { target: Target::new("n", "p", "c"), command: vec!["true".to_owned()], timeout_seconds: 30 }
    )]
    #[case::filter(
        json!({"op": "filter", "pod_uid": "u", "rules": "r"}),
        Request::Filter { pod_uid: "u".to_owned(), rules: "r".to_owned() }
    )]
    fn requests_are_as_documented(#[case] json: serde_json::Value, #[case] expected: Request) {
        let request: Request = serde_json::from_value(json).unwrap();
        assert_eq!(request, expected);
    }

    #[test]
    fn answers_are_as_documented() {
        let done = serde_json::to_value(Answer::Done).unwrap();
        assert_eq!(done, json!({"ok": "done"}));
        let output = serde_json::to_value(Answer::Output(ExecOutput {
            exit_code: 0,
            stdout: "a".to_owned(),
            stderr: String::new(),
        }))
        .unwrap();
        assert_eq!(
            output,
            json!({"ok": "output", "exit_code": 0, "stdout": "a", "stderr": ""})
        );
    }

    #[rstest]
    #[case::short("STOP", Ok(Signal::Stop))]
    #[case::long("SIGKILL", Ok(Signal::Kill))]
    #[case::other("HUP", Err(UnknownSignal("HUP".to_owned())))]
    fn names_of_signals(#[case] text: &str, #[case] expected: Result<Signal, UnknownSignal>) {
        assert_eq!(text.parse(), expected);
    }

    #[test]
    fn client_without_a_server_names_the_socket() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("control.sock");
        let error = Client::new(&socket).containers().unwrap_err();
        assert!(error.to_string().contains("control.sock"), "{error}");
    }
}
