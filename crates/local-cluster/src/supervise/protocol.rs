//! Messages between a harness and the holder: one JSON object per line, one reply per request.

use std::collections::BTreeMap;
use std::path::PathBuf;

use cluster_spec::subnet::Subnet;
use serde::{Deserialize, Serialize};

/// What the launcher and the holder write to their standard output: the launcher the first, the holder one of the others, in either order.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Announcement {
    /// The holder runs.
    Launched {
        /// Its process ID in the launcher's namespace.
        pid: u32,
    },
    /// The namespaces are ready and the socket accepts requests.
    Ready {
        /// The network that the cluster took.
        subnet: Subnet,
    },
    /// The holder could not be prepared and ends.
    Failed {
        /// The error with all its causes.
        error: String,
    },
}

/// A request to the holder.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(tag = "op", rename_all = "kebab-case")]
pub enum Request {
    /// Start a process under a name that no running process has.
    Start(ProcessSpec),
    /// Send a signal, wait, and kill the process if it still runs. The reply comes when it has ended.
    Stop {
        /// Name of the process.
        name: String,
        /// First signal, by number.
        signal: i32,
        /// Milliseconds until `SIGKILL`.
        #[serde(rename = "patience_ms")]
        grace_ms: u64,
    },
    /// Send a signal without waiting.
    Signal {
        /// Name of the process.
        name: String,
        /// Signal, by number.
        signal: i32,
    },
    /// Only report the processes, as every reply does.
    List,
    /// Keep running after the end of the owner.
    Detach,
    /// End the cluster.
    Quit,
}

/// A process to start.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct ProcessSpec {
    /// Name of the process in later requests.
    pub name: String,
    /// Program (absolute path) and arguments.
    pub argv: Vec<String>,
    /// The whole environment.
    pub env: BTreeMap<String, String>,
    /// File that standard output and standard error are appended to.
    pub log: PathBuf,
    /// Working directory.
    pub cwd: PathBuf,
    /// Name of a running process whose mount and network namespaces the new one joins.
    #[serde(default)]
    pub join: Option<String>,
}

/// Answer to any request.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Reply {
    /// Why the request failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// All processes that were started by name.
    #[serde(default)]
    pub processes: Vec<ProcessStatus>,
}

impl Reply {
    pub(super) fn error(text: String) -> Self {
        Self {
            error: Some(text),
            processes: Vec::new(),
        }
    }
}

/// A process that the holder was asked to start.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct ProcessStatus {
    /// Its name.
    pub name: String,
    /// Its ID in the PID namespace of the cluster.
    pub pid: i32,
    /// How it ended (`exit status: 1`, `signal: SIGKILL`); none while it runs.
    pub ended: Option<String>,
    /// File with its output.
    pub log: PathBuf,
}
