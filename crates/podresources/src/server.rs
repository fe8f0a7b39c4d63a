//! Serves gRPC on a unix socket.

use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::net::{UnixListener, UnixStream};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::service::Routes;
use tonic::transport::Server;

use crate::socket::Socket;

/// How long open calls may take after a stop was requested.
const GRACE: Duration = Duration::from_secs(2);

/// A socket that is bound but not yet served. Its file is removed when serving ends.
#[derive(Debug)]
pub struct Listener {
    inner: UnixListener,
    file: SocketFile,
}

/// A socket cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The path exists and is not a socket, so it is not removed.
    #[error("{} exists and is not a socket", .0.display())]
    NotSocket(PathBuf),
    /// Another process serves this socket.
    #[error("{} is in use", .0.display())]
    InUse(PathBuf),
    /// A file system operation failed.
    #[error("cannot {action} {}", path.display())]
    File {
        /// The operation.
        action: &'static str,
        /// The path of the operation.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// Serving ended with an error.
    #[error("serving {} failed", path.display())]
    Serve {
        /// The socket's path.
        path: PathBuf,
        /// The error of the transport.
        #[source]
        source: tonic::transport::Error,
    },
}

/// The file of a bound socket. It is removed on drop, unless another process has replaced it.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    identity: Identity,
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if Identity::of(&self.path) == Some(self.identity) {
            // a failure needs no handling: the next start removes a stale socket
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Distinguishes a socket file from a later one at the same path. It includes the change time because file systems reuse inode numbers at
/// once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    device: u64,
    inode: u64,
    changed: (i64, i64),
}

impl Identity {
    /// Returns the identity of a file; `None` when the file does not exist or cannot be read.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        let metadata = std::fs::symlink_metadata(path).ok()?;
        Some(Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        })
    }
}

impl Listener {
    /// Binds `socket` with the permission bits `mode` (for example `0o600`). Removes a stale socket and creates a missing directory.
    pub async fn bind(socket: &Socket, mode: u32) -> Result<Self, Error> {
        let path = socket.path();
        if let Some(dir) = path.parent() {
            std::fs::create_dir_all(dir).map_err(file_error("create directory", dir))?;
        }
        remove_stale(path).await?;
        let inner = UnixListener::bind(path).map_err(file_error("bind", path))?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
            .map_err(file_error("set the permissions of", path))?;
        let identity = Identity::of(path).ok_or_else(|| Error::File {
            action: "find",
            path: path.to_owned(),
            source: io::ErrorKind::NotFound.into(),
        })?;
        let file = SocketFile {
            path: path.to_owned(),
            identity,
        };
        Ok(Self { inner, file })
    }

    /// Returns the identity of the bound file. If the path later has another one, the file is gone: the kubelet removes the sockets of
    /// device plugins when it starts.
    pub(crate) fn identity(&self) -> Identity {
        self.file.identity
    }

    /// Serves until `stop` is ready, then lets open calls finish within two seconds. Clients can connect as soon as [`bind`](Self::bind)
    /// has returned.
    pub async fn serve(
        self,
        routes: Routes,
        stop: impl Future<Output = ()> + Send,
    ) -> Result<(), Error> {
        let Self { inner, file } = self;
        let (stopping, stopped) = tokio::sync::oneshot::channel::<()>();
        let signal = async move {
            stop.await;
            // the receiver is gone only when this future is dropped, too
            let _ = stopping.send(());
        };
        let serving = Server::builder()
            .add_routes(routes)
            .serve_with_incoming_shutdown(UnixListenerStream::new(inner), signal);
        let overdue = async move {
            let _ = stopped.await;
            tokio::time::sleep(GRACE).await;
        };
        tokio::select! {
            outcome = serving => outcome.map_err(|source| Error::Serve { path: file.path.clone(), source }),
            () = overdue => Ok(()),
        }
    }
}

fn file_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::File {
        action,
        path,
        source,
    }
}

/// Removes a socket that an earlier process left behind. A connection attempt shows whether another process still serves it.
async fn remove_stale(path: &Path) -> Result<(), Error> {
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(file_error("stat", path)(error)),
        Ok(metadata) if !metadata.file_type().is_socket() => Err(Error::NotSocket(path.to_owned())),
        Ok(_socket) => match UnixStream::connect(path).await {
            Ok(_connection) => Err(Error::InUse(path.to_owned())),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                std::fs::remove_file(path).map_err(file_error("remove", path))
            }
            Err(error) => Err(file_error("connect to", path)(error)),
        },
    }
}
