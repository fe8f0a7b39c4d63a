//! A real etcd and kube-apiserver on free loopback ports, gone when the value is dropped.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fs_err as fs;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::json;
use tempfile::TempDir;
use testbed::local::assets::{self, Assets, Places};

/// Token of a member of `system:masters`.
const TOKEN: &str = "tests-only";
/// Token of the operator's service account, which has the rights that it is given.
const OPERATOR_TOKEN: &str = "operator-tests-only";
const OPERATOR_ACCOUNT: &str =
    "system:serviceaccount:numaresources:numaresources-controller-manager";
/// Times to choose other ports when somebody else took one of ours meanwhile.
const STARTS: usize = 3;
const READY_WITHIN: Duration = Duration::from_mins(2);

/// The two processes with their files.
pub(crate) struct ControlPlane {
    processes: Vec<Child>,
    directory: TempDir,
    port: u16,
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        while let Some(mut process) = self.processes.pop() {
            // both fail only when it is gone already
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

impl ControlPlane {
    /// Starts both and waits until the API server is ready.
    pub(crate) async fn start() -> Self {
        let mut logs = String::new();
        for _ in 0..STARTS {
            match Self::try_start().await {
                Ok(started) => return started,
                Err(end) => logs = end,
            }
        }
        panic!("etcd and kube-apiserver do not become ready\n{logs}");
    }

    /// A client with all permissions.
    pub(crate) async fn client(&self) -> Client {
        let config =
            Config::from_custom_kubeconfig(self.kubeconfig(TOKEN), &KubeConfigOptions::default())
                .await
                .unwrap();
        Client::try_from(config).unwrap()
    }

    /// Path of a kubeconfig file with the rights of the operator's service account.
    #[allow(
        dead_code,
        reason = "not every test binary that includes this module starts programs"
    )]
    pub(crate) fn operator_kubeconfig(&self) -> PathBuf {
        let path = self.directory.path().join("operator.kubeconfig");
        let text = serde_json::to_string(&self.kubeconfig(OPERATOR_TOKEN)).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    fn kubeconfig(&self, token: &str) -> Kubeconfig {
        let server = format!("https://127.0.0.1:{}", self.port);
        serde_json::from_value(json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "tests", "cluster": {"server": server, "insecure-skip-tls-verify": true}}],
            "users": [{"name": "tests", "user": {"token": token}}],
            "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": "tests"}}],
            "current-context": "tests",
        }))
        .unwrap()
    }

    /// The error is the end of the logs.
    async fn try_start() -> Result<Self, String> {
        let programs = programs();
        let directory = tempfile::tempdir().unwrap();
        let [etcd_port, peer_port, port] = free_ports();
        let account_key = rcgen::KeyPair::generate().unwrap();
        let key = directory.path().join("service-account.key");
        fs::write(&key, account_key.serialize_pem()).unwrap();
        let public_key = directory.path().join("service-account.pub");
        fs::write(&public_key, account_key.public_key_pem()).unwrap();
        let tokens = directory.path().join("tokens.csv");
        fs::write(
            &tokens,
            format!(
                "{TOKEN},tests,tests,system:masters\n{OPERATOR_TOKEN},{OPERATOR_ACCOUNT},operator\n"
            ),
        )
        .unwrap();
        let etcd_url = format!("http://127.0.0.1:{etcd_port}");
        let peer_url = format!("http://127.0.0.1:{peer_port}");
        let mut plane = Self {
            processes: Vec::new(),
            directory,
            port,
        };
        plane.run(
            &programs.etcd,
            &[
                format!(
                    "--data-dir={}",
                    plane.directory.path().join("etcd").display()
                ),
                "--unsafe-no-fsync".into(),
                format!("--listen-client-urls={etcd_url}"),
                format!("--advertise-client-urls={etcd_url}"),
                format!("--listen-peer-urls={peer_url}"),
                format!("--initial-advertise-peer-urls={peer_url}"),
                format!("--initial-cluster=default={peer_url}"),
            ],
        );
        plane.run(
            &programs.kube_apiserver,
            &[
                format!("--etcd-servers={etcd_url}"),
                "--bind-address=127.0.0.1".into(),
                format!("--secure-port={port}"),
                format!(
                    "--cert-dir={}",
                    plane.directory.path().join("certificates").display()
                ),
                format!("--service-account-key-file={}", public_key.display()),
                format!("--service-account-signing-key-file={}", key.display()),
                "--service-account-issuer=https://kubernetes.default.svc".into(),
                format!("--token-auth-file={}", tokens.display()),
                "--authorization-mode=RBAC".into(),
                "--service-cluster-ip-range=10.96.0.0/16".into(),
                "--allow-privileged=true".into(),
                "--disable-admission-plugins=ServiceAccount".into(),
            ],
        );
        if plane.is_ready().await {
            return Ok(plane);
        }
        let logs = ["etcd", "kube-apiserver"].map(|name| {
            let text =
                fs::read_to_string(plane.directory.path().join(format!("{name}.log"))).unwrap();
            let lines: Vec<&str> = text.lines().collect();
            format!(
                "--- end of {name}.log\n{}",
                lines[lines.len().saturating_sub(10)..].join("\n")
            )
        });
        Err(logs.join("\n"))
    }

    fn run(&mut self, program: &Path, arguments: &[String]) {
        let name = program.file_name().unwrap().to_string_lossy().into_owned();
        let log = fs::File::create(self.directory.path().join(format!("{name}.log"))).unwrap();
        let child = Command::new(program)
            .args(arguments)
            .current_dir(self.directory.path())
            .stdin(Stdio::null())
            .stdout(log.file().try_clone().unwrap())
            .stderr(log.into_parts().0)
            .spawn()
            .unwrap_or_else(|error| panic!("{} does not start: {error}", program.display()));
        self.processes.push(child);
    }

    async fn is_ready(&mut self) -> bool {
        let client = self.client().await;
        let deadline = Instant::now() + READY_WITHIN;
        let mut tick = tokio::time::interval(Duration::from_millis(100));
        while Instant::now() < deadline {
            tick.tick().await;
            if self
                .processes
                .iter_mut()
                .any(|process| process.try_wait().unwrap().is_some())
            {
                return false;
            }
            let request = http::Request::get("/readyz").body(Vec::new()).unwrap();
            if client.request_text(request).await.is_ok() {
                return true;
            }
        }
        false
    }
}

/// The Kubernetes programs, where the local lane has them.
fn programs() -> Assets {
    assets::locate(&Places::from_environment(None), &|_| {})
        .expect("the Kubernetes programs are there")
}

fn free_ports() -> [u16; 3] {
    // all are held until all are chosen, so that they differ
    let listeners = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    listeners.map(|listener| listener.local_addr().unwrap().port())
}
