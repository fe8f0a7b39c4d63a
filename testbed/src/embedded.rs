//! The embedded lane: a whole cluster as one object, in this process, without privileges and with nothing but our binaries. The API server is
//! `apiserver`, all other parts are `sim`.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use apiserver::{Ignored, Running, Server, User};
use cluster_faults::Faults;
use cluster_spec::flavour::Flavour;
use cluster_spec::plan::NodePlan;
use cluster_spec::progress::{Report, Step, note};
use cluster_state::Claim;
use cri_runtime::programs::podresources_proxy;
use futures::future::try_join_all;
use kube::Client;
use kube::config::{KubeConfigOptions, Kubeconfig};
use local_cluster::node_handle::{POD_RESOURCES, POD_RESOURCES_HIDDEN};
use openshift::machines::Machines;
use sim::controllers::{self, Controllers};
use sim::default_scheduler::{self, DefaultScheduler};
use sim::faults::SimulatedNodes;
use sim::light::{self, LightNodes, LightSpec};
use sim::node::addresses::{Block, MAX_NODES};
use sim::node::{self, NodeOptions, SimulatedNode};
use tokio::task::JoinSet;

/// The longest path of a socket below the directory of a node.
const LONGEST_SOCKET: &str = "/device-plugins/kubelet.sock";
/// User agent and user of the workload controllers.
const CONTROLLER_MANAGER: &str = "kube-controller-manager";
/// User agent and user of the default scheduler.
const SCHEDULER: &str = "kube-scheduler";
/// User agent of kubelets.
const KUBELET: &str = "kubelet";

/// Describes the cluster to start.
#[derive(Clone, Debug)]
pub struct EmbeddedSpec {
    /// Name; also the name of the cluster's directory below the state root.
    pub name: String,
    /// Directory of all clusters.
    pub state_root: PathBuf,
    /// Directory with `numaresources-testbed` and the programs of the stack.
    pub bin_dir: PathBuf,
    /// The full nodes.
    pub nodes: Vec<NodePlan>,
    /// Number of light nodes beside `nodes`.
    pub light_nodes: usize,
    /// Fault: readers of the podresources sockets see no allocation.
    pub hide_allocations: bool,
    /// Time without a sign of life after which the conditions of a node become Unknown.
    pub node_grace: Duration,
    /// The OpenShift flavour of the cluster; `None` for plain Kubernetes.
    pub flavour: Option<Flavour>,
    /// Whether the API server refuses objects that nothing in the cluster would act on, in place of a warning.
    pub strict: bool,
}

impl EmbeddedSpec {
    /// Returns a spec with these nodes and the programs of `bin_dir`; all else has its default.
    pub fn new(name: &str, state_root: &Path, bin_dir: &Path, nodes: Vec<NodePlan>) -> Self {
        Self {
            name: name.to_owned(),
            state_root: state_root.to_owned(),
            bin_dir: bin_dir.to_owned(),
            nodes,
            light_nodes: 0,
            hide_allocations: false,
            node_grace: controllers::Options::default().node_grace,
            flavour: None,
            strict: false,
        }
    }

    /// Returns the directory of the cluster.
    pub fn dir(&self) -> PathBuf {
        cluster_state::dir(&self.state_root, &self.name)
    }
}

/// A running embedded cluster. It lives in this process and on the runtime that started it; dropping it ends it.
pub struct EmbeddedCluster {
    spec: EmbeddedSpec,
    client: Client,
    nodes: Arc<[SimulatedNode]>,
    controllers: Controllers,
    scheduler: DefaultScheduler,
    server: Running,
    /// Made once, so that disturbances of the same part wait for each other whoever injects them.
    faults: Faults,
    /// Never read; it only has to be dropped together with the cluster.
    _light_nodes: Option<LightNodes>,
    /// Tasks that run beside the nodes: proxies that hide allocations, and the controllers of OpenShift.
    tasks: JoinSet<()>,
    /// The claim that keeps other clusters away from our addresses.
    _addresses: Block,
}

