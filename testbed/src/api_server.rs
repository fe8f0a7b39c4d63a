//! An API server alone, without nodes and controllers: for tests of programs that are only its clients.
//!
//! It is the embedded one, or, where the local lane is chosen, a real kube-apiserver with its etcd. What a test claims about our programs
//! has to hold on both; where they differ, the embedded one is wrong.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

pub use apiserver::audit::Decision;
use apiserver::{Running, Server};
use fs_err as fs;
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use kube::api::{Api, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::lane::Lane;
use cluster_faults::Faults;
use cluster_spec::kubernetes::Assets;
use programs::kubernetes;
use programs::kubernetes::SearchPath;

/// Token of a member of `system:masters` at the real server.
const TOKEN: &str = "tests-only";
/// Number of attempts, each with new ports, because another process may take a chosen port first.
const MAX_ATTEMPTS: usize = 3;
/// Longest time for the real server to become ready.
const READY_TIMEOUT: Duration = Duration::from_mins(2);
/// Number of lines of each log that an error shows.
const LOG_LINES: usize = 10;

/// Why there is no API server, or why it could not be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The embedded server does not start.
    #[error("the embedded API server does not start")]
    Embedded(#[from] apiserver::Error),
    /// The programs of the real server were not found.
    #[error("there are no Kubernetes programs")]
    Programs(#[from] kubernetes::Error),
    /// A key for the real server could not be made.
    #[error("cannot make a key")]
    Key(#[from] rcgen::Error),
    /// A file, a port or a process of the real server could not be used.
    #[error("cannot start the programs of the API server")]
    Io(#[from] std::io::Error),
    /// The real server started but did not become ready.
    #[error("etcd and kube-apiserver do not become ready\n{logs}")]
    NotReady {
        /// The last lines of their logs.
        logs: String,
    },
    /// A kubeconfig could not be used.
    #[error("cannot use a kubeconfig of the API server")]
    Kubeconfig(#[from] KubeconfigError),
    /// A kubeconfig could not be read or written as text.
    #[error("cannot write a kubeconfig of the API server")]
    Text(#[from] serde_json::Error),
    /// A request failed.
    #[error("cannot use the API server")]
    Request(#[from] Box<kube::Error>),
    /// The answer to a token request contains no token.
    #[error("no token was given for account {0}")]
    NoToken(String),
}

/// An API server; it ends when this is dropped.
#[derive(Debug)]
pub struct ApiServer {
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Embedded(Box<Running>),
    Local(Processes),
}

impl ApiServer {
    /// Starts the server of a lane and returns when it is ready. The `ServiceAccount` admission plugin is off, because no controller
    /// creates the accounts that it puts into pods.
    pub async fn start(lane: Lane) -> Result<Self, Error> {
        let kind = match lane {
            Lane::Embedded => {
                let options = apiserver::Options {
                    disabled_admission: vec!["ServiceAccount".to_owned()],
                    // the made-up kubelets of tests listen there (`configz`)
                    proxies_to_loopback: true,
                    ..apiserver::Options::default()
                };
                Kind::Embedded(Box::new(Server::start(options).await?))
            }
            Lane::Local => Kind::Local(Processes::start().await?),
        };
        Ok(Self { kind })
    }

    /// Returns a client with all permissions.
    pub async fn client(&self) -> Result<Client, Error> {
        client(self.admin_kubeconfig()?).await
    }

    /// Returns the faults that can be injected; the real server supports only the loss of leases.
    pub async fn faults(&self) -> Result<Faults, Error> {
        let api = match &self.kind {
            Kind::Embedded(server) => Some(server.faults()),
            Kind::Local(_) => None,
        };
        Ok(Faults::new(self.client().await?, api, None))
    }

    /// Starts to record the decisions of the embedded server's authorizers; for the real server it does nothing.
    pub fn record_decisions(&self) {
        if let Kind::Embedded(server) = &self.kind {
            server.record_decisions();
        }
    }

    /// Returns what the embedded server has decided about an account's requests since then; empty for the real server.
    pub fn decisions(&self, namespace: &str, account: &str) -> Vec<Decision> {
        match &self.kind {
            Kind::Embedded(server) => {
                server.decisions(&format!("system:serviceaccount:{namespace}:{account}"))
            }
            Kind::Local(_) => Vec::new(),
        }
    }

    /// Returns a kubeconfig for a service account, which has exactly the permissions of its roles.
    pub async fn account_kubeconfig(
        &self,
        namespace: &str,
        account: &str,
    ) -> Result<Kubeconfig, Error> {
        self.token_kubeconfig(namespace, account, json!({"audiences": []}))
            .await
    }

    /// Returns a kubeconfig with the token that a kubelet gets for a pod of a service account. The token names the pod and its node.
    pub async fn pod_kubeconfig(
        &self,
        namespace: &str,
        account: &str,
        pod: &Pod,
    ) -> Result<Kubeconfig, Error> {
        let bound = json!({
            "kind": "Pod", "apiVersion": "v1", "name": pod.metadata.name, "uid": pod.metadata.uid,
        });
        let spec = json!({"audiences": [], "boundObjectRef": bound});
        self.token_kubeconfig(namespace, account, spec).await
    }

    async fn token_kubeconfig(
        &self,
        namespace: &str,
        account: &str,
        spec: Value,
    ) -> Result<Kubeconfig, Error> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client().await?, namespace);
        let request: TokenRequest = serde_json::from_value(json!({"metadata": {}, "spec": spec}))?;
        let answer = accounts
            .create_token_request(account, &PostParams::default(), &request)
            .await
            .map_err(Box::new)?;
        let token = answer.status.map(|status| status.token);
        let token = token.ok_or_else(|| Error::NoToken(format!("{namespace}/{account}")))?;
        self.kubeconfig(&token)
    }

    /// Returns a kubeconfig with all permissions.
    pub fn admin_kubeconfig(&self) -> Result<Kubeconfig, Error> {
        self.kubeconfig(self.admin_token())
    }

    fn admin_token(&self) -> &str {
        match &self.kind {
            Kind::Embedded(server) => &server.admin_token,
            Kind::Local(_) => TOKEN,
        }
    }

    fn kubeconfig(&self, token: &str) -> Result<Kubeconfig, Error> {
        match &self.kind {
            Kind::Embedded(server) => Ok(Kubeconfig::from_yaml(&server.kubeconfig(token))?),
            Kind::Local(processes) => processes.kubeconfig(token),
        }
    }
}

/// Writes a kubeconfig where a program of this user can read it, and nobody else: it has a token.
pub fn write(kubeconfig: &Kubeconfig, path: &Path) -> Result<(), Error> {
    // JSON is valid YAML
    cluster_state::write_private(path, &serde_json::to_string(kubeconfig)?)?;
    Ok(())
}

async fn client(kubeconfig: Kubeconfig) -> Result<Client, Error> {
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config).map_err(Box::new)?)
}

/// etcd and kube-apiserver on free loopback ports.
#[derive(Debug)]
struct Processes {
    running: Vec<Child>,
    directory: TempDir,
    port: u16,
}

impl Drop for Processes {
    fn drop(&mut self) {
        while let Some(mut process) = self.running.pop() {
            // both calls fail only when the process has already ended
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

impl Processes {
    async fn start() -> Result<Self, Error> {
        let programs = kubernetes::locate(&SearchPath::from_environment(None), &|_| {})?;
        let mut last_logs = String::new();
        for _ in 0..MAX_ATTEMPTS {
            let mut processes = Self::spawn(&programs)?;
            if processes.wait_until_ready().await? {
                return Ok(processes);
            }
            last_logs = processes.log_tails();
        }
        Err(Error::NotReady { logs: last_logs })
    }

    fn kubeconfig(&self, token: &str) -> Result<Kubeconfig, Error> {
        let server = format!("https://127.0.0.1:{}", self.port);
        Ok(serde_json::from_value(json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "tests", "cluster": {"server": server, "insecure-skip-tls-verify": true}}],
            "users": [{"name": "tests", "user": {"token": token}}],
            "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": "tests"}}],
            "current-context": "tests",
        }))?)
    }

    fn spawn(programs: &Assets) -> Result<Self, Error> {
        let directory = tempfile::tempdir()?;
        let [etcd_port, peer_port, port] = free_ports()?;
        let account_key = rcgen::KeyPair::generate()?;
        let key = directory.path().join("service-account.key");
        fs::write(&key, account_key.serialize_pem())?;
        let public_key = directory.path().join("service-account.pub");
        fs::write(&public_key, account_key.public_key_pem())?;
        let tokens = directory.path().join("tokens.csv");
        fs::write(&tokens, format!("{TOKEN},tests,tests,system:masters\n"))?;
        let etcd_url = format!("http://127.0.0.1:{etcd_port}");
        let peer_url = format!("http://127.0.0.1:{peer_port}");
        let etcd_data = directory.path().join("etcd");
        let certificates = directory.path().join("certificates");
        let mut processes = Self {
            running: Vec::new(),
            directory,
            port,
        };
        processes.run(
            &programs.etcd,
            &[
                format!("--data-dir={}", etcd_data.display()),
                "--unsafe-no-fsync".to_owned(),
                format!("--listen-client-urls={etcd_url}"),
                format!("--advertise-client-urls={etcd_url}"),
                format!("--listen-peer-urls={peer_url}"),
                format!("--initial-advertise-peer-urls={peer_url}"),
                format!("--initial-cluster=default={peer_url}"),
            ],
        )?;
        processes.run(
            &programs.kube_apiserver,
            &[
                format!("--etcd-servers={etcd_url}"),
                "--bind-address=127.0.0.1".to_owned(),
                format!("--secure-port={port}"),
                format!("--cert-dir={}", certificates.display()),
                format!("--service-account-key-file={}", public_key.display()),
                format!("--service-account-signing-key-file={}", key.display()),
                "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
                format!("--token-auth-file={}", tokens.display()),
                "--authorization-mode=RBAC".to_owned(),
                "--service-cluster-ip-range=10.96.0.0/16".to_owned(),
                "--allow-privileged=true".to_owned(),
                "--disable-admission-plugins=ServiceAccount".to_owned(),
            ],
        )?;
        Ok(processes)
    }

    fn run(&mut self, program: &Path, arguments: &[String]) -> Result<(), Error> {
        let name = program.file_name().unwrap_or_default().to_string_lossy();
        let log = self.directory.path().join(format!("{name}.log"));
        let log = fs::File::create(log)?.into_parts().0;
        let child = Command::new(program)
            .args(arguments)
            .current_dir(self.directory.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        self.running.push(child);
        Ok(())
    }

    /// Waits until the server is ready; returns false when a process ended or the time is over.
    async fn wait_until_ready(&mut self) -> Result<bool, Error> {
        let client = client(self.kubeconfig(TOKEN)?).await?;
        let deadline = Instant::now() + READY_TIMEOUT;
        let mut tick = tokio::time::interval(Duration::from_millis(100));
        while Instant::now() < deadline {
            tick.tick().await;
            for process in &mut self.running {
                if process.try_wait()?.is_some() {
                    return Ok(false);
                }
            }
            let request = http::Request::get("/readyz").body(Vec::new());
            let request = request.map_err(kube::Error::HttpError).map_err(Box::new)?;
            if client.request_text(request).await.is_ok() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn log_tails(&self) -> String {
        let ends = ["etcd", "kube-apiserver"].map(|name| {
            let path = self.directory.path().join(format!("{name}.log"));
            // the log only explains another failure, so an unreadable one counts as empty
            let text = fs::read_to_string(path).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            let end = lines[lines.len().saturating_sub(LOG_LINES)..].join("\n");
            format!("--- end of {name}.log\n{end}")
        });
        ends.join("\n")
    }
}

fn free_ports() -> std::io::Result<[u16; 3]> {
    // all ports are held until the last is chosen, so that they differ
    let listeners = [
        TcpListener::bind("127.0.0.1:0")?,
        TcpListener::bind("127.0.0.1:0")?,
        TcpListener::bind("127.0.0.1:0")?,
    ];
    let mut ports = [0; 3];
    for (port, listener) in ports.iter_mut().zip(&listeners) {
        *port = listener.local_addr()?.port();
    }
    Ok(ports)
}
