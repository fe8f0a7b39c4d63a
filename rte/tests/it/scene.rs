//! A node for an exporter: its directory, its kubelet, its API server, and the exporter as a process.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use apply::{Applier, wait};
use kube::{Client, ResourceExt as _};
use manifests::to_value;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use podresources::v1;
use serde_json::{Value, json};
use sim::node::addresses::Block;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use crate::api_server::{ApiServer, NRTS, PATIENCE};
use crate::kubelet::Kubelet;

pub(crate) const POD: &str = "/api/v1/namespaces/numaresources/pods/rte-x";

/// Directory, kubelet and API server of a node.
pub(crate) struct Scene {
    dir: tempfile::TempDir,
    pub(crate) server: ApiServer,
    pub(crate) kubelet: Kubelet,
}

impl Scene {
    pub(crate) async fn new() -> Self {
        let dir = node();
        let server = ApiServer::new();
        let url = server.listen().await;
        let kubeconfig = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{{name: c, cluster: {{server: '{url}'}}}}]\n\
             users: [{{name: u, user: {{token: t}}}}]\ncontexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n"
        );
        fs::write(dir.path().join("kubeconfig"), kubeconfig).unwrap();
        server.put(POD, json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "rte-x", "namespace": "numaresources"},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}]}}));
        Self {
            dir,
            server,
            kubelet: kubelet(),
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) async fn serve_kubelet(&self) {
        self.kubelet.serve(&self.path("kubelet.sock")).await;
    }

    pub(crate) fn command(&self, flags: &[&str]) -> Command {
        exporter(self.dir.path(), flags)
    }

    pub(crate) fn start(&self, flags: &[&str]) -> Child {
        self.command(flags).spawn().unwrap()
    }

    pub(crate) async fn nrt(&self, what: impl Fn(&Value) -> bool) -> Value {
        self.server
            .wait_for(&format!("{NRTS}/worker-0"), what)
            .await
    }
}

/// Creates the directory of a node.
pub(crate) fn node() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    write_sysfs(dir.path());
    dir
}

/// Creates a kubelet that can assign all CPUs except the first.
pub(crate) fn kubelet() -> Kubelet {
    Kubelet::new(v1::AllocatableResourcesResponse {
        cpu_ids: vec![1, 2, 3, 4, 5, 6, 7],
        ..Default::default()
    })
}

/// Returns the command of an exporter for the node with this directory, which contains `kubeconfig` and `kubelet.sock`.
pub(crate) fn exporter(dir: &Path, flags: &[&str]) -> Command {
    let path = |name: &str| dir.join(name);
    let mut command = Command::new(env!("CARGO_BIN_EXE_resource-topology-exporter"));
    command
        .env_clear()
        .env("HOME", dir)
        .env("NODE_NAME", "worker-0")
        .env("REFERENCE_NAMESPACE", "numaresources")
        .env("REFERENCE_POD_NAME", "rte-x")
        .arg(format!("--kubeconfig={}", path("kubeconfig").display()))
        .arg(format!("--sysfs={}", path("sys").display()))
        .arg(format!(
            "--podresources-socket=unix://{}",
            path("kubelet.sock").display()
        ))
        .args([
            "--topology-manager-policy=single-numa-node",
            "--topology-manager-scope=container",
        ])
        .args(flags)
        // not pipes: nobody reads them, and a full pipe would block the exporter
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    command
}

/// Waits until a program ends; returns its output.
pub(crate) async fn output(command: &mut Command) -> Output {
    let ended = tokio::time::timeout(PATIENCE, command.output()).await;
    ended.expect("the program ends").unwrap()
}

/// Writes a sysfs with two NUMA nodes, each with four CPUs and 1 GiB.
fn write_sysfs(dir: &Path) {
    let root = dir.join("sys/devices/system/node");
    for node in 0..2 {
        let path = root.join(format!("node{node}"));
        for cpu in node * 4..node * 4 + 4 {
            fs::create_dir_all(path.join(format!("cpu{cpu}"))).unwrap();
        }
        fs::write(
            path.join("meminfo"),
            format!("Node {node} MemTotal: 1048576 kB\n"),
        )
        .unwrap();
        fs::write(
            path.join("distance"),
            if node == 0 { "10 21\n" } else { "21 10\n" },
        )
        .unwrap();
    }
}

