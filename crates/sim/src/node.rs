//! Simulated nodes: a kubelet in this process, and real processes for the containers of its pods.
//!
//! A node is a directory (`root` is what pods see as the node's files), an address of the loopback network, and a few tasks. Its resource
//! managers are the model [`kubelet_model`]. All else is here: registration and lease, the lifecycle of pods, volumes, probes, the sockets
//! of PodResources and device plugins, and the HTTPS endpoint.
//!
//! Nothing needs privileges. There are no namespaces: paths in the arguments and variables of a container are replaced by those on this
//! machine (`rewrite`), programs of the stack are configured to listen on the address of their pod (`images`), and CPU sets are recorded
//! and reported but never applied.
//!
//! Reading order: [`SimulatedNode`], `kubelet` (which pods run), `worker` (one pod), `status` (what is reported of a pod), `managers`.

pub mod addresses;
mod endpoint;
mod environment;
mod events;
mod images;
mod kubelet;
mod launcher;
mod layout;
mod managers;
mod registration;
mod rewrite;
mod status;
pub mod tied;
mod tls;
mod volumes;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fixtures::machines::{Machine, format_cpu_list};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, Patch, PatchParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use nix::sys::signal::Signal as Number;
use parking_lot::{Mutex, MutexGuard};
use serde_json::json;
use tokio::task::JoinHandle;

pub use self::addresses::{Block, NodeAddresses};
use self::events::Recorder;
use self::kubelet::worker::snapshot::ContainerSnapshot;
use self::kubelet::{ApiServer, Kubelet};
use self::launcher::Launcher;
use self::layout::Layout;
pub use self::managers::Error as ManagersError;
use self::managers::Managers;
use self::status::facts::Run;
pub use self::tls::ServingError;
use cluster_spec::kubelet::KubeletSettings;
use cluster_spec::plan::NodePlan;
use cri_runtime::control::{ContainerFacts, ExecOutput, Signal, State, Target};
use cri_runtime::programs::device_plugin;
use cri_runtime::programs::device_plugin::DeviceArg;

/// Time limit for a node to become ready with all devices.
const READY_TIMEOUT: Duration = Duration::from_secs(30);
/// The podresources socket, relative to the kubelet's directory.
const PODRESOURCES: &str = "pod-resources/kubelet.sock";
/// Port of URLs without a port.
const HTTPS: u16 = 443;

/// A node to start.
#[derive(Clone)]
pub struct NodeOptions {
    /// How the node reaches the API server, with the identity `system:node:NAME`.
    pub config: kube::Config,
    /// A client with the right to label nodes, as an administrator has it.
    pub administrator: kube::Client,
    /// The machine, the kubelet settings, the labels and the taints.
    pub plan: NodePlan,
    /// Directory of the node; created if it is missing.
    pub dir: PathBuf,
    /// Directory of the simulated hardware; created if it is missing, and shared by nodes with the same machine.
    pub hardware: PathBuf,
    /// Directory with the programs of the stack and `numaresources-testbed`.
    pub bin_dir: PathBuf,
    /// The node's part of the cluster's addresses.
    pub addresses: NodeAddresses,
    /// Replacements of host paths in volumes; used by faults.
    pub host_path_overrides: BTreeMap<PathBuf, PathBuf>,
}

