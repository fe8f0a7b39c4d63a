//! The namespaces of a sandbox: network, host name and IPC.
//!
//! Open files of this process keep them alive, without a process inside. However this process ends, the kernel then removes them with the
//! links in them.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::PathBuf;

use nix::sched::{CloneFlags, unshare};
use nix::unistd::sethostname;
use tokio::sync::oneshot;

use super::helper::NamespaceKind;
use super::network::Link;

/// Which namespaces a sandbox has of its own; the rest are the node's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnNamespaces {
    /// A network of its own (not `hostNetwork`), and with it a host name of its own.
    pub network: bool,
    /// IPC objects of its own (not `hostIPC`).
    pub ipc: bool,
}

/// Why namespaces could not be created.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A system call failed.
    #[error("cannot {action} for a sandbox")]
    System {
        /// The failed action.
        action: &'static str,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The thread that creates them panicked.
    #[error("the thread that makes namespaces panicked")]
    Thread,
}

/// The namespaces of one sandbox.
#[derive(Debug)]
pub struct Namespaces {
    held: Vec<(NamespaceKind, OwnedFd)>,
}

impl Namespaces {
    /// Creates namespaces in a thread that ends afterwards; also returns a netlink connection into the network if it is the sandbox's own.
    pub async fn create(
        own: OwnNamespaces,
        hostname: String,
    ) -> Result<(Self, Option<Link>), Error> {
        let runtime = tokio::runtime::Handle::current();
        let (done, outcome) = oneshot::channel();
        std::thread::Builder::new()
            .name("namespaces".to_owned())
            .spawn(move || {
                let _entered = runtime.enter();
                // The caller may no longer wait.
                let _ = done.send(create(own, &hostname));
            })
            .map_err(system("start a thread"))?;
        outcome.await.map_err(|_| Error::Thread)?
    }

    /// Returns the kind of each namespace and a path to it, for any process that sees this one.
    pub fn paths(&self) -> Vec<(NamespaceKind, PathBuf)> {
        let pid = std::process::id();
        self.held
            .iter()
            .map(|(kind, fd)| (*kind, format!("/proc/{pid}/fd/{}", fd.as_raw_fd()).into()))
            .collect()
    }

    /// Returns the network namespace, unless it is the node's.
    pub fn network(&self) -> Option<&OwnedFd> {
        self.held
            .iter()
            .find(|(kind, _)| *kind == NamespaceKind::Net)
            .map(|(_, fd)| fd)
    }
}

fn create(own: OwnNamespaces, hostname: &str) -> Result<(Namespaces, Option<Link>), Error> {
    let kinds = [
        (NamespaceKind::Net, CloneFlags::CLONE_NEWNET, own.network),
        (NamespaceKind::Uts, CloneFlags::CLONE_NEWUTS, own.network),
        (NamespaceKind::Ipc, CloneFlags::CLONE_NEWIPC, own.ipc),
    ];
    let mut held = Vec::new();
    for (kind, flag, is_own) in kinds {
        if is_own {
            unshare(flag).map_err(system("make a namespace"))?;
            let path = format!("/proc/thread-self/ns/{}", kind.file_name());
            let file = File::open(path).map_err(system("hold a namespace"))?;
            held.push((kind, OwnedFd::from(file)));
        }
    }
    let link = if own.network {
        sethostname(hostname).map_err(system("set the host name"))?;
        Some(Link::open().map_err(system("open a netlink socket"))?)
    } else {
        None
    };
    Ok((Namespaces { held }, link))
}

fn system<E: Into<io::Error>>(action: &'static str) -> impl FnOnce(E) -> Error {
    move |source| Error::System {
        action,
        source: source.into(),
    }
}
