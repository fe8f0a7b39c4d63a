//! The deployer as a process.

use std::path::Path;
use std::process::{Command, Output};

/// What a run has printed, and its exit code.
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Shows the end of each output, which has what went wrong.
impl std::fmt::Debug for Ran {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let end = |text: &str| {
            let lines: Vec<&str> = text.lines().collect();
            lines[lines.len().saturating_sub(20)..].join("\n")
        };
        let (stdout, stderr) = (end(&self.stdout), end(&self.stderr));
        write!(
            f,
            "code {:?}\n--- stdout\n{stdout}\n--- stderr\n{stderr}",
            self.code
        )
    }
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

impl Ran {
    /// Asserts success. Returns what went to stdout.
    pub(crate) fn stdout(self) -> String {
        assert_eq!(self.code, Some(0), "{self:?}");
        self.stdout
    }

    /// Asserts failure. Returns what went to stderr.
    pub(crate) fn stderr(self) -> String {
        assert_eq!(self.code, Some(1), "{self:?}");
        self.stderr
    }

    /// Asserts success. Returns the lines of the log without times and levels: component, message, and the values.
    pub(crate) fn log(self) -> Vec<String> {
        assert_eq!(self.code, Some(0), "{self:?}");
        let without_time = |line: &str| -> String {
            let line: String = line.chars().skip("2026/01/02 03:04:05 ".len()).collect();
            line.replace("\"level\"=0 \"msg\"=", "").replace('"', "")
        };
        self.stderr.lines().map(without_time).collect()
    }
}

/// Runs the deployer with an environment that has nothing else than these variables.
pub(crate) fn deployer_with(variables: &[(&str, &str)], arguments: &str) -> Ran {
    let output = Command::new(assert_cmd::cargo::cargo_bin("deployer"))
        .args(arguments.split_whitespace())
        .env_clear()
        .envs(variables.iter().copied())
        .output();
    output.unwrap().into()
}

/// Runs the deployer without any variable.
pub(crate) fn deployer(arguments: &str) -> Ran {
    deployer_with(&[], arguments)
}

/// Runs the deployer on the cluster of a kubeconfig, beside the tasks of the test.
pub(crate) async fn deployer_on(kubeconfig: &Path, arguments: &str) -> Ran {
    let output = tokio::process::Command::new(assert_cmd::cargo::cargo_bin("deployer"))
        .args(arguments.split_whitespace())
        .env_clear()
        .env("KUBECONFIG", kubeconfig)
        .output();
    output.await.unwrap().into()
}
