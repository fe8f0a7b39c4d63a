//! Messages between a harness and the holder: one JSON object a line, one reply a request.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::local::net::Subnet;

/// What the launcher and the holder write to their standard output, in this order.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Announcement {
    /// The holder runs.
    Launched {
        /// Its process id in the namespace of the launcher.
        pid: u32,
    },
    /// The namespaces are made and the socket accepts requests.
    Ready {
        /// The network that was free.
        subnet: Subnet,
    },
    /// The holder could not prepare itself and ends.
    Failed {
        /// Why, with all causes.
        error: String,
    },
}

/// A request to the holder.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(tag = "op", rename_all = "kebab-case")]
pub enum Request {
    /// Start a process under a name that no running process has.
    Start(Start),
    /// Send a signal, wait, and kill what is left; the request is answered when the process is gone.
    Stop {
        /// Name of the process.
        name: String,
        /// First signal, by number.
        signal: i32,
        /// Milliseconds until `SIGKILL`.
        patience_ms: u64,
    },
    /// Send a signal and do not wait.
    Signal {
        /// Name of the process.
        name: String,
        /// Signal, by number.
        signal: i32,
    },
    /// Only tell about the processes, as every reply does.
    List,
    /// Survive the end of the owner.
    Detach,
    /// End the cluster.
    Quit,
}

/// A process to start.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Start {
    /// Name by which the process is known from now on.
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
    /// Why the request was not carried out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// All processes known by name.
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
    /// Its id in the PID namespace of the cluster.
    pub pid: i32,
    /// How it ended (`exit status: 1`, `signal: SIGKILL`); none while it runs.
    pub ended: Option<String>,
    /// Where its output went.
    pub log: PathBuf,
}
