//! A misbehaving Unix socket. A proxy either inserts itself before a server's socket and passes bytes on until it is told not to, or
//! replaces a server that was stopped.
//!
//! To insert itself, the proxy moves the server's socket file aside and listens under its name. All new connections then pass through the
//! proxy, and existing connections are not touched. When the proxy is dropped, the server's socket gets its name back.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Sent instead of a response: not a valid HTTP/2 frame, and longer than a frame header.
const GARBAGE: &[u8] =
    b"\xde\xad\xbe\xef this is not what you are looking for \x00\xff\xff\xff\xff\r\n\r\n";

/// How a socket misbehaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum SocketFault {
    /// Connections are accepted, but nothing is ever answered.
    Hangs,
    /// The response is garbage.
    Garbage,
    /// Connections are closed at once.
    Refuses,
}

/// Why a proxy could not take over a socket.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {path}")]
pub struct Error {
    action: &'static str,
    path: PathBuf,
    #[source]
    source: std::io::Error,
}

/// A proxy before a socket or in place of its server. The server's socket is restored when this is dropped.
#[derive(Debug)]
pub struct SocketProxy {
    path: PathBuf,
    /// Where the server's socket is meanwhile, if there is a server.
    moved_aside: Option<PathBuf>,
    /// Identity of our socket file, which distinguishes it from that of a restarted server.
    ours: Option<Identity>,
    fault: watch::Sender<Option<SocketFault>>,
    affected: Arc<AtomicU64>,
    _accepting: JoinSet<()>,
}

impl Drop for SocketProxy {
    fn drop(&mut self) {
        // A server that was restarted meanwhile has recreated its socket under the name.
        let is_ours = self.ours.is_some() && identity(&self.path) == self.ours;
        let done = match &self.moved_aside {
            // The rename moves the name from one socket to the other in one step.
            Some(moved_aside) if is_ours => std::fs::rename(moved_aside, &self.path),
            Some(moved_aside) => std::fs::remove_file(moved_aside),
            None if is_ours => std::fs::remove_file(&self.path),
            None => Ok(()),
        };
        if let Err(error) = done {
            tracing::warn!(path = %self.path.display(), %error, "Socket was not restored");
        }
    }
}

impl SocketProxy {
    /// Inserts a proxy before a socket. It passes everything on at first.
    pub fn insert(path: &Path) -> Result<Self, Error> {
        let failed = |action| {
            let path = path.to_owned();
            move |source| Error {
                action,
                path,
                source,
            }
        };
        // The names are short because the path of a socket is limited to 107 bytes.
        let moved_aside = path.with_extension("_");
        let ours = path.with_extension("-");
        let listener = UnixListener::bind(&ours).map_err(failed("listen beside"))?;
        std::fs::rename(path, &moved_aside).map_err(|source| {
            // Only this file has to be removed; nothing else has changed.
            let _ = std::fs::remove_file(&ours);
            failed("move")(source)
        })?;
        std::fs::rename(&ours, path).map_err(failed("replace"))?;
        Ok(Self::start(path, listener, Some(moved_aside), None))
    }

    /// Replaces a server that was stopped.
    pub fn replace(path: &Path, fault: SocketFault) -> Result<Self, Error> {
        let listener = UnixListener::bind(path).map_err(|source| Error {
            action: "listen at",
            path: path.to_owned(),
            source,
        })?;
        Ok(Self::start(path, listener, None, Some(fault)))
    }

    fn start(
        path: &Path,
        listener: UnixListener,
        moved_aside: Option<PathBuf>,
        fault: Option<SocketFault>,
    ) -> Self {
        let fault = watch::Sender::new(fault);
        let affected = Arc::new(AtomicU64::new(0));
        let mut accepting = JoinSet::new();
        accepting.spawn(accept(
            listener,
            moved_aside.clone(),
            fault.subscribe(),
            Arc::clone(&affected),
        ));
        Self {
            path: path.to_owned(),
            moved_aside,
            ours: identity(path),
            fault,
            affected,
            _accepting: accepting,
        }
    }

    /// Sets or clears the fault. A change closes the connections that pass through the proxy, so that their clients notice it.
    pub fn set(&self, fault: Option<SocketFault>) {
        self.fault.send_if_modified(|now| {
            let changed = *now != fault;
            *now = fault;
            changed
        });
    }

    /// Returns how many connections a fault affected: those that it closed, and those that were accepted while it was set.
    pub fn affected(&self) -> u64 {
        self.affected.load(Ordering::Acquire)
    }
}

/// Distinguishes a socket file from its successor at the same path. It includes the change time, because inode numbers are reused.
type Identity = (u64, u64, i64, i64);

fn identity(path: &Path) -> Option<Identity> {
    let it = std::fs::symlink_metadata(path).ok()?;
    Some((it.dev(), it.ino(), it.ctime(), it.ctime_nsec()))
}

async fn accept(
    listener: UnixListener,
    moved_aside: Option<PathBuf>,
    mut fault: watch::Receiver<Option<SocketFault>>,
    affected: Arc<AtomicU64>,
) {
    let mut connections = JoinSet::new();
    let mut was = *fault.borrow();
    loop {
        tokio::select! {
            // Biased, so that a connection that is accepted after a change is served according to it.
            biased;
            changed = fault.changed() => {
                let now = *fault.borrow_and_update();
                while connections.try_join_next().is_some() {}
                if std::mem::replace(&mut was, now).is_none() && now.is_some() {
                    // Counted before the connections are closed, because a client whose connection was closed may read the count at once.
                    affected.fetch_add(connections.len() as u64, Ordering::AcqRel);
                }
                connections.abort_all();
                if changed.is_err() {
                    return;
                }
            }
            accepted = listener.accept() => {
                // A failed accept does not affect the next one.
                let Ok((client, _)) = accepted else { continue };
                // Not marked as seen, because the open connections have not been closed for the change yet.
                let fault = *fault.borrow();
                affected.fetch_add(u64::from(fault.is_some()), Ordering::AcqRel);
                connections.spawn(serve(client, moved_aside.clone(), fault));
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn serve(mut client: UnixStream, moved_aside: Option<PathBuf>, fault: Option<SocketFault>) {
    match fault {
        None => {
            let Some(moved_aside) = moved_aside else {
                return;
            };
            if let Ok(mut server) = UnixStream::connect(&moved_aside).await {
                // Either side may close the connection in any way.
                let _ = copy_bidirectional(&mut client, &mut server).await;
            }
        }
        Some(SocketFault::Refuses) => {}
        Some(SocketFault::Hangs) => {
            let mut input = [0; 4096];
            while client.read(&mut input).await.is_ok_and(|count| count > 0) {}
        }
        Some(SocketFault::Garbage) => {
            let mut input = [0; 4096];
            while client.read(&mut input).await.is_ok_and(|count| count > 0) {
                if client.write_all(GARBAGE).await.is_err() {
                    return;
                }
            }
        }
    }
}
