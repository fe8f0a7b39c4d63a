//! Starts processes in PID namespaces other than this process's own.
//!
//! The PID namespace of children is a property of the thread that starts them, and a parent death signal arrives when that thread ends. So
//! one thread, which lives as long as the process, starts all of them.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, mpsc};

use nix::sched::{CloneFlags, setns, unshare};
use tokio::process::{Child, Command};
use tokio::sync::oneshot;

/// The PID namespace of a new process.
#[derive(Clone, Debug)]
pub enum PidNamespace {
    /// The process is the first of a new namespace.
    New,
    /// The process joins an existing namespace.
    Join(Arc<OwnedFd>),
}

/// Why a process was not started.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The thread could not be set up.
    #[error("cannot start the thread that starts processes")]
    Thread(#[source] io::Error),
    /// The PID namespace could not be created, joined or left.
    #[error("cannot {action} a PID namespace")]
    Namespace {
        /// The failed action.
        action: &'static str,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The process itself could not be started.
    #[error("cannot start a process")]
    Spawn(#[source] io::Error),
    /// The thread has ended.
    #[error("the thread that starts processes has ended")]
    ThreadEnded,
}

/// A request to the thread.
struct SpawnRequest {
    command: Command,
    namespace: PidNamespace,
    done: oneshot::Sender<Result<Child, Error>>,
}

/// The thread that starts processes.
#[derive(Clone, Debug)]
pub struct Spawner {
    requests: mpsc::Sender<SpawnRequest>,
}

impl Spawner {
    /// Starts the thread. Needs a tokio runtime, which drives the processes' pipes.
    pub fn start() -> Result<Self, Error> {
        let runtime = tokio::runtime::Handle::current();
        let own = File::open("/proc/self/ns/pid").map_err(Error::Thread)?;
        let (requests, incoming) = mpsc::channel::<SpawnRequest>();
        std::thread::Builder::new()
            .name("spawner".to_owned())
            .spawn(move || {
                let _entered = runtime.enter();
                for request in incoming {
                    let outcome = spawn(&own, request.command, &request.namespace);
                    // The caller may no longer wait. The child then ends by itself, because it gets no request.
                    let _ = request.done.send(outcome);
                }
            })
            .map_err(Error::Thread)?;
        Ok(Self { requests })
    }

    /// Starts `command` in `namespace`.
    pub async fn spawn(&self, command: Command, namespace: PidNamespace) -> Result<Child, Error> {
        let (done, outcome) = oneshot::channel();
        let request = SpawnRequest {
            command,
            namespace,
            done,
        };
        self.requests
            .send(request)
            .map_err(|_| Error::ThreadEnded)?;
        outcome.await.map_err(|_| Error::ThreadEnded)?
    }
}

fn spawn(own: &File, mut command: Command, namespace: &PidNamespace) -> Result<Child, Error> {
    match namespace {
        PidNamespace::New => unshare(CloneFlags::CLONE_NEWPID).map_err(namespace_error("make"))?,
        PidNamespace::Join(fd) => {
            setns(fd, CloneFlags::CLONE_NEWPID).map_err(namespace_error("join"))?;
        }
    }
    let child = command.spawn().map_err(Error::Spawn);
    setns(own, CloneFlags::CLONE_NEWPID).map_err(namespace_error("leave"))?;
    child
}

fn namespace_error(action: &'static str) -> impl FnOnce(nix::errno::Errno) -> Error {
    move |source| Error::Namespace {
        action,
        source: source.into(),
    }
}