/// Why an operation on a node failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file of the node could not be used.
    #[error("cannot use a file of the node")]
    File(#[from] std::io::Error),
    /// The resource managers do not accept these settings.
    #[error("the kubelet does not start")]
    Managers(#[from] ManagersError),
    /// The node has no serving certificate.
    #[error("the kubelet cannot serve")]
    Serving(#[from] ServingError),
    /// A request to the API server failed.
    #[error("cannot ask the API server about the node")]
    Api(#[from] Box<kube::Error>),
    /// The node was not ready in time.
    #[error("node {0} was not ready in time: {1}")]
    NotReady(String, String),
    /// The container does not exist or does not run.
    #[error("container {0} is not running")]
    NotRunning(Target),
    /// A command could not be run.
    #[error("cannot run a command: {0}")]
    Exec(String),
}

/// A simulated node. Dropping it ends its processes at once; its objects stay in the API.
pub struct SimulatedNode {
    kubelet: Arc<Kubelet>,
    plan: NodePlan,
    dir: PathBuf,
    administrator: kube::Client,
    settings: Mutex<KubeletSettings>,
    /// Authorities of the client certificates that the node's endpoint accepts.
    authorities: Vec<Vec<u8>>,
    boot_id: String,
    /// Tasks that live as long as the node.
    node_tasks: Vec<JoinHandle<()>>,
    /// Tasks that live as long as its kubelet runs.
    kubelet_tasks: Mutex<Vec<JoinHandle<()>>>,
    /// Whether the labels of the plan have been applied.
    is_labelled: AtomicBool,
    /// The running task that serves PodResources.
    podresources_task: Mutex<Option<JoinHandle<()>>>,
    /// Aborted tasks, which may hold sockets until they have ended.
    aborted_tasks: Mutex<Vec<JoinHandle<()>>>,
}

impl std::fmt::Debug for NodeOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NodeOptions")
            .field("plan", &self.plan)
            .field("dir", &self.dir)
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for SimulatedNode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SimulatedNode")
            .field("name", &self.plan.name)
            .field("dir", &self.dir)
            .finish_non_exhaustive()
    }
}

impl Drop for SimulatedNode {
    fn drop(&mut self) {
        self.abort_kubelet_tasks();
        for task in &self.node_tasks {
            task.abort();
        }
        self.kubelet.abort_workers();
        self.kubelet.launcher.kill_all();
    }
}

impl SimulatedNode {
    /// Starts a node. When this returns, its Node object exists and is labelled. See [`Self::ready`].
    pub async fn start(options: NodeOptions) -> Result<Self, Error> {
        let NodeOptions {
            config,
            administrator,
            plan,
            dir,
            hardware,
            bin_dir,
            addresses,
            host_path_overrides,
        } = options;
        let url = config.cluster_url.clone();
        let server = ApiServer {
            url: url.to_string().trim_end_matches('/').to_owned(),
            host: url.host().unwrap_or("localhost").to_owned(),
            port: url.port_u16().unwrap_or(HTTPS),
        };
        let authorities = config.root_cert.clone().unwrap_or_default();
        let client = kube::Client::try_from(config).map_err(Box::new)?;
        let layout = Arc::new(Layout::prepare(&dir, &plan.machine, &hardware)?);
        let managers = Managers::new(Arc::clone(&layout), &plan.machine, &plan.kubelet)?;
        let (events, recording) = Recorder::start(client.clone(), plan.name.clone());
        let kubelet = Arc::new(Kubelet {
            name: plan.name.clone(),
            client,
            layout,
            addresses,
            images: images::images(&bin_dir),
            launcher: Launcher::start(bin_dir.join("numaresources-testbed"))?,
            events,
            managers,
            overrides: host_path_overrides,
            server,
            state: kubelet::State::default(),
        });
        let settings = plan.kubelet.clone();
        let mut node = Self {
            kubelet,
            plan,
            dir,
            administrator,
            settings: Mutex::new(settings),
            authorities,
            boot_id: uuid::Uuid::new_v4().to_string(),
            node_tasks: vec![recording],
            kubelet_tasks: Mutex::default(),
            is_labelled: AtomicBool::new(false),
            podresources_task: Mutex::default(),
            aborted_tasks: Mutex::default(),
        };
        node.run().await?;
        let kubelet = &node.kubelet;
        node.node_tasks
            .push(tokio::spawn(Arc::clone(kubelet).follow_pods()));
        node.node_tasks
            .push(tokio::spawn(Arc::clone(kubelet).follow_node()));
        for plugin in node.plugins() {
            let directory = kubelet.layout.kubelet("device-plugins");
            node.node_tasks.push(tokio::spawn(async move {
                if let Err(error) = plugin.run(&directory, std::future::pending()).await {
                    tracing::warn!(%error, "A device plugin ended");
                }
            }));
        }
        Ok(node)
    }

    /// Starts the servers, registers the node and then starts the kubelet.
    async fn run(&self) -> Result<(), Error> {
        let kubelet = &self.kubelet;
        self.abort_kubelet_tasks();
        self.join_aborted().await;
        let mut tasks = vec![kubelet.managers.serve().await?];
        self.start_podresources().await?;
        let listener = endpoint::listen(kubelet).await?;
        let facts = registration::Facts {
            taints: self.plan.taints.clone(),
            port: endpoint::port(&listener)?,
            boot_id: self.boot_id.clone(),
        };
        let tls = tls::serving(&kubelet.name, kubelet.addresses.node(), &self.authorities)?;
        let endpoint_facts = Arc::new(endpoint::Facts {
            settings: self.kubelet_settings(),
            machine: self.plan.machine.clone(),
            access: endpoint::Access::new(kubelet.client.clone(), &kubelet.name),
        });
        tasks.push(tokio::spawn(endpoint::serve(
            Arc::clone(kubelet),
            listener,
            tls,
            endpoint_facts,
        )));
        let registering = registration::register(kubelet, &facts);
        let mut node = tokio::time::timeout(READY_TIMEOUT, registering)
            .await
            .map_err(|_| {
                Error::NotReady(kubelet.name.clone(), "it is not registered".to_owned())
            })?;
        // Labels are applied once; later changes by others are kept.
        if !self.is_labelled.load(Ordering::Acquire) {
            if let Some(labelled) = self.label(&node).await? {
                node = labelled;
            }
            self.is_labelled.store(true, Ordering::Release);
        }
        kubelet.apply_node(node.clone());
        kubelet.set_running(true);
        registration::record_start_events(kubelet);
        let manifests = self.kubelet_settings().extra.remove("staticPodPath");
        let manifests = manifests.and_then(|path| path.as_str().map(PathBuf::from));
        tasks.push(tokio::spawn(kubelet::static_pods::follow(
            Arc::clone(kubelet),
            manifests,
        )));
        tasks.push(tokio::spawn(registration::report(
            Arc::clone(kubelet),
            facts,
        )));
        tasks.push(tokio::spawn(registration::renew(Arc::clone(kubelet), node)));
        *lock(&self.kubelet_tasks) = tasks;
        Ok(())
    }

    /// Applies the labels that an administrator sets; returns the labelled node if something was missing.
    async fn label(&self, node: &Node) -> Result<Option<Node>, Error> {
        let present = node.metadata.labels.clone().unwrap_or_default();
        let missing: BTreeMap<&str, &str> = self
            .plan
            .labels
            .iter()
            .filter(|label| !present.contains_key(*label))
            .map(|label| (label.as_str(), ""))
            .collect();
        if missing.is_empty() {
            return Ok(None);
        }
        let patch = json!({ "metadata": { "labels": missing } });
        let api: Api<Node> = Api::all(self.administrator.clone());
        let patched = api
            .patch(self.name(), &PatchParams::default(), &Patch::Merge(&patch))
            .await
            .map_err(Box::new)?;
        Ok(Some(patched))
    }

    fn plugins(&self) -> Vec<podresources::device_plugin::Plugin> {
        let devices = self.simulated_devices();
        devices
            .map(|(resource, devices)| {
                let devices = devices.iter().map(|device| DeviceArg {
                    id: device.id.clone(),
                    numa: vec![device.zone as i64],
                });
                device_plugin::plugin(resource.clone(), devices)
            })
            .collect()
    }

    /// Returns the devices of the machine. Control plane nodes have none.
    fn simulated_devices(
        &self,
    ) -> impl Iterator<Item = (&String, &Vec<fixtures::machines::Device>)> {
        let worker = self.plan.taints.is_empty();
        self.plan.machine.devices().iter().filter(move |_| worker)
    }

    fn abort_kubelet_tasks(&self) {
        let mut tasks = std::mem::take(&mut *lock(&self.kubelet_tasks));
        tasks.extend(lock(&self.podresources_task).take());
        for task in &tasks {
            task.abort();
        }
        lock(&self.aborted_tasks).append(&mut tasks);
    }

    /// Waits until the aborted tasks have ended and hold nothing any more.
    async fn join_aborted(&self) {
        let tasks = std::mem::take(&mut *lock(&self.aborted_tasks));
        for task in tasks {
            // The task was aborted, so its result does not matter.
            let _ = task.await;
        }
    }

    /// Stops the service of the podresources socket and closes all its connections. Returns the path of the socket once nothing is there
    /// any more.
    pub async fn stop_podresources(&self) -> PathBuf {
        let task = lock(&self.podresources_task).take();
        if let Some(task) = task {
            task.abort();
            lock(&self.aborted_tasks).push(task);
        }
        self.join_aborted().await;
        self.kubelet.layout.kubelet(PODRESOURCES)
    }

    /// Serves the podresources socket again.
    pub async fn start_podresources(&self) -> Result<(), Error> {
        let task = self.kubelet.managers.serve_podresources().await?;
        *lock(&self.podresources_task) = Some(task);
        Ok(())
    }

    /// Waits until the API server reports the node as ready with all devices of its machine.
    pub async fn ready(&self) -> Result<(), Error> {
        let api: Api<Node> = Api::all(self.administrator.clone());
        let mine = watcher::Config::default().fields(&format!("metadata.name={}", self.name()));
        let mut nodes = Box::pin(watcher(api, mine).default_backoff().applied_objects());
        let deadline = Instant::now() + READY_TIMEOUT;
        let mut problem = "it has not reported yet".to_owned();
        loop {
            let next = futures::StreamExt::next(&mut nodes);
            match tokio::time::timeout_at(deadline.into(), next).await {
                Ok(Some(Ok(node))) => match self.not_ready_reason(&node) {
                    None => return Ok(()),
                    Some(text) => problem = text,
                },
                Ok(Some(Err(error))) => problem = error.to_string(),
                Ok(None) | Err(_) => {
                    return Err(Error::NotReady(self.name().to_owned(), problem));
                }
            }
        }
    }

    /// Returns why a Node object does not show this node as ready, or `None` if it does.
    fn not_ready_reason(&self, node: &Node) -> Option<String> {
        let Some(status) = &node.status else {
            return Some("it has not reported yet".to_owned());
        };
        let is_ready = status
            .conditions
            .iter()
            .flatten()
            .any(|condition| condition.type_ == "Ready" && condition.status == "True");
        if !is_ready {
            return Some("it is not ready".to_owned());
        }
        let missing = self.simulated_devices().find(|(resource, devices)| {
            let allocatable = status
                .allocatable
                .as_ref()
                .and_then(|list| list.get(*resource))
                .and_then(|quantity| quantity.0.parse::<usize>().ok());
            allocatable != Some(devices.len())
        });
        missing.map(|(resource, _)| format!("it does not report all of {resource}"))
    }

    pub(crate) fn plan(&self) -> &NodePlan {
        &self.plan
    }

    /// Returns the name of the Kubernetes Node.
    pub fn name(&self) -> &str {
        &self.plan.name
    }

    /// Returns the simulated hardware.
    pub fn machine(&self) -> &Machine {
        &self.plan.machine
    }

    /// Returns the address of the node.
    pub fn address(&self) -> Ipv4Addr {
        self.kubelet.addresses.node()
    }

    /// Returns the directory of the node.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the path on this machine of a path of the node.
    pub fn host_path(&self, path: &Path) -> PathBuf {
        self.kubelet.layout.host(path)
    }

    /// Reads a file below the kubelet's root directory (`cpu_manager_state`, `memory_manager_state`,
    /// `device-plugins/kubelet_internal_checkpoint`).
    pub fn state_file(&self, name: &str) -> Result<String, Error> {
        Ok(fs_err::read_to_string(self.kubelet.layout.kubelet(name))?)
    }

    /// Returns the settings of the last start of the kubelet.
    pub fn kubelet_settings(&self) -> KubeletSettings {
        lock(&self.settings).clone()
    }

    /// Stops the kubelet. The node goes silent; its containers live on.
    pub fn stop_kubelet(&self) {
        self.kubelet.set_running(false);
        self.abort_kubelet_tasks();
        self.kubelet.managers.disconnect_plugins();
    }

    /// Starts the stopped kubelet with its last settings; returns when the node is ready again.
    pub async fn start_kubelet(&self) -> Result<(), Error> {
        self.kubelet.restore_pods();
        self.run().await?;
        self.ready().await
    }

    /// Stops the kubelet, changes its settings, and starts it. As on a real node, the state of its CPU and memory managers is removed:
    /// drain the node first, or its pods are admitted again.
    ///
    /// Returns when the kubelet reports the node ready with all devices. Containers live on.
    pub async fn restart_kubelet(&self, settings: &KubeletSettings) -> Result<(), Error> {
        self.stop_kubelet();
        self.kubelet.managers.remove_state()?;
        self.kubelet.managers.reset(&self.plan.machine, settings)?;
        settings.clone_into(&mut self.settings.lock());
        self.run().await?;
        self.ready().await?;
        self.kubelet.readmit_pods().await;
        Ok(())
    }

    /// Stops the kubelet, changes its settings, and starts it with the existing state files. Containers live on, and pods keep their
    /// resources.
    ///
    /// Like a real kubelet it does not start when the state does not fit the settings. It is stopped then, and [`Self::restart_kubelet`] or
    /// the former settings start it again.
    pub async fn reconfigure_kubelet(&self, settings: &KubeletSettings) -> Result<(), Error> {
        self.stop_kubelet();
        let refused = self.kubelet.managers.resume(&self.plan.machine, settings)?;
        settings.clone_into(&mut self.settings.lock());
        self.kubelet.evict_all(refused);
        self.run().await?;
        self.ready().await
    }

    fn running_container(&self, target: &Target) -> Result<ContainerSnapshot, Error> {
        let snapshots = self.kubelet.snapshots();
        let mut pods = snapshots.into_iter().filter(|snapshot| {
            let metadata = &snapshot.pod.metadata;
            metadata.namespace.as_ref() == Some(&target.namespace)
                && metadata.name.as_ref() == Some(&target.pod)
                && !snapshot.is_over
        });
        pods.find_map(|snapshot| {
            let mut containers = snapshot.containers.into_iter();
            containers.find(|seen| seen.name == target.container && seen.process.is_some())
        })
        .ok_or_else(|| Error::NotRunning(target.clone()))
    }

    /// Sends a signal to a running container; all but `TERM` go to each of its processes.
    pub fn signal(&self, target: &Target, signal: Signal) -> Result<(), Error> {
        let not_running = || Error::NotRunning(target.clone());
        let process = self
            .running_container(target)?
            .process
            .ok_or_else(not_running)?;
        match signal {
            Signal::Stop => process.signal_all(Number::SIGSTOP),
            Signal::Cont => process.signal_all(Number::SIGCONT),
            Signal::Kill => process.signal_all(Number::SIGKILL),
            Signal::Term => {
                process.signal(Number::SIGTERM);
                Ok(())
            }
        }
        .map_err(|_| not_running())
    }

    /// Runs a command in a running container.
    pub async fn exec(
        &self,
        target: &Target,
        command: &[&str],
        limit: Duration,
    ) -> Result<ExecOutput, Error> {
        let seen = self.running_container(target)?;
        let command: Vec<String> = command.iter().map(|word| (*word).to_owned()).collect();
        let output = self.kubelet.exec(&seen.env, &command, limit).await;
        let output = output.map_err(Error::Exec)?;
        Ok(ExecOutput {
            exit_code: output.code,
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }

    /// Returns every container of the pods that the node knows, with the CPU sets that it would have.
    pub fn containers(&self) -> Vec<ContainerFacts> {
        let mut facts = Vec::new();
        for snapshot in self.kubelet.snapshots() {
            let metadata = &snapshot.pod.metadata;
            let namespace = metadata.namespace.as_deref().unwrap_or_default();
            let pod = metadata.name.as_deref().unwrap_or_default();
            for seen in &snapshot.containers {
                let Some(id) = &seen.id else { continue };
                let (cpus, mems) = self.kubelet.managers.sets(namespace, pod, &seen.name);
                let list = |ids: Vec<i64>| {
                    let ids: Vec<u32> = ids
                        .into_iter()
                        .filter_map(|id| u32::try_from(id).ok())
                        .collect();
                    format_cpu_list(&ids)
                };
                let (state, exit_code) = match &seen.run {
                    Run::Waiting { .. } => (State::Created, None),
                    Run::Running { .. } => (State::Running, None),
                    Run::Exited(end) => (State::Exited, Some(end.exit_code)),
                };
                facts.push(ContainerFacts {
                    target: Target::new(namespace, pod, &seen.name),
                    pod_uid: metadata.uid.clone().unwrap_or_default(),
                    id: id.clone(),
                    attempt: u32::try_from(seen.attempt).unwrap_or_default(),
                    state,
                    pid: seen.process.as_ref().map(launcher::Process::pid),
                    exit_code,
                    cpus: list(cpus),
                    mems: list(mems),
                });
            }
        }
        facts
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}
