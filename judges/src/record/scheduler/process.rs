//! The kube-scheduler that gives the verdicts: a process with a configuration, an account and a log of its own.

use std::process::{Child, Command, Stdio};

use anyhow::Context as _;
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::Client;
use kube::api::{Api, PostParams};
use programs::kubernetes::{self, SearchPath};
use serde_json::{Value, json};
use tempfile::TempDir;
use testbed::api_server::{self, ApiServer};
use testbed::cli::print_progress;

/// Service account of the scheduler.
const ACCOUNT: &str = "recorded-scheduler";

/// A real kube-scheduler with a profile that runs only a plugin and the one that pins pods to their nodes.
pub(super) struct Scheduler {
    process: Child,
    directory: TempDir,
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        // both fail only if it has already ended
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Scheduler {
    pub(super) async fn start(
        server: &ApiServer,
        client: &Client,
        profile: &Value,
        verbosity: u8,
    ) -> anyhow::Result<Self> {
        let assets = kubernetes::locate(&SearchPath::from_environment(None), &print_progress)?;
        let directory = tempfile::tempdir().context("cannot make a temporary directory")?;
        let kubeconfig = directory.path().join("kubeconfig");
        let config = directory.path().join("config.yaml");
        grant(client).await?;
        let account = server.account_kubeconfig("default", ACCOUNT).await?;
        api_server::write(&account, &kubeconfig)?;
        let text = json!({
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": false},
            "clientConnection": {"kubeconfig": kubeconfig, "qps": 5000, "burst": 5000},
            "percentageOfNodesToScore": 100,
            "profiles": [profile],
        });
        std::fs::write(&config, text.to_string()).context("cannot write the configuration")?;
        let log = std::fs::File::create(directory.path().join("log"))
            .context("cannot make a log file")?;
        let process = Command::new(&assets.kube_scheduler)
            .arg(format!("--config={}", config.display()))
            .arg("--secure-port=0")
            .arg(format!("-v={verbosity}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .with_context(|| format!("cannot start {}", assets.kube_scheduler.display()))?;
        Ok(Self { process, directory })
    }

    pub(super) fn log(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }

    pub(super) fn end_of_log(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(10)..].join("\n")
    }
}

/// Grants the scheduler all permissions.
async fn grant(client: &Client) -> anyhow::Result<()> {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), "default");
    let account = serde_json::from_value(json!({"metadata": {"name": ACCOUNT}}))?;
    accounts.create(&PostParams::default(), &account).await?;
    let bindings: Api<ClusterRoleBinding> = Api::all(client.clone());
    let binding = json!({
        "metadata": {"name": ACCOUNT},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": "default"}],
    });
    bindings
        .create(&PostParams::default(), &serde_json::from_value(binding)?)
        .await?;
    Ok(())
}
