//! Running a command in a container.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _};

use super::containers::{exit_code, not_running};
use super::{Error, Runtime, handoff};
use crate::node::helper::{ExecRequest, Kind, Program};
use crate::node::spawner::{self, PidNamespace};

/// Most output that is kept of each stream, in bytes; the rest is read and dropped.
const OUTPUT_LIMIT: usize = 16 * 1024 * 1024;

/// What a command did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Output {
    /// What it wrote to standard output.
    pub stdout: Vec<u8>,
    /// What it wrote to standard error.
    pub stderr: Vec<u8>,
    /// Its exit code, 128 + signal for a signal.
    pub exit_code: i32,
}

impl Runtime {
    /// Runs `command` in a running container as its user, with its environment. Without a `limit` it may take forever; the
    /// command is killed when the limit is reached.
    pub async fn exec(
        &self,
        id: &str,
        command: Vec<String>,
        limit: Option<Duration>,
    ) -> Result<Output, Error> {
        let container = self.container(id)?;
        let process = container.process().ok_or_else(|| not_running(&container))?;
        let namespaces = [Kind::Net, Kind::Ipc, Kind::Uts, Kind::Mount]
            .into_iter()
            .map(|kind| {
                let path = format!("/proc/{}/ns/{}", process.pid, kind.file_name());
                (kind, PathBuf::from(path))
            })
            .collect();
        let request = ExecRequest {
            namespaces,
            program: Program {
                argv: command,
                ..container.program.clone()
            },
        };
        let (ours, theirs) =
            UnixStream::pair().map_err(|error| Error::Spawn(spawner::Error::Spawn(error)))?;
        let mut helper = Self::helper("container-exec");
        helper
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = self
            .spawner
            .spawn(helper, PidNamespace::Join(process.namespace))
            .await?;
        let run = async {
            handoff::send(ours, &request).await.map_err(Error::Exec)?;
            let (stdout, stderr, status) = tokio::join!(
                collect(child.stdout.take()),
                collect(child.stderr.take()),
                child.wait()
            );
            Ok(Output {
                stdout,
                stderr,
                exit_code: status.map_or(255, exit_code),
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
}

async fn collect(source: Option<impl AsyncRead + Unpin>) -> Vec<u8> {
    let mut kept = Vec::new();
    if let Some(mut source) = source {
        let mut buffer = vec![0; 16 * 1024];
        // A pipe that cannot be read has ended as well.
        while let Ok(length @ 1..) = source.read(&mut buffer).await {
            let room = OUTPUT_LIMIT - kept.len();
            kept.extend_from_slice(&buffer[..length.min(room)]);
        }
    }
    kept
}
