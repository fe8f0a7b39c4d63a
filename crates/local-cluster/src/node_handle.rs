//! One node of a running cluster: its machine, its kubelet, its files, its containers.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cluster_spec::kubelet::{KubeletSettings, STATE_FILES};
use cluster_spec::plan::{ClusterSpec, NodePlan};
use cluster_spec::runtime::Runtime;
use cluster_spec::subnet::Subnet;
use cri_runtime::control::{self, Signal, Target};
use fixtures::machines::Machine;
use k8s_openapi::api::core::v1::Node;
use kube::Api;

use super::control_plane::{log_file, process, text};
use super::kube_proxy;
use super::kubelet::{Kubelet, process_name, runtime_process};
use super::pki;
use super::supervise::client::{self, Client as Holder};
use super::supervise::protocol::ProcessSpec;

/// Time for a kubelet to stop before it is killed.
const STOP_GRACE: Duration = Duration::from_secs(10);
/// Time for a restarted kubelet to report its node ready with all devices.
const READY_TIMEOUT: Duration = Duration::from_secs(90);
/// Pause between two polls of the API server.
pub(crate) const POLL_PAUSE: Duration = Duration::from_millis(150);
/// Directory of the podresources socket in a node.
pub const POD_RESOURCES: &str = "/var/lib/kubelet/pod-resources";
/// Directory of the podresources socket that hides allocations.
pub const POD_RESOURCES_HIDDEN: &str = "/var/lib/kubelet/pod-resources-hidden";

/// A node of a running cluster; clones refer to the same node.
#[derive(Clone)]
pub struct NodeHandle {
    spec: Arc<ClusterSpec>,
    index: usize,
    subnet: Subnet,
    client: kube::Client,
}

/// Why an operation on a node failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The holder of the cluster could not be reached or refused a request.
    #[error(transparent)]
    Holder(#[from] client::Error),
    /// A file of the node could not be used.
    #[error("cannot use a file of node {node}")]
    File {
        /// Name of the node.
        node: String,
        /// What went wrong.
        #[source]
        source: std::io::Error,
    },
    /// A request to the API server failed.
    #[error("cannot get node {node} from the API server")]
    Api {
        /// Name of the node.
        node: String,
        /// What went wrong.
        #[source]
        source: Box<kube::Error>,
    },
    /// The runtime of the node refused a request.
    #[error("the runtime of node {node} refused a request")]
    Runtime {
        /// Name of the node.
        node: String,
        /// What went wrong.
        #[source]
        source: cri_runtime::control::Error,
    },
    /// The kubelet ended, or did not get ready in time.
    #[error("the kubelet of node {node} {problem}; its log is {}:\n{tail}", log.display())]
    NotReady {
        /// Name of the node.
        node: String,
        /// What is wrong.
        problem: String,
        /// File with its log.
        log: PathBuf,
        /// Last lines of the log.
        tail: String,
    },
}

impl NodeHandle {
    pub(crate) fn new(
        spec: Arc<ClusterSpec>,
        index: usize,
        subnet: Subnet,
        client: kube::Client,
    ) -> Self {
        Self {
            spec,
            index,
            subnet,
            client,
        }
    }

    pub(crate) fn plan(&self) -> &NodePlan {
        &self.spec.nodes[self.index]
    }

    /// Returns the name of the Kubernetes Node.
    pub fn name(&self) -> &str {
        &self.plan().name
    }

    /// Returns its simulated hardware.
    pub fn machine(&self) -> &Machine {
        &self.plan().machine
    }

    /// Returns its address in the cluster's network.
    pub fn address(&self) -> std::net::Ipv4Addr {
        self.subnet.node(self.index)
    }

    /// Returns the directory of the node on the host.
    pub fn dir(&self) -> PathBuf {
        self.spec.dir().join("nodes").join(self.name())
    }

    /// Returns the place of a node's path on the host. The node's private files are visible there, its mounts are not.
    pub fn host_path(&self, path: &Path) -> PathBuf {
        self.dir()
            .join("root")
            .join(path.strip_prefix("/").unwrap_or(path))
    }

    /// Returns the path of the kubelet's log.
    pub fn kubelet_log(&self) -> PathBuf {
        log_file(&self.spec.dir(), &process_name(self.name()))
    }

    /// Returns the path of the log of the node's runtime.
    pub fn runtime_log(&self) -> PathBuf {
        log_file(&self.spec.dir(), &runtime_process(self.name()))
    }

    /// Returns the content of a file that the kubelet keeps below its root directory (`cpu_manager_state`, `memory_manager_state`,
    /// `device-plugins/kubelet_internal_checkpoint`).
    pub fn state_file(&self, name: &str) -> Result<String, Error> {
        fs_err::read_to_string(self.kubelet_dir().join(name))
            .map_err(|source| self.file_error(source))
    }

    /// Returns the settings of the kubelet's last start.
    pub fn kubelet_settings(&self) -> Result<KubeletSettings, Error> {
        let text = fs_err::read_to_string(self.settings_file())
            .map_err(|source| self.file_error(source))?;
        serde_json::from_str(&text).map_err(|error| self.file_error(error.into()))
    }

