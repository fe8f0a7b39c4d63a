//! Runs commands in containers.

use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::net::unix::pipe;
use tokio::process::{Child, ChildStderr, ChildStdout};

use super::containers::not_running;
use super::containers::watch::exit_code;
use super::{Error, Runtime, handoff};
use crate::helper::{ExecRequest, NamespaceKind, Program};
use crate::spawner::{self, PidNamespace};
use crate::streaming::session::Attached;

/// Maximum number of bytes of each output stream that are kept; the rest is read and dropped.
const OUTPUT_LIMIT: usize = 16 * 1024 * 1024;

/// The result of a command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Output {
    /// Standard output.
    pub stdout: Vec<u8>,
    /// Standard error.
    pub stderr: Vec<u8>,
    /// Exit code, 128 + signal if a signal ended the command.
    pub exit_code: i32,
}

/// A running command; it is killed when this is dropped.
#[derive(Debug)]
pub struct Running {
    /// Its standard input, if requested.
    pub stdin: Option<pipe::Sender>,
    /// Its standard output.
    pub stdout: Option<ChildStdout>,
    /// Its standard error.
    pub stderr: Option<ChildStderr>,
    child: Child,
}

impl Running {
    /// Waits for its end; returns the exit code, 128 + signal if a signal ended it.
    pub async fn wait(&mut self) -> i32 {
        self.child.wait().await.map_or(255, exit_code)
    }
}

impl From<Running> for Attached {
    fn from(mut running: Running) -> Self {
        Self {
            stdin: running.stdin.take().map(|pipe| Box::new(pipe) as _),
            stdout: running.stdout.take().map(|pipe| Box::new(pipe) as _),
            stderr: running.stderr.take().map(|pipe| Box::new(pipe) as _),
            end: Box::pin(async move { running.wait().await }),
        }
    }
}

impl Runtime {
    /// Runs `command` in a running container as the container's user, with its environment. The command is killed when `limit` is over;
    /// without a limit it may run forever.
    pub async fn exec(
        &self,
        id: &str,
        command: Vec<String>,
        limit: Option<Duration>,
    ) -> Result<Output, Error> {
        let run = async {
            let mut running = self.start_exec(id, command, false).await?;
            let (stdout, stderr) = tokio::join!(
                collect(running.stdout.take()),
                collect(running.stderr.take())
            );
            Ok(Output {
                stdout,
                stderr,
                exit_code: running.wait().await,
            })
        };
        match limit {
            None => run.await,
            Some(limit) => tokio::time::timeout(limit, run)
                .await
                .unwrap_or(Err(Error::Timeout {
                    seconds: limit.as_secs(),
                })),
        }
    }

    /// Starts `command` in a running container; returns after it has been executed. Without `with_stdin` its input is empty.
    pub async fn start_exec(
        &self,
        id: &str,
        command: Vec<String>,
        with_stdin: bool,
    ) -> Result<Running, Error> {
        let container = self.container(id)?;
        let process = container.process().ok_or_else(|| not_running(&container))?;
        let namespaces = [
            NamespaceKind::Net,
            NamespaceKind::Ipc,
            NamespaceKind::Uts,
            NamespaceKind::Mount,
        ]
        .into_iter()
        .map(|kind| {
            let path = format!("/proc/{}/ns/{}", process.pid, kind.file_name());
            (kind, PathBuf::from(path))
        })
        .collect();
        let failed = |error| Error::Spawn(spawner::Error::Spawn(error));
        let input = with_stdin.then(std::io::pipe).transpose().map_err(failed)?;
        let (stdin, input) = match input {
            Some((theirs, ours)) => {
                let ours = pipe::Sender::from_owned_fd(ours.into()).map_err(failed)?;
                (Some(ours), Some(theirs))
            }
            None => (None, None),
        };
        let request = ExecRequest {
            namespaces,
            // The helper opens it by this path, because its own standard input carries the request.
            stdin: input
                .as_ref()
                .map(|pipe| format!("/proc/{}/fd/{}", std::process::id(), pipe.as_raw_fd()).into()),
            program: Program {
                argv: command,
                ..container.program.clone()
            },
        };
        let (ours, theirs) = UnixStream::pair().map_err(failed)?;
        let mut helper = Self::helper("container-exec");
        helper
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = self
            .spawner
            .spawn(helper, PidNamespace::Join(process.namespace))
            .await?;
        handoff::send(ours, &request).await.map_err(Error::Exec)?;
        Ok(Running {
            stdin,
            stdout: child.stdout.take(),
            stderr: child.stderr.take(),
            child,
        })
    }
}

async fn collect(source: Option<impl AsyncRead + Unpin>) -> Vec<u8> {
    let mut kept = Vec::new();
    if let Some(mut source) = source {
        let mut buffer = vec![0; 16 * 1024];
        // A pipe that cannot be read has ended, too.
        while let Ok(length @ 1..) = source.read(&mut buffer).await {
            let room = OUTPUT_LIMIT - kept.len();
            kept.extend_from_slice(&buffer[..length.min(room)]);
        }
    }
    kept
}