pub(crate) fn pod(name: &str, cpus: &[i64]) -> v1::PodResources {
    v1::PodResources {
        name: name.to_owned(),
        namespace: "default".to_owned(),
        containers: vec![v1::ContainerResources {
            name: "c".to_owned(),
            cpu_ids: cpus.to_vec(),
            ..Default::default()
        }],
    }
}

pub(crate) fn cpus(nrt: &Value) -> Vec<&str> {
    let zones = nrt["zones"].as_array().unwrap();
    zones
        .iter()
        .map(|zone| zone["resources"][0]["available"].as_str().unwrap())
        .collect()
}

pub(crate) fn condition(pod: &Value, kind: &str) -> Option<String> {
    let conditions = pod["status"]["conditions"].as_array()?;
    let found = conditions
        .iter()
        .find(|condition| condition["type"] == kind)?;
    Some(found["status"].as_str().unwrap().to_owned())
}

pub(crate) async fn terminate(mut child: Child) {
    kill(
        Pid::from_raw(child.id().unwrap().cast_signed()),
        Signal::SIGTERM,
    )
    .unwrap();
    let status = tokio::time::timeout(PATIENCE, child.wait())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(status.code(), Some(0));
}

/// Metrics endpoint of an exporter. Its address belongs to no other process, so the port is free.
pub(crate) struct Metrics(Block);

impl Metrics {
    const PORT: u16 = 2112;

    pub(crate) fn claim() -> Self {
        Self(Block::claim().unwrap())
    }

    /// Returns the flags that make an exporter serve metrics there.
    pub(crate) fn flags(&self) -> [String; 3] {
        [
            "--metrics-mode=http".to_owned(),
            format!("--metrics-ip={}", self.0.control_plane()),
            format!("--metrics-port={}", Self::PORT),
        ]
    }

    /// Returns the whole answer; an empty text when nothing listens.
    pub(crate) async fn ask(&self, path: &str) -> String {
        self.ask_with(path, "").await
    }

    /// Like [`Self::ask`], with these lines in the head of the request.
    pub(crate) async fn ask_with(&self, path: &str, head: &str) -> String {
        let asked = async {
            let mut text = String::new();
            let address = (self.0.control_plane(), Self::PORT);
            if let Ok(mut stream) = TcpStream::connect(address).await {
                let request = format!("GET {path} HTTP/1.0\r\n{head}\r\n");
                stream.write_all(request.as_bytes()).await.unwrap();
                stream.read_to_string(&mut text).await.unwrap();
            }
            text
        };
        let asked = tokio::time::timeout(PATIENCE, asked).await;
        asked.expect("an answer comes, or none")
    }

    /// Waits for an answer that `is_right` accepts.
    pub(crate) async fn answers(&self, path: &str, is_right: impl Fn(&str) -> bool) {
        let right = testbed::eventually(PATIENCE, async || {
            let answer = self.ask(path).await;
            if is_right(&answer) {
                return Ok(());
            }
            Err(format!("{path} answers {answer}"))
        });
        right.await.unwrap();
    }
}

/// Runs the exporter until it ends. Returns exit code, standard output and standard error.
pub(crate) async fn outcome(
    scene: &Scene,
    flags: &[&str],
    unset: &str,
) -> (Option<i32>, String, String) {
    let output = output(scene.command(flags).env_remove(unset)).await;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (
        output.status.code(),
        text(&output.stdout),
        text(&output.stderr),
    )
}

/// Defines NRTs in an API server. Returns what applies further objects there.
pub(crate) async fn with_nrts(admin: &Client) -> Applier {
    let applier = Applier::new(admin.clone());
    let definition = api::crd::node_resource_topology();
    applier.apply(&to_value(&definition)).await.unwrap();
    wait::definition(admin, &definition.name_any(), PATIENCE)
        .await
        .unwrap();
    applier
}
