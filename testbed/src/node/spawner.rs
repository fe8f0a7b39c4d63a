//! Starting processes in PID namespaces other than this process's own.
//!
//! The PID namespace of children is a property of the thread that starts them, and a child that asks to die with its parent
//! dies with that thread. So one thread lives as long as the process and starts everything.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, mpsc};

use nix::sched::{CloneFlags, setns, unshare};
use tokio::process::{Child, Command};
use tokio::sync::oneshot;

/// Where a process starts.
#[derive(Clone, Debug)]
pub enum PidNamespace {
    /// As the first process of a new namespace.
    New,
    /// In an existing one.
    Join(Arc<OwnedFd>),
}

/// Why a process was not started.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The thread could not be set up.
    #[error("cannot start the thread that starts processes")]
    Thread(#[source] io::Error),
    /// The PID namespace is not to be had.
    #[error("cannot {action} a PID namespace")]
    Namespace {
        /// What was tried.
        action: &'static str,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The process itself could not be started.
    #[error("cannot start a process")]
    Spawn(#[source] io::Error),
    /// The thread is gone.
    #[error("the thread that starts processes is gone")]
    Gone,
}

/// A request to the thread.
struct Order {
    command: Command,
    namespace: PidNamespace,
    done: oneshot::Sender<Result<Child, Error>>,
}

/// The thread that starts processes.
#[derive(Clone, Debug)]
pub struct Spawner {
    orders: mpsc::Sender<Order>,
}

impl Spawner {
    /// Starts the thread; needs a runtime, which the processes' pipes belong to.
    pub fn start() -> Result<Self, Error> {
        let runtime = tokio::runtime::Handle::current();
        let own = File::open("/proc/self/ns/pid").map_err(Error::Thread)?;
        let (orders, incoming) = mpsc::channel::<Order>();
        std::thread::Builder::new()
            .name("spawner".to_owned())
            .spawn(move || {
                let _entered = runtime.enter();
                for order in incoming {
                    let outcome = spawn(&own, order.command, &order.namespace);
                    // The caller may have given up; the child then ends by itself, nobody will talk to it.
                    let _ = order.done.send(outcome);
                }
            })
            .map_err(Error::Thread)?;
        Ok(Self { orders })
    }

    /// Starts `command` in `namespace`.
    pub async fn spawn(&self, command: Command, namespace: PidNamespace) -> Result<Child, Error> {
        let (done, outcome) = oneshot::channel();
        let order = Order {
            command,
            namespace,
            done,
        };
        self.orders.send(order).map_err(|_| Error::Gone)?;
        outcome.await.map_err(|_| Error::Gone)?
    }
}

fn spawn(own: &File, mut command: Command, namespace: &PidNamespace) -> Result<Child, Error> {
    match namespace {
        PidNamespace::New => unshare(CloneFlags::CLONE_NEWPID).map_err(refused("make"))?,
        PidNamespace::Join(fd) => setns(fd, CloneFlags::CLONE_NEWPID).map_err(refused("join"))?,
    }
    let child = command.spawn().map_err(Error::Spawn);
    setns(own, CloneFlags::CLONE_NEWPID).map_err(refused("leave"))?;
    child
}

fn refused(action: &'static str) -> impl FnOnce(nix::errno::Errno) -> Error {
    move |source| Error::Namespace {
        action,
        source: source.into(),
    }
}
