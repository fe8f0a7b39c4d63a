//! `cargo xtask record api --kubectl`: runs the commands of the corpus with a real kubectl and a real kube-apiserver, and writes down what
//! kubectl asks. What it asks to find out what the server can is left out: kubectl keeps those answers from one command to the next.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use judges::api::{self, Caller, Command, Endpoint, Proxy, Requests};
use programs::console::note;
use serde_json::{Value, json};
use tempfile::TempDir;

use self::steps::Steps;

mod steps;

/// Longest time that a command may take.
const COMMAND_TIMEOUT: Duration = Duration::from_mins(1);

/// Runs all commands whose file has `only` in its name, and writes what kubectl asked.
pub(super) async fn record(
    caller: &Caller,
    endpoint: &Endpoint,
    kubectl: &Path,
    corpus: &Path,
    only: &str,
) -> anyhow::Result<()> {
    let runner = Runner {
        proxy: Proxy::start(endpoint).await?,
        kubectl,
        home: tempfile::tempdir().context("cannot make a temporary directory")?,
    };
    // whatever the others ask to find out what the server can is answered from its cache
    runner.speak_as("admin")?;
    let directory = runner.prepare("default", &BTreeMap::new())?;
    runner.run(&directory, "api-resources", None).await?;
    let mut recorded: BTreeMap<String, BTreeMap<String, Requests>> = BTreeMap::new();
    let mut failures = Vec::new();
    for command in api::commands(&corpus.join("kubectl"))? {
        let subject = command.id.split('/').next().unwrap_or_default().to_owned();
        if !subject.contains(only) {
            continue;
        }
        match runner.converse(caller, &command).await {
            Ok(steps) => {
                let requests = Requests {
                    command: command.line,
                    steps,
                };
                let file = recorded.entry(subject).or_default();
                file.insert(command.id, requests);
            }
            Err(error) => failures.push(format!("{}: {}\n{error:#}", command.id, command.line)),
        }
    }
    for (subject, file) in &recorded {
        let path = corpus.join(format!("requests/{subject}.json"));
        super::fs_write(&path, &render(file)?)?;
    }
    let count: usize = recorded.values().map(BTreeMap::len).sum();
    note(&format!("{count} commands"));
    ensure!(
        failures.is_empty(),
        "{} commands went wrong:\n{}",
        failures.len(),
        failures.join("\n")
    );
    Ok(())
}

struct Runner<'a> {
    proxy: Proxy,
    kubectl: &'a Path,
    /// Home of kubectl, with its cache.
    home: TempDir,
}

impl Runner<'_> {
    fn speak_as(&self, user: &str) -> anyhow::Result<()> {
        ensure!(
            self.proxy.speak_as(user),
            "there is no user {user} in the corpus"
        );
        Ok(())
    }

    /// Makes a directory with the manifests and the kubeconfig of a namespace.
    fn prepare(
        &self,
        namespace: &str,
        manifests: &BTreeMap<String, Value>,
    ) -> anyhow::Result<PathBuf> {
        let directory = self.home.path().join(namespace);
        std::fs::create_dir_all(&directory).context("cannot make a directory")?;
        for (name, manifest) in manifests {
            let text = match manifest {
                Value::String(text) => text.clone(),
                Value::Array(objects) => {
                    let objects: Vec<String> = objects.iter().map(Value::to_string).collect();
                    objects.join("\n---\n")
                }
                object => object.to_string(),
            };
            let path = directory.join(name);
            super::fs_write(&path, &text.replace("{ns}", namespace))?;
        }
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "real", "cluster": {"server": format!("http://{}", self.proxy.address())}}],
            "users": [{"name": "proxy", "user": {"token": "added-by-the-proxy"}}],
            "contexts": [{"name": "real", "context": {"cluster": "real", "user": "proxy", "namespace": namespace}}],
            "current-context": "real",
        });
        super::fs_write(&directory.join("kubeconfig"), &config.to_string())?;
        Ok(directory)
    }

    async fn run(
        &self,
        directory: &Path,
        line: &str,
        editor: Option<&str>,
    ) -> anyhow::Result<Output> {
        let programs = self.kubectl.parent().unwrap_or_else(|| Path::new("/"));
        let running = tokio::process::Command::new("sh")
            .args(["-c", &format!("kubectl {line}")])
            .env_clear()
            .env("PATH", format!("{}:/usr/bin:/bin", programs.display()))
            .env("HOME", self.home.path())
            .env("KUBECONFIG", directory.join("kubeconfig"))
            .env("KUBECACHEDIR", self.home.path().join("cache"))
            .env("KUBE_EDITOR", editor.unwrap_or("false"))
            .current_dir(directory)
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output();
        tokio::time::timeout(COMMAND_TIMEOUT, running)
            .await
            .context("kubectl does not end")?
            .context("cannot start a shell")
    }

    /// Runs a command in a namespace of its own, and returns the steps of its conversation.
    async fn converse(&self, caller: &Caller, command: &Command) -> anyhow::Result<Vec<Value>> {
        let namespace = command.id.replace('/', "-");
        caller.open(&command.id, &namespace).await?;
        let directory = self.prepare(&namespace, &command.manifests)?;
        let mut steps = Steps::new(&namespace);
        let fill = |text: &str| text.replace("{ns}", &namespace);
        self.speak_as("admin")?;
        for before in &command.before {
            self.proxy.take();
            let output = self.run(&directory, &fill(before), None).await?;
            ensure!(
                output.status.success(),
                "{before}: {}",
                String::from_utf8_lossy(&output.stderr)
            );
            steps.add(&self.proxy.take(), "admin", true)?;
        }
        let user = command.user.as_deref().unwrap_or("admin");
        self.speak_as(user)?;
        let editor = command.editor.as_deref();
        let output = self.run(&directory, &fill(&command.line), editor).await?;
        steps.add(&self.proxy.take(), user, false)?;
        ensure!(
            output.status.success() != command.fails,
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        ensure!(steps.asks(), "kubectl asked nothing");
        std::fs::remove_dir_all(&directory).context("cannot remove a directory")?;
        Ok(steps.finish())
    }
}

/// Renders the requests of a file, one step per line.
fn render(file: &BTreeMap<String, Requests>) -> anyhow::Result<String> {
    let mut conversations = Vec::new();
    for (id, requests) in file {
        let steps: Vec<String> = requests
            .steps
            .iter()
            .map(|step| format!("  {step}"))
            .collect();
        let mut text = String::new();
        write!(
            text,
            "{}: {{\"command\": {}, \"steps\": [\n{}\n]}}",
            serde_json::to_string(id)?,
            serde_json::to_string(&requests.command)?,
            steps.join(",\n")
        )?;
        conversations.push(text);
    }
    Ok(format!("{{\n{}\n}}\n", conversations.join(",\n")))
}
