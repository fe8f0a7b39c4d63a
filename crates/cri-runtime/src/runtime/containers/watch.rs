//! A running container: its output and its end.

use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use tokio::process::Child;

use crate::logs::{LogFile, Stream};
use crate::runtime::now;
use crate::runtime::records::{Container, Phase};

/// How long output is still read after a container has ended: then only processes outside it can hold the pipes open.
const DRAIN: Duration = Duration::from_secs(2);

/// Reads the output of a container and waits for its end.
pub(super) async fn watch(
    container: Arc<Container>,
    mut child: Child,
    log: Option<Arc<LogFile>>,
    started_at: i64,
) {
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let output = tokio::spawn(async move {
        // Without a log file the output is still read, otherwise the container would block.
        let copy = async |stream, source: Option<_>| match (&log, source) {
            (Some(log), Some(source)) => log.copy(stream, source).await,
            (None, Some(mut source)) => {
                // A pipe that cannot be read has ended, too.
                let _ = tokio::io::copy(&mut source, &mut tokio::io::sink()).await;
            }
            (_, None) => {}
        };
        let stdout =
            stdout.map(|pipe| Box::new(pipe) as Box<dyn tokio::io::AsyncRead + Send + Unpin>);
        let stderr =
            stderr.map(|pipe| Box::new(pipe) as Box<dyn tokio::io::AsyncRead + Send + Unpin>);
        tokio::join!(copy(Stream::Stdout, stdout), copy(Stream::Stderr, stderr));
    });
    let abort = output.abort_handle();
    let status = child.wait().await;
    *container.process.lock() = None;
    if tokio::time::timeout(DRAIN, output).await.is_err() {
        abort.abort();
    }
    let exit_code = match status {
        Ok(status) => exit_code(status),
        Err(error) => {
            tracing::error!(container = container.id, %error, "Cannot wait for the container");
            255
        }
    };
    tracing::info!(container = container.id, exit_code, "Container ended");
    container.phase.send_replace(Phase::Exited {
        started_at,
        finished_at: now(),
        exit_code,
        reason: if exit_code == 0 { "Completed" } else { "Error" },
        message: String::new(),
    });
}

/// Returns the exit code as shells do: 128 + signal if a signal ended the process.
pub(in crate::runtime) fn exit_code(status: ExitStatus) -> i32 {
    status
        .code()
        .or_else(|| status.signal().map(|signal| 128 + signal))
        .unwrap_or(255)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::success(0, 0)]
    #[case::failure(3 << 8, 3)]
    #[case::killed(9, 137)]
    #[case::terminated(15, 143)]
    fn exit_codes_are_those_of_shells(#[case] raw: i32, #[case] expected: i32) {
        assert_eq!(exit_code(ExitStatus::from_raw(raw)), expected);
    }
}
