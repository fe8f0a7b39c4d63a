//! Serving gRPC on a unix socket.

use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::net::{UnixListener, UnixStream};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::service::Routes;
use tonic::transport::Server;

use crate::socket::Socket;

/// How long calls that are under way may take once a stop was asked for.
const GRACE: Duration = Duration::from_secs(2);

/// A socket that is bound and not yet served. Its file is removed when serving ends.
#[derive(Debug)]
pub struct Listener {
    inner: UnixListener,
    file: SocketFile,
}

/// Why a socket could not be served.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is a file at the path that is no socket: it is not ours to remove.
    #[error("{} exists and is not a socket", .0.display())]
    NotSocket(PathBuf),
    /// Somebody else serves this socket now.
    #[error("{} is in use", .0.display())]
    InUse(PathBuf),
    /// The file system refused.
    #[error("cannot {action} {}", path.display())]
    File {
        /// What was tried.
        action: &'static str,
        /// The path it was tried on.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// Serving ended with an error.
    #[error("serving {} failed", path.display())]
    Serve {
        /// The socket's path.
        path: PathBuf,
        /// What the transport says.
        #[source]
        source: tonic::transport::Error,
    },
}

/// The file of a bound socket: removed on drop, unless somebody replaced it meanwhile.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    identity: Identity,
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if Identity::of(&self.path) == Some(self.identity) {
            // Nothing to do about a failure: the next start removes a stale socket.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// What tells a socket file from its successor at the same path. The change time is part of it because file systems reuse
/// inode numbers at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    device: u64,
    inode: u64,
    changed: (i64, i64),
}

impl Identity {
    /// `None` when there is no such file, or it cannot be looked at.
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
    /// Binds `socket` with the permission bits `mode` (`0o600`, say). A stale socket is removed; a missing directory is made.
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

    /// Whether the file is still the one that was bound: the kubelet removes the sockets of device plugins when it starts.
    pub(crate) fn identity(&self) -> Identity {
        self.file.identity
    }

    /// Serves until `stop` is ready, then lets calls that are under way finish within two seconds. Clients can connect since
    /// [`bind`](Self::bind) returned.
    pub async fn serve(
        self,
        routes: Routes,
        stop: impl Future<Output = ()> + Send,
    ) -> Result<(), Error> {
        let Self { inner, file } = self;
        let (stopping, stopped) = tokio::sync::oneshot::channel::<()>();
        let signal = async move {
            stop.await;
            // The receiver is gone only when this future is dropped as well.
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

/// Removes what an earlier process left behind. Whether someone still serves the socket is found out by connecting.
async fn remove_stale(path: &Path) -> Result<(), Error> {
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(file_error("look at", path)(error)),
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
