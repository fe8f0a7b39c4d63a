//! The runtime's records of sandboxes and containers.

use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use cluster_spec::images::Resolved;
use nix::unistd::Pid;
use parking_lot::{Mutex, MutexGuard};
use podresources::cri::v1 as cri;
use tokio::process::Child;
use tokio::sync::watch;

use crate::helper::Program;
use crate::identity::Identity;
use crate::logs::LogFile;
use crate::namespaces::Namespaces;
use crate::processes::{self, Usage};

/// A pod's sandbox.
#[derive(Debug)]
pub struct Sandbox {
    /// ID of the sandbox.
    pub id: String,
    /// The kubelet's configuration of it.
    pub config: cri::PodSandboxConfig,
    /// Handler of the runtime class.
    pub runtime_handler: String,
    /// Time of creation, in nanoseconds since 1970.
    pub created_at: i64,
    /// Whether it uses the node's network.
    pub host_network: bool,
    /// Address of the pod; the node's address if it uses the node's network.
    pub address: Ipv4Addr,
    /// The resources of a ready sandbox; none if it is not ready.
    pub(super) ready: Mutex<Option<Ready>>,
}

/// The resources of a ready sandbox.
#[derive(Debug)]
pub(super) struct Ready {
    pub(super) namespaces: Arc<Namespaces>,
    /// The PID namespace that the containers share, if they share one.
    pub(super) shared_pids: Option<SharedPids>,
}

/// A PID namespace and the process that holds it; the process is killed when this is dropped.
#[derive(Debug)]
pub(super) struct SharedPids {
    pub(super) namespace: Arc<OwnedFd>,
    #[expect(dead_code, reason = "held: the process is killed when this is dropped")]
    pub(super) holder: Child,
}

impl Sandbox {
    /// Returns whether it is ready.
    pub fn is_ready(&self) -> bool {
        self.ready_state().is_some()
    }

    pub(super) fn ready_state(&self) -> MutexGuard<'_, Option<Ready>> {
        self.ready.lock()
    }

    /// Returns its namespaces while it is ready.
    pub fn namespaces(&self) -> Option<Arc<Namespaces>> {
        let ready = self.ready_state();
        ready.as_ref().map(|ready| Arc::clone(&ready.namespaces))
    }

    /// Returns name, namespace, UID and attempt of the pod.
    pub fn metadata(&self) -> cri::PodSandboxMetadata {
        self.config.metadata.clone().unwrap_or_default()
    }

    /// Returns which namespaces the pod shares.
    pub fn namespace_options(&self) -> cri::NamespaceOption {
        self.config
            .linux
            .as_ref()
            .and_then(|linux| linux.security_context.as_ref())
            .and_then(|security| security.namespace_options.clone())
            .unwrap_or_else(|| cri::NamespaceOption {
                pid: cri::NamespaceMode::Container.into(),
                ..Default::default()
            })
    }
}

/// Phase of a container; times in nanoseconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Not started yet.
    Created,
    /// It is being started.
    Starting,
    /// Its first process runs.
    Running {
        /// Time of the start.
        started_at: i64,
    },
    /// It ended, or could not start.
    Exited {
        /// Time of the start; 0 if it never ran.
        started_at: i64,
        /// Time of the end.
        finished_at: i64,
        /// Exit code, 128 + signal if a signal ended it.
        exit_code: i32,
        /// `Completed`, `Error` or `StartError`.
        reason: &'static str,
        /// Details for people.
        message: String,
    },
}

impl Phase {
    /// Returns the phase as a state of the CRI.
    pub fn to_cri(&self) -> cri::ContainerState {
        match self {
            Self::Created | Self::Starting => cri::ContainerState::ContainerCreated,
            Self::Running { .. } => cri::ContainerState::ContainerRunning,
            Self::Exited { .. } => cri::ContainerState::ContainerExited,
        }
    }

    /// Returns a name for messages.
    pub fn name(&self) -> &'static str {
        self.to_cri().as_str_name()
    }
}

