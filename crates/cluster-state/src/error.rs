//! Why the state of clusters could not be read or changed.

use std::path::{Path, PathBuf};

/// Why the state of clusters could not be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file or directory could not be used.
    #[error("cannot use the state directory")]
    Io(#[from] std::io::Error),
    /// The name is not valid for a cluster and its directory.
    #[error("cluster name {0:?} must be 1 to 32 lower-case letters, digits and hyphens")]
    Name(String),
    /// Sockets below the directory would have longer paths than the kernel accepts.
    #[error("the state directory {} is {excess} characters too long for unix sockets: choose a shorter one", dir.display())]
    TooLong {
        /// Directory of the cluster.
        dir: PathBuf,
        /// Number of characters over the limit.
        excess: usize,
    },
    /// A cluster of this name is in use.
    #[error("cluster {name:?} exists already and belongs to process {pid}")]
    Exists {
        /// Name of the cluster.
        name: String,
        /// ID of the holder, or of the owner if the holder does not run.
        pid: i32,
    },
    /// There is no cluster of this name.
    #[error("no cluster {name:?} below {}", root.display())]
    Absent {
        /// Name of the cluster.
        name: String,
        /// The state root.
        root: PathBuf,
    },
    /// A directory of this name exists, but it is not a cluster's.
    #[error("{} exists and is not a cluster's directory: remove it or choose another name", .0.display())]
    Foreign(PathBuf),
    /// Somebody else may change the state root, and with it which processes are ended and which files removed.
    #[error("the state directory {} belongs to somebody else, or others may write to it: choose another one, or make it yours alone (chmod go-w)", .0.display())]
    NotOurs(PathBuf),
    /// A record could not be parsed.
    #[error("the record {} is damaged", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The parse error.
        #[source]
        source: serde_json::Error,
    },
    /// The holder of a cluster did not end after SIGKILL.
    #[error("the holder of the cluster, process {0}, does not end")]
    HolderSurvived(i32),
}

impl Error {
    /// Returns the error for a name that no cluster has.
    pub(crate) fn absent(root: &Path, name: &str) -> Self {
        Self::Absent {
            name: name.to_owned(),
            root: root.to_owned(),
        }
    }
}
