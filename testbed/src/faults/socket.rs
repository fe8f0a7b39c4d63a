//! A bad unix socket: something that gets before a server's socket and passes bytes on, until it is told not to; or that takes the place
//! of a server that was stopped.
//!
//! To get before a server, its socket file is moved aside and another one listens under its name, so whoever connects from then on passes
//! through here; connections that are open already are not touched. When the proxy is dropped the server has its name back.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// What is sent instead of an answer: no frame of HTTP/2, and longer than the header of one.
const GARBAGE: &[u8] =
    b"\xde\xad\xbe\xef this is not what you are looking for \x00\xff\xff\xff\xff\r\n\r\n";

/// How a socket is bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum SocketFault {
    /// Connections are taken, nothing is ever answered.
    Hangs,
    /// What is answered is not what was asked for.
    Garbage,
    /// Connections end at once.
    Refuses,
}

/// Why a proxy could not get before a socket.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {path}")]
pub struct Error {
    action: &'static str,
    path: PathBuf,
    #[source]
    source: std::io::Error,
}

/// A proxy before a socket or in the place of one; the server has its socket back when this is dropped.
#[derive(Debug)]
pub struct SocketProxy {
    path: PathBuf,
    /// Where the server's socket is meanwhile, when there is a server.
    behind: Option<PathBuf>,
    /// Our socket, to be told from that of a server that was started anew.
    ours: Option<Identity>,
    fault: watch::Sender<Option<SocketFault>>,
    struck: Arc<AtomicU64>,
    _accepting: JoinSet<()>,
}

impl Drop for SocketProxy {
    fn drop(&mut self) {
        // a server that was started anew meanwhile has taken the name itself
        let is_ours = self.ours.is_some() && identity(&self.path) == self.ours;
        let done = match &self.behind {
            // the name goes from one socket to the other in one step
            Some(behind) if is_ours => std::fs::rename(behind, &self.path),
            Some(behind) => std::fs::remove_file(behind),
            None if is_ours => std::fs::remove_file(&self.path),
            None => Ok(()),
        };
        if let Err(error) = done {
            tracing::warn!(path = %self.path.display(), %error, "Socket not put back");
        }
    }
}

impl SocketProxy {
    /// Gets before a socket, and passes everything on for now.
    pub fn insert(path: &Path) -> Result<Self, Error> {
        let failed = |action| {
            let path = path.to_owned();
            move |source| Error {
                action,
                path,
                source,
            }
        };
        // short: the path of a socket has 107 bytes
        let behind = path.with_extension("_");
        let ours = path.with_extension("-");
        let listener = UnixListener::bind(&ours).map_err(failed("listen beside"))?;
        std::fs::rename(path, &behind).map_err(|source| {
            // nothing has changed but for this file
            let _ = std::fs::remove_file(&ours);
            failed("move")(source)
        })?;
        std::fs::rename(&ours, path).map_err(failed("replace"))?;
        Ok(Self::start(path, listener, Some(behind), None))
    }

    /// Takes the place of a server that was stopped.
    pub fn instead(path: &Path, fault: SocketFault) -> Result<Self, Error> {
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
        behind: Option<PathBuf>,
        fault: Option<SocketFault>,
    ) -> Self {
        let fault = watch::Sender::new(fault);
        let struck = Arc::new(AtomicU64::new(0));
        let mut accepting = JoinSet::new();
        accepting.spawn(accept(
            listener,
            behind.clone(),
            fault.subscribe(),
            Arc::clone(&struck),
        ));
        Self {
            path: path.to_owned(),
            behind,
            ours: identity(path),
            fault,
            struck,
            _accepting: accepting,
        }
    }

    /// Makes the socket bad, or good again. A change ends the connections that pass through, so that who uses them meets it.
    pub fn set(&self, fault: Option<SocketFault>) {
        self.fault.send_if_modified(|now| {
            let changed = *now != fault;
            *now = fault;
            changed
        });
    }

    /// How many connections met a bad socket: those it ended, and those it took.
    pub fn struck(&self) -> u64 {
        self.struck.load(Ordering::Acquire)
    }
}

/// What tells a socket file from its successor at the same path; the time is part of it because numbers are used again.
type Identity = (u64, u64, i64, i64);

fn identity(path: &Path) -> Option<Identity> {
    let it = std::fs::symlink_metadata(path).ok()?;
    Some((it.dev(), it.ino(), it.ctime(), it.ctime_nsec()))
}

async fn accept(
    listener: UnixListener,
    behind: Option<PathBuf>,
    mut fault: watch::Receiver<Option<SocketFault>>,
    struck: Arc<AtomicU64>,
) {
    let mut connections = JoinSet::new();
    let mut was = *fault.borrow();
    loop {
        tokio::select! {
            // a change comes first: what is accepted after it is served as it says
            biased;
            changed = fault.changed() => {
                let now = *fault.borrow_and_update();
                while connections.try_join_next().is_some() {}
                if std::mem::replace(&mut was, now).is_none() && now.is_some() {
                    // before they end: who finds its connection closed may ask at once how many met it
                    struck.fetch_add(connections.len() as u64, Ordering::AcqRel);
                }
                connections.abort_all();
                if changed.is_err() {
                    return;
                }
            }
            accepted = listener.accept() => {
                // not this one, perhaps the next
                let Ok((client, _)) = accepted else { continue };
                // not marked as seen: the connections that are open have not met the change yet
                let fault = *fault.borrow();
                struck.fetch_add(u64::from(fault.is_some()), Ordering::AcqRel);
                connections.spawn(serve(client, behind.clone(), fault));
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn serve(mut client: UnixStream, behind: Option<PathBuf>, fault: Option<SocketFault>) {
    match fault {
        None => {
            let Some(behind) = behind else { return };
            if let Ok(mut server) = UnixStream::connect(&behind).await {
                // either side may end it in any way
                let _ = copy_bidirectional(&mut client, &mut server).await;
            }
        }
        Some(SocketFault::Refuses) => {}
        Some(SocketFault::Hangs) => {
            let mut heard = [0; 4096];
            while client.read(&mut heard).await.is_ok_and(|count| count > 0) {}
        }
        Some(SocketFault::Garbage) => {
            let mut heard = [0; 4096];
            while client.read(&mut heard).await.is_ok_and(|count| count > 0) {
                if client.write_all(GARBAGE).await.is_err() {
                    return;
                }
            }
        }
    }
}