/// Why a cluster did not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The spec is invalid.
    #[error("cannot plan the cluster: {0}")]
    Plan(String),
    /// The state directory could not be claimed.
    #[error(transparent)]
    State(#[from] cluster_state::Error),
    /// A file of the cluster could not be written.
    #[error("cannot write the files of the cluster")]
    Files(#[from] std::io::Error),
    /// The cluster could not be set up as OpenShift.
    #[error("cannot set the cluster up as OpenShift")]
    Flavour(#[from] openshift::Error),
    /// The API server did not start.
    #[error("the API server does not start")]
    Server(#[from] apiserver::Error),
    /// A kubeconfig of the cluster could not be used.
    #[error("cannot use a kubeconfig of the cluster")]
    Kubeconfig(#[from] kube::config::KubeconfigError),
    /// No client could be created.
    #[error("cannot make a client of the cluster")]
    Client(#[source] Box<kube::Error>),
    /// A node did not start.
    #[error("node {name} does not start")]
    Node {
        /// Name of the node.
        name: String,
        /// The cause.
        #[source]
        source: node::Error,
    },
    /// A light node could not be created.
    #[error(transparent)]
    Light(#[from] light::Error),
}

impl EmbeddedCluster {
    /// Starts a cluster; returns when all nodes are Ready and labelled, and all devices are allocatable.
    pub async fn up(spec: EmbeddedSpec, report: Report<'_>) -> Result<Self, Error> {
        check(&spec)?;
        let light = match spec.light_nodes {
            0 => String::new(),
            count => format!(" and {count} light ones"),
        };
        let whole = Step::begin(
            report,
            format!(
                "cluster {} with {} nodes{light}",
                spec.name,
                spec.nodes.len()
            ),
        );
        let (dir, swept) = cluster_state::claim(&Claim {
            root: &spec.state_root,
            name: &spec.name,
            nodes: &spec.nodes,
            longest_socket: LONGEST_SOCKET,
            spec: None,
        })?;
        for name in swept {
            note(
                report,
                format!("removed what was left of the dead cluster {name}"),
            );
        }
        match start(&spec, &dir).await {
            Ok(cluster) => {
                whole.finish();
                Ok(cluster)
            }
            Err(error) => {
                // The directory stays for the logs. An error of `abandon` is ignored, because the cause of the failed start matters more.
                let _ = cluster_state::abandon(&spec.state_root, &spec.name);
                Err(error)
            }
        }
    }

    /// Returns the path of the administrator's kubeconfig.
    pub fn kubeconfig(&self) -> PathBuf {
        self.spec.dir().join("kubeconfig")
    }

    /// Returns a client with the administrator's rights.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// Returns the spec that the cluster was started from.
    pub fn spec(&self) -> &EmbeddedSpec {
        &self.spec
    }

    /// Returns all nodes, those of the control plane first.
    pub fn nodes(&self) -> &[SimulatedNode] {
        &self.nodes
    }

    /// Returns the node with this name.
    pub fn node(&self, name: &str) -> Option<&SimulatedNode> {
        self.nodes.iter().find(|node| node.name() == name)
    }

    /// Returns the API server.
    pub fn server(&self) -> &Running {
        &self.server
    }

    /// Returns the faults that can be injected. The handle stays usable after the cluster has ended, and then has no effect.
    pub fn faults(&self) -> Faults {
        self.faults.clone()
    }

    /// Returns the nodes as machines that can be configured.
    pub fn machines(&self) -> Arc<dyn Machines> {
        Arc::new(SimulatedNodes::new(&self.nodes))
    }

    /// Ends every process of the cluster and removes its directory.
    pub fn down(self) -> Result<(), cluster_state::Error> {
        let (root, name) = (self.spec.state_root.clone(), self.spec.name.clone());
        // Components that start processes stop first.
        drop(self.tasks);
        drop(self.scheduler);
        drop(self.controllers);
        drop(self.nodes);
        drop(self.server);
        cluster_state::remove(&root, &name)?;
        Ok(())
    }
}

impl std::fmt::Debug for EmbeddedCluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EmbeddedCluster")
            .field("spec", &self.spec)
            .finish_non_exhaustive()
    }
}

/// Checks what can be checked before anything starts.
fn check(spec: &EmbeddedSpec) -> Result<(), Error> {
    if spec.nodes.is_empty() {
        return Err(Error::Plan("a cluster needs a node".to_owned()));
    }
    if spec.nodes.len() > MAX_NODES {
        return Err(Error::Plan(format!(
            "{} nodes, at most {MAX_NODES} are possible",
            spec.nodes.len()
        )));
    }
    let helper = spec.bin_dir.join("numaresources-testbed");
    if !helper.is_file() {
        return Err(Error::Plan(format!(
            "there is no program {}",
            helper.display()
        )));
    }
    Ok(())
}

async fn start(spec: &EmbeddedSpec, dir: &Path) -> Result<EmbeddedCluster, Error> {
    let addresses = Block::claim()?;
    let mut identities = Identities::default();
    let manager = identities.add(&format!("system:{CONTROLLER_MANAGER}"), &["system:masters"]);
    let scheduler = identities.add(&format!("system:{SCHEDULER}"), &[]);
    let nodes: Vec<(usize, &NodePlan, String)> = spec
        .nodes
        .iter()
        .enumerate()
        .map(|(index, plan)| {
            let name = format!("system:node:{}", plan.name);
            (index, plan, identities.add(&name, &["system:nodes"]))
        })
        .collect();
    let server = Server::start(apiserver::Options {
        address: (addresses.control_plane(), 0).into(),
        tokens: identities.users,
        proxies_to_loopback: true,
        ignored: if spec.strict {
            Ignored::Refused
        } else {
            Ignored::Warned
        },
        ..apiserver::Options::default()
    })
    .await?;
    let kubeconfig = server.kubeconfig(&server.admin_token);
    cluster_state::write_private(&dir.join("kubeconfig"), &kubeconfig)?;
    let client = client(config(&server, &server.admin_token, "numaresources-tests").await?)?;
    if let Some(flavour) = spec.flavour {
        openshift::install_for(&client, flavour, &spec.nodes).await?;
    }
    let controllers = controllers::start(
        self::client(config(&server, &manager, CONTROLLER_MANAGER).await?)?,
        controllers::Options {
            root_ca: server.ca.clone(),
            signer: Some(server.signer()),
            node_grace: spec.node_grace,
            ..controllers::Options::default()
        },
    );
    let scheduler = default_scheduler::start(
        self::client(config(&server, &scheduler, SCHEDULER).await?)?,
        default_scheduler::Options::default(),
    );
    let options = try_join_all(nodes.into_iter().map(async |(index, plan, token)| {
        Ok::<_, Error>(NodeOptions {
            config: config(&server, &token, KUBELET).await?,
            administrator: client.clone(),
            plan: plan.clone(),
            dir: dir.join("nodes").join(&plan.name),
            hardware: hardware(spec, index, dir),
            bin_dir: spec.bin_dir.clone(),
            addresses: addresses.node(index),
            host_path_overrides: overrides(spec),
        })
    }))
    .await?;
    let nodes = try_join_all(options.into_iter().map(start_node)).await?;
    let mut tasks = JoinSet::new();
    if spec.hide_allocations {
        for node in &nodes {
            tasks.spawn(hide_allocations(node));
        }
    }
    let light_nodes = match spec.light_nodes {
        0 => None,
        count => Some(LightNodes::start(client.clone(), LightSpec::new(count)).await?),
    };
    let nodes: Arc<[SimulatedNode]> = nodes.into();
    if let Some(flavour) = spec.flavour {
        let machines = Arc::new(SimulatedNodes::new(&nodes));
        tasks.spawn(openshift::run(client.clone(), flavour, machines));
    }
    let disturbed = Arc::new(SimulatedNodes::new(&nodes));
    let faults = Faults::new(client.clone(), Some(server.faults()), Some(disturbed));
    Ok(EmbeddedCluster {
        spec: spec.clone(),
        client,
        nodes,
        controllers,
        scheduler,
        server,
        faults,
        _light_nodes: light_nodes,
        tasks,
        _addresses: addresses,
    })
}

async fn start_node(options: NodeOptions) -> Result<SimulatedNode, Error> {
    let name = options.plan.name.clone();
    let failed = |source| Error::Node { name, source };
    let started = async {
        let node = SimulatedNode::start(options).await?;
        node.ready().await?;
        Ok(node)
    };
    started.await.map_err(failed)
}

/// Returns the directory of a node's hardware files; nodes with the same machine share one.
fn hardware(spec: &EmbeddedSpec, index: usize, dir: &Path) -> PathBuf {
    let machine = &spec.nodes[index].machine;
    let same = |plan: &NodePlan| &plan.machine == machine;
    let first = spec.nodes.iter().position(same).unwrap_or(index);
    dir.join("hardware").join(first.to_string())
}

fn overrides(spec: &EmbeddedSpec) -> BTreeMap<PathBuf, PathBuf> {
    if spec.hide_allocations {
        [(POD_RESOURCES.into(), POD_RESOURCES_HIDDEN.into())].into()
    } else {
        BTreeMap::new()
    }
}

/// Serves a second podresources socket beside the kubelet's, which reports no allocations.
fn hide_allocations(node: &SimulatedNode) -> impl Future<Output = ()> + Send + 'static {
    let socket = |dir: &str| node.host_path(&Path::new(dir).join("kubelet.sock"));
    let args = podresources_proxy::Args {
        kubelet_socket: socket(POD_RESOURCES),
        listen_socket: socket(POD_RESOURCES_HIDDEN),
        hide_allocations: true,
    };
    async move {
        if let Err(error) = podresources_proxy::serve(args, std::future::pending()).await {
            tracing::warn!(%error, "Allocations are not hidden any more");
        }
    }
}

/// The users of the API server, each with a token of its own.
#[derive(Default)]
struct Identities {
    users: HashMap<String, User>,
}

impl Identities {
    /// Adds a user and returns its token.
    fn add(&mut self, name: &str, groups: &[&str]) -> String {
        let token = uuid::Uuid::new_v4().simple().to_string();
        let user = User {
            name: name.to_owned(),
            groups: groups.iter().map(|&group| group.to_owned()).collect(),
            ..User::default()
        };
        self.users.insert(token.clone(), user);
        token
    }
}

/// Returns the client configuration of the user with a token.
async fn config(server: &Running, token: &str, agent: &str) -> Result<kube::Config, Error> {
    let kubeconfig = Kubeconfig::from_yaml(&server.kubeconfig(token))?;
    let mut config =
        kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    config.headers.push((
        http::header::USER_AGENT,
        http::HeaderValue::from_str(agent).unwrap_or(http::HeaderValue::from_static("testbed")),
    ));
    Ok(config)
}

fn client(config: kube::Config) -> Result<Client, Error> {
    Client::try_from(config).map_err(|error| Error::Client(Box::new(error)))
}