/// The first process of a running container.
#[derive(Clone, Debug)]
pub struct Process {
    /// Its ID in this process's PID namespace.
    pub pid: Pid,
    /// Its PID namespace.
    pub namespace: Arc<OwnedFd>,
    /// Whether processes other than its own descendants are in that namespace.
    pub shared: bool,
}

/// A container.
#[derive(Debug)]
pub struct Container {
    /// ID of the container.
    pub id: String,
    /// Sandbox of its pod.
    pub sandbox: Arc<Sandbox>,
    /// The kubelet's configuration of it.
    pub config: cri::ContainerConfig,
    /// The image.
    pub image: Resolved,
    /// User and groups of its processes.
    pub identity: Identity,
    /// Time of creation, in nanoseconds since 1970.
    pub created_at: i64,
    /// Path of its log; `None` if the kubelet requests none.
    pub log_path: Option<PathBuf>,
    /// Its directory in the runtime's state.
    pub(super) directory: PathBuf,
    pub(super) program: Program,
    pub(super) phase: watch::Sender<Phase>,
    pub(super) process: Mutex<Option<Process>>,
    pub(super) log: Mutex<Option<Arc<LogFile>>>,
    pub(super) resources: Mutex<cri::LinuxContainerResources>,
    /// Time and usage of the last reading, from which the next one computes a rate.
    last_reading: Mutex<Option<(i64, Usage)>>,
}

/// The fields of a new container.
#[derive(Debug)]
pub(super) struct NewContainer {
    pub(super) id: String,
    pub(super) sandbox: Arc<Sandbox>,
    pub(super) config: cri::ContainerConfig,
    pub(super) image: Resolved,
    pub(super) identity: Identity,
    pub(super) log_path: Option<PathBuf>,
    pub(super) directory: PathBuf,
    pub(super) program: Program,
    pub(super) created_at: i64,
}

impl From<NewContainer> for Container {
    fn from(new: NewContainer) -> Self {
        let resources = new
            .config
            .linux
            .as_ref()
            .and_then(|linux| linux.resources.clone())
            .unwrap_or_default();
        Self {
            id: new.id,
            sandbox: new.sandbox,
            config: new.config,
            image: new.image,
            identity: new.identity,
            created_at: new.created_at,
            log_path: new.log_path,
            directory: new.directory,
            program: new.program,
            phase: watch::Sender::new(Phase::Created),
            process: Mutex::default(),
            log: Mutex::default(),
            resources: Mutex::new(resources),
            last_reading: Mutex::default(),
        }
    }
}

impl Container {
    /// Returns its phase.
    pub fn phase(&self) -> Phase {
        self.phase.borrow().clone()
    }

    /// Returns its name and attempt.
    pub fn metadata(&self) -> cri::ContainerMetadata {
        self.config.metadata.clone().unwrap_or_default()
    }

    /// Returns its first process while it runs.
    pub fn process(&self) -> Option<Process> {
        self.process.lock().clone()
    }

    /// Returns the recorded CPU set and limits.
    pub fn resources(&self) -> cri::LinuxContainerResources {
        self.resources.lock().clone()
    }

    /// Returns all its processes.
    pub fn processes(&self) -> Vec<Pid> {
        self.process().map_or_else(Vec::new, |process| {
            processes::members(process.pid, process.shared)
        })
    }

    /// Returns what its processes have used until `at`, and the nanoseconds of CPU time per second since the last reading.
    pub fn usage(&self, at: i64) -> (Usage, u64) {
        let usage = processes::usage(&self.processes());
        let mut last = self.last_reading.lock();
        let rate = last.map_or(0, |(then, before)| {
            let elapsed = at.saturating_sub(then).max(1) as u128;
            let used = usage.cpu.saturating_sub(before.cpu).as_nanos();
            (used * 1_000_000_000 / elapsed) as u64
        });
        *last = Some((at, usage));
        (usage, rate)
    }
}
