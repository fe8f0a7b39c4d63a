//! must-gather after a failed scenario: `numaresources-must-gather` as a process, because the suite links no tool.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use programs::path::{find_in, find_program};
use reports::event::{Event, Failure};
use thiserror::Error;
use tokio::process::Command;

use crate::interrupt::Interrupt;
use crate::kubeconfig::Kubeconfig;
use crate::recorder::Recorder;

/// File name of the program.
const PROGRAM: &str = "numaresources-must-gather";
/// Folder of a collection, below the folder of the failed scenario.
const FOLDER: &str = "must-gather";
/// Largest number of collections on a cluster: where much fails, the first failures say most.
const MOST: u32 = 5;
/// Longest time of one request.
const REQUEST_LIMIT: Duration = Duration::from_secs(10);
/// Time after which must-gather collects nothing more.
const LIMIT: Duration = Duration::from_mins(1);
/// Time after which it is stopped: it has to write down what it has.
const KILLED_AFTER: Duration = Duration::from_secs(75);
/// Largest part of each log, in bytes.
const LOG_BYTES: u64 = 1 << 20;
/// Largest sum of what is written, in bytes.
const MAX_BYTES: u64 = 64 << 20;

/// The program, and the cluster that it collects from.
#[derive(Debug)]
pub(crate) struct MustGather {
    program: PathBuf,
    kubeconfig: Kubeconfig,
    collections: Cell<u32>,
    killed_after: Duration,
}

/// Why a collection is not whole.
#[derive(Debug, Error)]
enum Error {
    #[error("{program} cannot be started")]
    Start {
        program: String,
        #[source]
        source: std::io::Error,
    },
    #[error("it was stopped after {} s", .0.as_secs())]
    Slow(Duration),
    #[error("it was stopped with the run")]
    Interrupted,
    #[error("it ended with {status}: {said}")]
    Failed {
        status: std::process::ExitStatus,
        said: String,
    },
}

impl MustGather {
    pub(crate) fn new(program: PathBuf, kubeconfig: Kubeconfig) -> Self {
        Self {
            program,
            kubeconfig,
            collections: Cell::default(),
            killed_after: KILLED_AFTER,
        }
    }

    /// Collects into a folder below that of a failed scenario, and tells where it is, or why it is not whole. That changes no verdict.
    pub(crate) async fn collect(
        &self,
        recorder: &Recorder,
        interrupt: &Interrupt,
        dir: &Path,
        failure: &mut Failure,
    ) {
        let number = self.collections.get() + 1;
        if number > MOST {
            let text = format!("must-gather: not called again after {MOST} failures");
            failure.details.push(text);
            return;
        }
        self.collections.set(number);
        let folder = dir.join(FOLDER);
        let run = tokio::select! {
            run = self.run(&folder) => run,
            () = interrupt.wait() => Err(Error::Interrupted),
        };
        let line = match run {
            Ok(said) => {
                recorder.stream().emit(Event::ArtifactWritten {
                    unit: recorder.unit().to_owned(),
                    path: folder.display().to_string(),
                });
                format!("must-gather: {said}")
            }
            Err(error) => format!("must-gather: failed: {}", crate::context::chain(&error)),
        };
        recorder.note(&line);
        failure.details.push(line);
    }

    /// Runs the program to its end. Returns what it said.
    async fn run(&self, folder: &Path) -> Result<String, Error> {
        let mut command = Command::new(&self.program);
        command
            .arg("--dest-dir")
            .arg(folder)
            .args(["--request-timeout", &REQUEST_LIMIT.as_secs().to_string()])
            .args(["--timeout", &LIMIT.as_secs().to_string()])
            .args(["--log-bytes", &LOG_BYTES.to_string()])
            .args(["--max-bytes", &MAX_BYTES.to_string()])
            .stdin(Stdio::null())
            .kill_on_drop(true);
        self.kubeconfig.apply_to(&mut command);
        let output = match tokio::time::timeout(self.killed_after, command.output()).await {
            Ok(output) => output.map_err(|source| Error::Start {
                program: self.program.display().to_string(),
                source,
            })?,
            Err(_) => return Err(Error::Slow(self.killed_after)),
        };
        let Output { status, stderr, .. } = output;
        let said = String::from_utf8_lossy(&stderr).trim().to_owned();
        if status.success() {
            Ok(said)
        } else {
            Err(Error::Failed { status, said })
        }
    }
}

/// Finds the program: in the directory of the programs under test, beside this program, or on the `PATH`.
pub(crate) fn find(bin_dir: Option<&Path>) -> Option<PathBuf> {
    let own = std::env::current_exe().ok();
    let beside = own.as_deref().and_then(Path::parent);
    let dirs = [bin_dir, beside].into_iter().flatten();
    find_in(dirs.map(Path::to_owned), PROGRAM).or_else(|| find_program(PROGRAM))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use reports::stream::Stream;

    use super::*;

    /// Has a shell script in the place of the program collect, so often. Returns what failures say of it.
    async fn said(script: &str, killed_after: Duration, times: usize) -> Vec<String> {
        let dir = tempfile::tempdir().expect("temporary directory");
        let program = dir.path().join(PROGRAM);
        std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).expect("the script is written");
        let permissions = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&program, permissions).expect("it can be started");
        let gather = MustGather {
            killed_after,
            ..MustGather::new(program, Kubeconfig::Pod)
        };
        let recorder = Recorder::new(&Stream::new(Vec::new()), "x");
        let mut failure = Failure::default();
        for _ in 0..times {
            gather
                .collect(&recorder, &Interrupt::default(), dir.path(), &mut failure)
                .await;
        }
        failure.details
    }

    #[tokio::test]
    async fn a_collection_that_fails_or_takes_too_long_is_told() {
        let failed = said("echo no cluster >&2; exit 1", KILLED_AFTER, 1).await;
        assert_eq!(
            failed,
            ["must-gather: failed: it ended with exit status: 1: no cluster"]
        );
        let slow = said("exec sleep 1000", Duration::from_secs(1), 1).await;
        assert_eq!(slow, ["must-gather: failed: it was stopped after 1 s"]);
    }

    #[tokio::test]
    async fn where_much_fails_only_the_first_failures_are_collected() {
        let times = MOST as usize + 1;
        let lines = said("echo collected >&2", KILLED_AFTER, times).await;
        assert_eq!(lines.len(), times);
        assert_eq!(lines[times - 2], "must-gather: collected");
        assert_eq!(
            lines[times - 1],
            "must-gather: not called again after 5 failures"
        );
    }

    #[tokio::test]
    async fn a_program_that_is_not_there_is_named() {
        let gather = MustGather::new("/nowhere/must-gather".into(), Kubeconfig::Pod);
        let error = gather
            .run(Path::new("x"))
            .await
            .expect_err("it is not there");
        assert_eq!(error.to_string(), "/nowhere/must-gather cannot be started");
    }
}
