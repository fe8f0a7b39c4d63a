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
//! Reading order: [`SimulatedNode`], `control` (start and stop of its kubelet), `kubelet` (which pods run), `worker` (one pod), `status`
//! (what is reported of a pod), `managers`.

pub mod addresses;
mod containers;
mod control;
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
use std::sync::atomic::AtomicBool;

use cluster_spec::kubelet::KubeletSettings;
use cluster_spec::plan::NodePlan;
use cri_runtime::control::Target;
use cri_runtime::programs::device_plugin;
use cri_runtime::programs::device_plugin::DeviceArg;
use fixtures::machines::Machine;
use parking_lot::Mutex;
use tokio::task::JoinHandle;

pub use self::addresses::{Block, NodeAddresses};
use self::events::Recorder;
use self::kubelet::{ApiServer, Kubelet};
use self::launcher::Launcher;
use self::layout::Layout;
pub use self::managers::Error as ManagersError;
use self::managers::Managers;
pub use self::tls::ServingError;

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

    fn plugins(&self) -> Vec<podresources::device_plugin::Plugin> {
        self.plan
            .devices()
            .map(|(resource, devices)| {
                let devices = devices.iter().map(|device| DeviceArg {
                    id: device.id.clone(),
                    numa: vec![device.zone as i64],
                });
                device_plugin::plugin(resource.clone(), devices)
            })
            .collect()
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
        self.settings.lock().clone()
    }
}
