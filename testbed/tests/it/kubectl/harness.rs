//! A whole embedded cluster, and kubectl to use it.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use cluster_spec::kubelet::TopologyScope;
use cluster_spec::plan::NodePlan;
use fixtures::machines::Machine;
use programs::kubernetes::{self, SearchPath};
use serde_json::{Value, json};
use testbed::embedded::{EmbeddedCluster, EmbeddedSpec};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use crate::cluster::harness::HELPER;

/// Longer than any step takes.
const PATIENCE: Duration = Duration::from_mins(1);

/// The result of a command.
#[derive(Debug)]
pub(super) struct CommandResult {
    pub(super) out: String,
    pub(super) err: String,
    pub(super) succeeded: bool,
}

/// A cluster, and the kubectl for it.
pub(super) struct TestCluster {
    inner: EmbeddedCluster,
    kubectl: PathBuf,
    pub(super) dir: tempfile::TempDir,
}

impl TestCluster {
    pub(super) async fn up(workers: usize) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let machine = Machine::default_profile();
        let nodes = (0..workers).map(|i| NodePlan::worker(i, TopologyScope::Container, &machine));
        let bin_dir = Path::new(HELPER).parent().unwrap();
        let spec = EmbeddedSpec::new("kubectl", dir.path(), bin_dir, nodes.collect());
        let cluster = Box::pin(EmbeddedCluster::up(spec, &|_| {})).await.unwrap();
        let assets = kubernetes::locate(&SearchPath::from_environment(None), &|_| {}).unwrap();
        let cluster = Self {
            inner: cluster,
            kubectl: assets.kubectl,
            dir,
        };
        cluster
            .eventually(&["get", "serviceaccount", "default"], |_| true)
            .await;
        cluster
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.kubectl);
        command
            .args(arguments)
            .env("KUBECONFIG", self.inner.kubeconfig())
            // kubectl must not use its caches of other clusters.
            .env("HOME", self.dir.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    async fn finish(mut command: Command, input: &str) -> CommandResult {
        let mut child = command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        // A command that does not read its input may end before the write.
        let _ = stdin.write_all(input.as_bytes()).await;
        drop(stdin);
        let ended = tokio::time::timeout(PATIENCE, child.wait_with_output()).await;
        let output = ended.expect("kubectl hangs").unwrap();
        CommandResult {
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
            succeeded: output.status.success(),
        }
    }

    /// Runs a command that may succeed or fail.
    pub(super) async fn run(&self, arguments: &[&str]) -> CommandResult {
        Self::finish(self.command(arguments), "").await
    }

    /// Runs a command that must succeed; returns its standard output.
    pub(super) async fn ok(&self, arguments: &[&str]) -> String {
        let result = self.run(arguments).await;
        assert!(result.succeeded, "kubectl {arguments:?}: {result:#?}");
        result.out
    }

    /// Runs a command that must fail; returns its standard error.
    pub(super) async fn refused(&self, arguments: &[&str]) -> String {
        let result = self.run(arguments).await;
        assert!(!result.succeeded, "kubectl {arguments:?}: {result:#?}");
        result.err
    }

    /// Runs `edit` with sed and a script as the editor.
    pub(super) async fn edit(&self, object: &str, script: &str) -> CommandResult {
        let mut command = self.command(&["edit", object]);
        command.env("KUBE_EDITOR", format!("sed -i '{script}'"));
        // kubectl stores a refused change in this directory.
        command.env("TMPDIR", self.dir.path());
        Self::finish(command, "").await
    }

    /// Applies an object.
    pub(super) async fn apply(&self, object: &Value) {
        let command = self.command(&["apply", "-f", "-"]);
        let result = Self::finish(command, &object.to_string()).await;
        assert!(result.succeeded, "{object}: {result:#?}");
    }

    /// Starts a command that keeps printing.
    pub(super) fn follow(&self, arguments: &[&str]) -> Followed {
        let mut child = self.command(arguments).spawn().unwrap();
        let stdout = child.stdout.take().unwrap();
        Followed {
            lines: BufReader::new(stdout).lines(),
            seen: Vec::new(),
            _child: child,
        }
    }

    /// Repeats a command until it succeeds and its output satisfies a condition; returns the last output.
    pub(super) async fn eventually(
        &self,
        arguments: &[&str],
        wanted: impl Fn(&str) -> bool,
    ) -> String {
        let found = testbed::eventually(PATIENCE, async || {
            let result = self.run(arguments).await;
            if result.succeeded && wanted(&result.out) {
                return Ok(result.out);
            }
            Err(format!("kubectl {arguments:?}: {result:#?}"))
        });
        found.await.unwrap()
    }
}

/// The lines of a command that keeps printing.
pub(super) struct Followed {
    lines: Lines<BufReader<ChildStdout>>,
    pub(super) seen: Vec<String>,
    _child: Child,
}

impl Followed {
    /// Waits for a line that satisfies a condition.
    pub(super) async fn line(&mut self, wanted: impl Fn(&str) -> bool) {
        let seen = &mut self.seen;
        let lines = &mut self.lines;
        let waited = tokio::time::timeout(PATIENCE, async {
            while let Some(line) = lines.next_line().await.unwrap() {
                let is_it = wanted(&line);
                seen.push(line);
                if is_it {
                    return true;
                }
            }
            false
        });
        assert_eq!(waited.await, Ok(true), "{:#?}", self.seen);
    }
}

/// Returns a pod spec with a sleeping container from the stack's image with this tag.
pub(super) fn sleeper(tag: &str) -> Value {
    json!({
        "terminationGracePeriodSeconds": 1, "automountServiceAccountToken": false,
        "containers": [{"name": "main", "image": image(tag), "command": ["/bin/sleep", "infinity"]}],
    })
}

/// Returns the stack's image with another tag.
pub(super) fn image(tag: &str) -> String {
    let (repository, _) = api::names::STACK_IMAGE.rsplit_once(':').unwrap();
    format!("{repository}:{tag}")
}

pub(super) fn deployment(name: &str, replicas: i32) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": sleeper("v1")},
        },
    })
}

pub(super) fn daemon_set(name: &str) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": sleeper("v1")},
        },
    })
}
