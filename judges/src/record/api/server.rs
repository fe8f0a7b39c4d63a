//! A real etcd and kube-apiserver on free loopback ports, with the settings of the local lane; they end when the value is dropped.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use cluster_spec::kubernetes::Assets;
use cluster_spec::subnet::Subnet;
use judges::api::{Caller, USERS};
use local_cluster::pki;
use serde_json::{Value, json};
use tempfile::TempDir;

const READY_TIMEOUT: Duration = Duration::from_mins(2);

/// The two processes and their files.
pub(super) struct RealServer {
    processes: Vec<Child>,
    directory: TempDir,
    authority: String,
    etcd_port: u16,
    port: u16,
}

impl Drop for RealServer {
    fn drop(&mut self) {
        while let Some(mut process) = self.processes.pop() {
            // both fail only if it has already ended
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

impl RealServer {
    /// Starts both.
    pub(super) fn start(assets: &Assets) -> anyhow::Result<Self> {
        let directory = tempfile::tempdir().context("cannot make a temporary directory")?;
        let keys = pki::create(&directory.path().join("pki"), Subnet(1))?;
        let [etcd_port, peer_port, port] = free_ports()?;
        let tokens = directory.path().join("tokens.csv");
        let lines: Vec<String> = USERS
            .iter()
            .map(|(_, token, name, groups)| {
                format!("{token},{name},{name},\"{}\"\n", groups.join(","))
            })
            .collect();
        std::fs::write(&tokens, lines.concat()).context("cannot write the tokens")?;
        let etcd_url = format!("http://127.0.0.1:{etcd_port}");
        let peer_url = format!("http://127.0.0.1:{peer_port}");
        let mut server = Self {
            processes: Vec::new(),
            authority: keys.ca_pem.clone(),
            directory,
            etcd_port,
            port,
        };
        let data = server.directory.path().join("etcd");
        server.run(
            &assets.etcd,
            &[
                format!("--data-dir={}", data.display()),
                "--unsafe-no-fsync".into(),
                format!("--listen-client-urls={etcd_url}"),
                format!("--advertise-client-urls={etcd_url}"),
                format!("--listen-peer-urls={peer_url}"),
                format!("--initial-advertise-peer-urls={peer_url}"),
                format!("--initial-cluster=default={peer_url}"),
            ],
        )?;
        let (serving, accounts) = (keys.serving(), keys.service_account());
        server.run(
            &assets.kube_apiserver,
            &[
                format!("--etcd-servers={etcd_url}"),
                "--bind-address=127.0.0.1".into(),
                format!("--secure-port={port}"),
                format!("--tls-cert-file={}", serving.cert.display()),
                format!("--tls-private-key-file={}", serving.key.display()),
                format!("--token-auth-file={}", tokens.display()),
                "--authorization-mode=Node,RBAC".into(),
                "--enable-admission-plugins=NodeRestriction".into(),
                "--service-cluster-ip-range=10.96.0.0/16".into(),
                "--service-account-issuer=https://kubernetes.default.svc.cluster.local".into(),
                format!("--service-account-key-file={}", accounts.cert.display()),
                format!(
                    "--service-account-signing-key-file={}",
                    accounts.key.display()
                ),
                "--kubelet-preferred-address-types=InternalIP".into(),
                "--allow-privileged=true".into(),
                "--event-ttl=6h".into(),
                "--profiling=false".into(),
            ],
        )?;
        Ok(server)
    }

    pub(super) fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))
    }

    /// Returns the certificate of its authority as PEM.
    pub(super) fn authority(&self) -> &str {
        &self.authority
    }

    pub(super) fn etcd_port(&self) -> u16 {
        self.etcd_port
    }

    fn run(&mut self, program: &Path, arguments: &[String]) -> anyhow::Result<()> {
        let name = program.file_name().unwrap_or_default().to_string_lossy();
        let log = std::fs::File::create(self.directory.path().join(format!("{name}.log")))
            .context("cannot make a log file")?;
        let child = Command::new(program)
            .args(arguments)
            .current_dir(self.directory.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone().context("cannot share a log file")?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        self.processes.push(child);
        Ok(())
    }

    /// Waits until it is ready and has created the objects of every cluster.
    pub(super) async fn wait_until_ready(&self, caller: &Caller) -> anyhow::Result<()> {
        let deadline = Instant::now() + READY_TIMEOUT;
        let mut tick = tokio::time::interval(Duration::from_millis(200));
        while Instant::now() < deadline {
            tick.tick().await;
            if caller
                .status("/readyz")
                .await
                .is_ok_and(|status| status == 200)
                && caller
                    .status("/api/v1/namespaces/default/services/kubernetes")
                    .await
                    .is_ok_and(|status| status == 200)
            {
                return Ok(());
            }
        }
        let log = std::fs::read_to_string(self.directory.path().join("kube-apiserver.log"))
            .unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        bail!(
            "kube-apiserver does not become ready:\n{}",
            lines[lines.len().saturating_sub(10)..].join("\n")
        )
    }
}

/// Compacts etcd to its current revision.
pub(super) fn compact(port: u16) -> anyhow::Result<()> {
    let range = ask_etcd(port, "/v3/kv/range", &json!({"key": "AA=="}))?;
    let revision = &range["header"]["revision"];
    ensure!(revision.is_string(), "etcd returned no revision: {range}");
    let answer = ask_etcd(
        port,
        "/v3/kv/compaction",
        &json!({"revision": revision, "physical": true}),
    )?;
    ensure!(
        answer["header"].is_object(),
        "etcd does not compact: {answer}"
    );
    Ok(())
}

/// Sends a request to etcd's JSON gateway; one call does not justify a client library.
fn ask_etcd(port: u16, path: &str, body: &Value) -> anyhow::Result<Value> {
    let body = body.to_string();
    let mut stream =
        TcpStream::connect((Ipv4Addr::LOCALHOST, port)).context("cannot reach etcd")?;
    write!(
        stream,
        "POST {path} HTTP/1.0\r\nhost: etcd\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )?;
    let mut text = String::new();
    stream
        .read_to_string(&mut text)
        .context("etcd does not answer")?;
    let (_, body) = text
        .split_once("\r\n\r\n")
        .context("etcd's answer has no body")?;
    serde_json::from_str(body).with_context(|| format!("etcd's answer is no JSON: {text}"))
}

fn free_ports() -> anyhow::Result<[u16; 3]> {
    // all are held until all are chosen, so that they differ
    let mut listeners = Vec::new();
    let mut ports = [0; 3];
    for port in &mut ports {
        let listener = TcpListener::bind("127.0.0.1:0").context("no free port")?;
        *port = listener.local_addr().context("no free port")?.port();
        listeners.push(listener);
    }
    Ok(ports)
}
