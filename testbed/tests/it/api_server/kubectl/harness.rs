//! A server, and kubectl commands against it.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use apiserver::{Options, Running, Server};
use programs::kubernetes::{self, SearchPath};
use serde_json::Value;
use tempfile::TempDir;

/// Longest time that a command may take.
const COMMAND_TIMEOUT: Duration = Duration::from_mins(1);

/// A server, and the kubectl program that connects to it.
pub(super) struct Kubectl {
    pub(super) program: PathBuf,
    pub(super) home: TempDir,
    pub(super) server: Running,
}

/// The result of a command.
#[derive(Debug)]
pub(super) struct CommandOutput {
    pub(super) code: i32,
    pub(super) out: String,
    pub(super) error: String,
}

impl Kubectl {
    /// Starts a server with a service account for pods.
    pub(super) async fn start() -> Self {
        let server = Server::start(Options::default()).await.unwrap();
        let programs = kubernetes::locate(&SearchPath::from_environment(None), &|_| {})
            .expect("the Kubernetes programs are there");
        let home = tempfile::tempdir().unwrap();
        let config = server.kubeconfig(&server.admin_token);
        std::fs::write(home.path().join("config"), config).unwrap();
        let kubectl = Self {
            program: programs.kubectl,
            home,
            server,
        };
        kubectl.ok("create serviceaccount default", "").await;
        kubectl
    }

    /// Runs a command. Its words are separated by spaces; single quotes keep words together.
    pub(super) async fn run(&self, command: &str, input: &str) -> CommandOutput {
        let mut process = Command::new(&self.program);
        process
            .args(words(command))
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.home.path())
            .env("KUBECONFIG", self.home.path().join("config"))
            .env("EDITOR", self.home.path().join("editor"))
            .env("TMPDIR", self.home.path())
            .current_dir(self.home.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let input = input.to_owned();
        let done = tokio::task::spawn_blocking(move || {
            let mut child = process.spawn().unwrap();
            // a command that does not read its input closes the pipe early
            let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
            child.wait_with_output().unwrap()
        });
        let ended = tokio::time::timeout(COMMAND_TIMEOUT, done).await;
        assert!(ended.is_ok(), "no end in time: {command}");
        let output = ended.unwrap().unwrap();
        CommandOutput {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8(output.stdout).unwrap(),
            error: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// Runs a command that succeeds, and returns its output.
    pub(super) async fn ok(&self, command: &str, input: &str) -> String {
        let output = self.run(command, input).await;
        assert_eq!(output.code, 0, "{command}\n{}{}", output.out, output.error);
        output.out
    }

    /// Runs a command that fails, and returns its error output.
    pub(super) async fn fails(&self, command: &str, input: &str) -> String {
        let output = self.run(command, input).await;
        assert_ne!(output.code, 0, "{command}\n{}", output.out);
        output.error
    }

    /// Returns an object as JSON.
    pub(super) async fn object(&self, what: &str) -> Value {
        let command = format!("get {what} -o json --show-managed-fields");
        serde_json::from_str(&self.ok(&command, "").await).unwrap()
    }

    /// Writes the program that `kubectl edit` starts.
    pub(super) fn editor(&self, script: &str) {
        use std::os::unix::fs::PermissionsExt as _;
        let path = self.home.path().join("editor");
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
}

fn words(command: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (index, part) in command.split('\'').enumerate() {
        if index % 2 == 1 {
            words.push(part.to_owned());
        } else {
            words.extend(part.split_whitespace().map(str::to_owned));
        }
    }
    words
}

/// Returns the lines of a table, with cells separated by single spaces.
pub(super) fn lines(table: &str) -> Vec<String> {
    table
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect()
}