    /// Sends a signal to a running container; `STOP` and `CONT` go to each of its processes.
    pub fn signal(
        &self,
        namespace: &str,
        pod: &str,
        container: &str,
        signal: Signal,
    ) -> Result<(), Error> {
        self.runtime()
            .signal(&Target::new(namespace, pod, container), signal)
            .map_err(|source| Error::Runtime {
                node: self.name().to_owned(),
                source,
            })
    }

    /// Returns a client of the node's runtime: signals, commands and facts about containers (blocking).
    pub fn runtime(&self) -> control::Client {
        control::Client::new(self.control_socket())
    }

    pub(crate) fn control_socket(&self) -> PathBuf {
        self.dir().join("control.sock")
    }

    /// Stops the kubelet and returns when it has ended; containers keep running.
    pub async fn stop_kubelet(&self) -> Result<(), Error> {
        let (holder, name) = (self.holder(), process_name(self.name()));
        let stopped =
            tokio::task::spawn_blocking(move || holder.stop(&name, nix::libc::SIGTERM, STOP_GRACE))
                .await;
        match stopped {
            Ok(outcome) => Ok(outcome?),
            Err(error) => Err(self.file_error(std::io::Error::other(error))),
        }
    }

    /// Starts the stopped kubelet with its last settings; returns when the node is ready again.
    pub async fn start_kubelet(&self) -> Result<(), Error> {
        let started_at = now_seconds();
        self.spawn_kubelet()?;
        self.wait_ready(started_at).await
    }

    /// Stops the kubelet, changes its settings, and starts it. As on a real node, the state of its CPU and memory managers is removed:
    /// drain the node first, otherwise its pods are admitted anew (kubelet-node.md 11).
    ///
    /// Returns when the kubelet reports the node ready with all devices. Containers keep running.
    pub async fn restart_kubelet(&self, settings: &KubeletSettings) -> Result<(), Error> {
        self.stop_kubelet().await?;
        for name in STATE_FILES {
            let file = self.kubelet_dir().join(name);
            if file.exists() {
                fs_err::remove_file(file).map_err(|source| self.file_error(source))?;
            }
        }
        self.write_kubelet(settings)?;
        self.start_kubelet().await
    }

    /// Writes the kubelet's configuration and stores the settings.
    pub(crate) fn write_kubelet(&self, settings: &KubeletSettings) -> Result<(), Error> {
        let write = || -> std::io::Result<()> {
            self.kubelet().write_config(settings, self.machine())?;
            let text = serde_json::to_string_pretty(settings).map_err(std::io::Error::other)?;
            cluster_state::write_private(&self.settings_file(), &text)
        };
        write().map_err(|source| self.file_error(source))
    }

    /// Starts the kubelet without waiting.
    pub(crate) fn spawn_kubelet(&self) -> Result<(), Error> {
        Ok(self.holder().start(self.kubelet().start())?)
    }

    /// Starts one device plugin for each resource of the machine; nodes with taints, like the control plane's, have none.
    pub(crate) fn spawn_device_plugins(&self) -> Result<(), Error> {
        for (resource, devices) in self.plan().devices() {
            let mut argv = vec![
                "deviceplugin".to_owned(),
                "--resource".to_owned(),
                resource.clone(),
            ];
            for device in devices {
                argv.push("--device".to_owned());
                argv.push(format!("{}={}", device.id, device.zone));
            }
            let short = resource.rsplit('/').next().unwrap_or(resource);
            self.holder()
                .start(self.helper(&format!("device/{}/{short}", self.name()), argv))?;
        }
        Ok(())
    }

    /// Starts what the runtime of the node does not do by itself: with containerd the server of the control protocol.
    pub(crate) fn spawn_companions(&self) -> Result<(), Error> {
        if self.spec.runtime == Runtime::Builtin {
            return Ok(());
        }
        let argv = vec![
            "control".to_owned(),
            "--cri".to_owned(),
            text(&self.cri_socket()),
            "--listen".to_owned(),
            text(&self.control_socket()),
        ];
        let name = format!("control/{}", self.name());
        Ok(self.holder().start(self.helper(&name, argv))?)
    }

    /// Starts kube-proxy on a node with containerd, if there is one, and returns whether there is. The object of the node must exist.
    pub(crate) fn spawn_proxy(&self) -> Result<bool, Error> {
        let Runtime::Containerd(programs) = &self.spec.runtime else {
            return Ok(false);
        };
        if let Some(program) = &programs.kube_proxy {
            let dir = self.spec.dir();
            let start = kube_proxy::process_of(&dir, self.name(), self.address(), program);
            self.holder().start(start)?;
        }
        Ok(programs.kube_proxy.is_some())
    }

    /// Starts the proxy that hides allocations.
    pub(crate) fn spawn_hiding_proxy(&self) -> Result<(), Error> {
        let argv = [
            "podresources-proxy",
            "--kubelet-socket",
            "/var/lib/kubelet/pod-resources/kubelet.sock",
            "--listen-socket",
            "/var/lib/kubelet/pod-resources-hidden/kubelet.sock",
            "--hide-allocations",
        ];
        let name = format!("podresources-proxy/{}", self.name());
        Ok(self
            .holder()
            .start(self.helper(&name, argv.map(str::to_owned).to_vec()))?)
    }

