//! Programs that have to end in time: one that hangs is killed and told, instead of hanging whoever waits for it.

use std::io::{self, Read as _, Seek as _};
use std::process::{Child, Command, ExitStatus, Output};
use std::time::Duration;

use wait_timeout::ChildExt as _;

/// Runs a command whose output goes where ours goes, and waits for its end.
///
/// # Errors
/// Returns an error if it cannot be started, or `TimedOut` if it does not end within the limit and was killed.
pub fn status_within(command: &mut Command, limit: Duration) -> io::Result<ExitStatus> {
    wait(&mut command.spawn()?, limit)
}

/// Runs a command and returns its output. The output goes through files, so that a program that writes much never waits for us.
///
/// # Errors
/// Returns an error if it cannot be started, or `TimedOut` if it does not end within the limit and was killed.
pub fn output_within(command: &mut Command, limit: Duration) -> io::Result<Output> {
    let mut files = [tempfile::tempfile()?, tempfile::tempfile()?];
    let [out, err] = &files;
    let mut child = command
        .stdout(out.try_clone()?)
        .stderr(err.try_clone()?)
        .spawn()?;
    let status = wait(&mut child, limit)?;
    let [stdout, stderr] = files.each_mut().map(|file| {
        let mut bytes = Vec::new();
        file.rewind()?;
        file.read_to_end(&mut bytes)?;
        Ok::<_, io::Error>(bytes)
    });
    Ok(Output {
        status,
        stdout: stdout?,
        stderr: stderr?,
    })
}

fn wait(child: &mut Child, limit: Duration) -> io::Result<ExitStatus> {
    if let Some(status) = child.wait_timeout(limit)? {
        return Ok(status);
    }
    child.kill()?;
    child.wait()?;
    let message = format!(
        "it was killed because it did not end within {} s",
        limit.as_secs()
    );
    Err(io::Error::new(io::ErrorKind::TimedOut, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_secs(20);

    #[test]
    fn output_and_exit_code_are_those_of_the_program() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo out; echo err >&2; exit 3"]);
        let output = output_within(&mut command, SOON).unwrap();
        assert_eq!(output.status.code(), Some(3));
        assert_eq!(output.stdout, b"out\n");
        assert_eq!(output.stderr, b"err\n");
    }

    #[test]
    fn more_output_than_a_pipe_holds_is_no_reason_to_wait() {
        let mut command = Command::new("sh");
        command.args(["-c", "head -c 1000000 /dev/zero"]);
        let output = output_within(&mut command, SOON).unwrap();
        assert_eq!(output.stdout.len(), 1_000_000);
    }

    #[test]
    fn a_program_that_hangs_is_killed_and_told() {
        let mut command = Command::new("sleep");
        command.arg("1000");
        let error = status_within(&mut command, Duration::from_millis(50)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
