//! The process runtime: sandboxes and containers as processes of this node, without gRPC.
//!
//! State lives in memory: it survives a restart of the kubelet, and ends with this process, as do all its containers. Reading order:
//! [`records`] (the state), [`sandboxes`], [`containers`], [`exec`].

pub mod containers;
pub mod exec;
pub mod records;
pub mod sandboxes;

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use cluster_spec::images::{self, Images};
use parking_lot::{Mutex, MutexGuard};
use records::{Container, Sandbox};
use tokio::process::Command;

use super::cgroup::Online;
use super::namespaces::{self, Namespaces};
use super::network::{self, Network};
use super::rootfs::host::HostFacts;
use super::spawner::{self, Spawner};
use super::spec::NodeSpec;
use super::{filter, handoff, identity};

/// Why a call of the runtime failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The sandbox does not exist.
    #[error("an error occurred when try to find sandbox \"{0}\": not found")]
    NoSandbox(String),
    /// The container does not exist.
    #[error("an error occurred when try to find container \"{0}\": not found")]
    NoContainer(String),
    /// The image does not exist.
    #[error(transparent)]
    Image(#[from] images::NotFound),
    /// The request is incomplete or contradictory.
    #[error("{0}")]
    Invalid(&'static str),
    /// The object is not in the state that the call needs.
    #[error("{object} \"{id}\" is in state {state}")]
    State {
        /// `container` or `sandbox`.
        object: &'static str,
        /// Its ID.
        id: String,
        /// Its current state.
        state: &'static str,
    },
    /// The user of the container could not be determined.
    #[error("cannot determine the user of the container")]
    Identity(#[from] identity::Error),
    /// The sandbox's namespaces could not be created.
    #[error("failed to create the namespaces of the sandbox")]
    Namespaces(#[from] namespaces::Error),
    /// The sandbox's network could not be set up.
    #[error("failed to set up the network of the sandbox")]
    Network(#[from] network::Error),
    /// Connection tracking in the sandbox could not be set up.
    #[error("failed to set up connection tracking in the sandbox")]
    Filter(#[from] filter::Error),
    /// A process could not be started.
    #[error("failed to start a process")]
    Spawn(#[from] spawner::Error),
    /// The first process of a container could not become its program.
    #[error("OCI runtime create failed: unable to start container process")]
    Start(#[source] handoff::Error),
    /// A command could not be executed in a container.
    #[error("failed to exec in container")]
    Exec(#[source] handoff::Error),
    /// A command took too long.
    #[error("command timed out after {seconds} s")]
    Timeout {
        /// The limit.
        seconds: u64,
    },
    /// A container does not end.
    #[error("container \"{0}\" is still running after SIGKILL")]
    Unkillable(String),
    /// A file or directory of the runtime could not be used.
    #[error("cannot {action} {}", path.display())]
    File {
        /// The failed action.
        action: &'static str,
        /// The path.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// A signal could not be sent.
    #[error("cannot signal container \"{id}\"")]
    Signal {
        /// ID of the container.
        id: String,
        /// The system's error.
        #[source]
        source: nix::errno::Errno,
    },
}

impl Error {
    /// Returns the error with its causes, as one line.
    pub fn chain(&self) -> String {
        let causes: Vec<String> = anyhow::Chain::new(self).map(ToString::to_string).collect();
        causes.join(": ")
    }
}

fn file(action: &'static str, path: &std::path::Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::File {
        action,
        path,
        source,
    }
}

/// The runtime of one node.
#[derive(Debug)]
pub struct Runtime {
    /// The specification of the node.
    pub spec: NodeSpec,
    /// The images.
    pub images: Images,
    host: HostFacts,
    online: Online,
    network: Network,
    spawner: Spawner,
    records: Mutex<Records>,
}

/// All sandboxes and containers by ID.
#[derive(Debug, Default)]
struct Records {
    sandboxes: BTreeMap<String, Arc<Sandbox>>,
    containers: BTreeMap<String, Arc<Container>>,
}

impl Runtime {
    /// Prepares the node: its pod network and its state directory.
    pub async fn start(spec: NodeSpec) -> Result<Self, Error> {
        let containers = spec.state_dir.join("containers");
        // The directory of an earlier process, whose containers ended with it.
        if containers.exists() {
            std::fs::remove_dir_all(&containers).map_err(file("remove", &containers))?;
        }
        std::fs::create_dir_all(&containers).map_err(file("create", &containers))?;
        Ok(Self {
            network: Network::start(spec.pod_gateway, spec.pod_prefix).await?,
            spawner: Spawner::start()?,
            images: Images::new(spec.images.clone()),
            host: HostFacts::probe(),
            online: Online::read(),
            records: Mutex::default(),
            spec,
        })
    }

    /// Returns the sandbox with this ID.
    pub fn sandbox(&self, id: &str) -> Result<Arc<Sandbox>, Error> {
        self.records()
            .sandboxes
            .get(id)
            .cloned()
            .ok_or_else(|| Error::NoSandbox(id.to_owned()))
    }

    /// Returns the container with this ID.
    pub fn container(&self, id: &str) -> Result<Arc<Container>, Error> {
        self.records()
            .containers
            .get(id)
            .cloned()
            .ok_or_else(|| Error::NoContainer(id.to_owned()))
    }

    /// Returns all sandboxes, sorted by ID.
    pub fn sandboxes(&self) -> Vec<Arc<Sandbox>> {
        self.records().sandboxes.values().cloned().collect()
    }

    /// Returns the namespaces of a pod's ready sandbox.
    pub fn namespaces_of(&self, pod_uid: &str) -> Option<Arc<Namespaces>> {
        let mut sandboxes = self.sandboxes();
        sandboxes.retain(|sandbox| sandbox.metadata().uid == pod_uid);
        sandboxes.iter().find_map(|sandbox| sandbox.namespaces())
    }

    /// Returns all containers, sorted by ID.
    pub fn containers(&self) -> Vec<Arc<Container>> {
        self.records().containers.values().cloned().collect()
    }

    /// Returns the containers of a sandbox.
    pub fn containers_of(&self, sandbox: &str) -> Vec<Arc<Container>> {
        let mut containers = self.containers();
        containers.retain(|container| container.sandbox.id == sandbox);
        containers
    }

    fn records(&self) -> MutexGuard<'_, Records> {
        self.records.lock()
    }

    /// Returns a command that runs this program in another role. The child itself follows the link in `/proc`, which leads to the running
    /// program even if its file was replaced.
    fn helper(role: &str) -> Command {
        let mut command = Command::new("/proc/self/exe");
        command
            .arg0("numaresources-testbed")
            .arg(role)
            .kill_on_drop(true);
        command
    }
}

/// Returns the nanoseconds since 1970, the time unit of the CRI.
pub fn now() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_nanos() as i64)
}

/// Returns a new ID of 64 hexadecimal digits, as in other runtimes.
fn new_id() -> String {
    format!(
        "{}{}",
        uuid::Uuid::new_v4().simple(),
        uuid::Uuid::new_v4().simple()
    )
}