    /// Returns a program of the multi-call helper that runs inside the node's namespaces.
    fn helper(&self, name: &str, arguments: Vec<String>) -> ProcessSpec {
        let mut argv = vec![text(&self.spec.bin_dir.join("numaresources-testbed"))];
        argv.extend(arguments);
        let mut start = process(&self.spec.dir(), name, argv);
        start.join = Some(runtime_process(self.name()));
        start
    }

    fn kubelet(&self) -> Kubelet<'_> {
        let dir = self.spec.dir();
        Kubelet {
            cluster_dir: dir.clone(),
            node_dir: self.dir(),
            program: &self.spec.assets.kubelet,
            node: self.name(),
            address: self.address(),
            kubeconfig: dir.join("kubeconfigs").join(self.name()),
            cri_socket: self.cri_socket(),
            client_ca: pki::ca(&dir.join("pki")),
            taints: &self.plan().taints,
        }
    }

    pub(crate) fn cri_socket(&self) -> PathBuf {
        self.dir().join("cri.sock")
    }

    fn kubelet_dir(&self) -> PathBuf {
        self.host_path(Path::new("/var/lib/kubelet"))
    }

    fn settings_file(&self) -> PathBuf {
        self.dir().join("kubelet-settings.json")
    }

    fn holder(&self) -> Holder {
        Holder::new(&self.spec.dir())
    }

    fn file_error(&self, source: std::io::Error) -> Error {
        Error::File {
            node: self.name().to_owned(),
            source,
        }
    }

    /// Waits until the kubelet has reported the node ready with all devices, after the given time (seconds since the epoch).
    async fn wait_ready(&self, started_at: i64) -> Result<(), Error> {
        let deadline = Instant::now() + READY_TIMEOUT;
        let api: Api<Node> = Api::all(self.client.clone());
        loop {
            self.check_alive()?;
            let node = api.get(self.name()).await.map_err(|source| Error::Api {
                node: self.name().to_owned(),
                source: Box::new(source),
            })?;
            let Some(problem) = self.why_not_ready(&node, started_at) else {
                return Ok(());
            };
            if Instant::now() > deadline {
                return Err(
                    self.not_ready(format!("{problem} after {} s", READY_TIMEOUT.as_secs()))
                );
            }
            tokio::time::sleep(POLL_PAUSE).await;
        }
    }

    /// Returns what a Node object lacks to be ready with all devices, as reported after the given second since the epoch.
    pub(crate) fn why_not_ready(&self, node: &Node, since: i64) -> Option<String> {
        let Some(status) = node.status.as_ref() else {
            return Some("has not reported yet".to_owned());
        };
        let ready = status
            .conditions
            .iter()
            .flatten()
            .find(|condition| condition.type_ == "Ready");
        match ready {
            None => return Some("has not reported yet".to_owned()),
            Some(condition) if condition.status != "True" => {
                return Some(format!(
                    "is not ready: {}",
                    condition.message.as_deref().unwrap_or("no reason given")
                ));
            }
            Some(condition) => {
                let beat = condition
                    .last_heartbeat_time
                    .as_ref()
                    .map(|time| time.0.as_second());
                if beat.is_none_or(|beat| beat <= since) {
                    return Some("has not reported yet".to_owned());
                }
            }
        }
        let reported = |resource: &str| {
            let quantity = status.allocatable.as_ref()?.get(resource)?;
            quantity.0.parse().ok()
        };
        let missing = self.plan().unreported_devices(reported);
        missing.map(|resource| format!("does not report all of {resource}"))
    }

    /// Returns an error if the kubelet or the node's runtime has ended.
    pub(crate) fn check_alive(&self) -> Result<(), Error> {
        let processes = self.holder().list()?;
        let ended = processes.iter().find_map(|process| {
            let ours = process.name == process_name(self.name())
                || process.name == runtime_process(self.name());
            process
                .ended
                .as_ref()
                .filter(|_| ours)
                .map(|end| (process, end))
        });
        match ended {
            None => Ok(()),
            Some((process, end)) => Err(Error::NotReady {
                node: self.name().to_owned(),
                problem: format!("could not run: {} ended ({end})", process.name),
                log: process.log.clone(),
                tail: tail(&process.log),
            }),
        }
    }

    pub(crate) fn not_ready(&self, problem: String) -> Error {
        let log = self.kubelet_log();
        Error::NotReady {
            node: self.name().to_owned(),
            problem,
            tail: tail(&log),
            log,
        }
    }
}

impl std::fmt::Debug for NodeHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NodeHandle")
            .field("name", &self.name())
            .field("dir", &self.dir())
            .finish_non_exhaustive()
    }
}

fn now_seconds() -> i64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| since.as_secs().cast_signed())
}

/// Returns the last lines of a log.
pub(crate) fn tail(log: &Path) -> String {
    const LINES: usize = 12;
    let text = fs_err::read(log)
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LINES)..].join("\n")
}
