//! A whole embedded cluster as one object: up, its parts, down.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use apiserver::{Running, Server, User};
use kube::Client;
use kube::config::{KubeConfigOptions, Kubeconfig};

use crate::local::NodePlan;
use crate::local::progress::{Report, Step, note};
use crate::state::{self, Claim};

/// The longest path of a socket in a node's directory.
const LONGEST_SOCKET: &str = "/device-plugins/kubelet.sock";
/// User agent and user of the workload controllers.
const CONTROLLER_MANAGER: &str = "kube-controller-manager";
/// User agent and user of the default scheduler.
const SCHEDULER: &str = "kube-scheduler";

/// What to bring up.
#[derive(Clone, Debug)]
pub struct EmbeddedSpec {
    /// Name; also the name of its directory below the state root.
    pub name: String,
    /// Directory of all clusters.
    pub state_root: PathBuf,
    /// Directory with `numaresources-testbed` and the programs of the stack.
    pub bin_dir: PathBuf,
    /// The nodes.
    pub nodes: Vec<NodePlan>,
    /// Fault: what reads the podresources sockets is told of no allocation.
    pub hide_allocations: bool,
}

impl EmbeddedSpec {
    /// Directory of the cluster.
    pub fn dir(&self) -> PathBuf {
        state::dir(&self.state_root, &self.name)
    }
}

/// A running embedded cluster. It lives in this process and on the runtime that it was brought up on; dropping it ends it.
pub struct EmbeddedCluster {
    spec: EmbeddedSpec,
    client: Client,
    server: Running,
}

/// Why a cluster did not come up.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The plan makes no sense.
    #[error("cannot plan the cluster: {0}")]
    Plan(String),
    /// The state directory.
    #[error(transparent)]
    State(#[from] state::Error),
    /// A file of the cluster.
    #[error("cannot write the files of the cluster")]
    Files(#[from] std::io::Error),
    /// The API server.
    #[error("the API server does not start")]
    Server(#[from] apiserver::Error),
    /// A kubeconfig of ours could not be used.
    #[error("cannot use a kubeconfig of the cluster")]
    Kubeconfig(#[from] kube::config::KubeconfigError),
    /// No client could be made.
    #[error("cannot make a client of the cluster")]
    Client(#[source] Box<kube::Error>),
}

impl EmbeddedCluster {
    /// Brings a cluster up to all nodes Ready and labelled, and all devices allocatable.
    pub async fn up(spec: EmbeddedSpec, report: Report<'_>) -> Result<Self, Error> {
        check(&spec)?;
        let whole = Step::begin(
            report,
            format!("cluster {} with {} nodes", spec.name, spec.nodes.len()),
        );
        let (dir, swept) = state::claim(&Claim {
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
                // its directory stays for the logs; that it cannot be given up is less important than why it did not start
                let _ = state::abandon(&spec.state_root, &spec.name);
                Err(error)
            }
        }
    }

    /// Kubeconfig of the administrator.
    pub fn kubeconfig(&self) -> PathBuf {
        self.spec.dir().join("kubeconfig")
    }

    /// A client with the administrator's rights.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// What it was brought up from.
    pub fn spec(&self) -> &EmbeddedSpec {
        &self.spec
    }

    /// The API server.
    pub fn server(&self) -> &Running {
        &self.server
    }

    /// Ends every process of the cluster and removes its directory.
    pub fn down(self) -> Result<(), state::Error> {
        let (root, name) = (self.spec.state_root.clone(), self.spec.name.clone());
        drop(self);
        state::remove(&root, &name)?;
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

/// Whatever can be known to be wrong before anything starts.
fn check(spec: &EmbeddedSpec) -> Result<(), Error> {
    if spec.nodes.is_empty() {
        return Err(Error::Plan("a cluster needs a node".to_owned()));
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
    let mut identities = Identities::default();
    let manager = identities.add(&format!("system:{CONTROLLER_MANAGER}"), &["system:masters"]);
    let scheduler = identities.add(&format!("system:{SCHEDULER}"), &[]);
    let server = Server::start(apiserver::Options {
        tokens: identities.users,
        ..apiserver::Options::default()
    })
    .await?;
    fs_err::write(
        dir.join("kubeconfig"),
        server.kubeconfig(&server.admin_token),
    )?;
    let client = client(&server, &server.admin_token, "numaresources-tests").await?;
    let _ = (manager, scheduler);
    Ok(EmbeddedCluster {
        spec: spec.clone(),
        client,
        server,
    })
}

/// Who may ask the API server, each by a token of its own.
#[derive(Default)]
struct Identities {
    users: HashMap<String, User>,
}

impl Identities {
    /// The token of a new user.
    fn add(&mut self, name: &str, groups: &[&str]) -> String {
        let token = uuid::Uuid::new_v4().simple().to_string();
        let user = User {
            name: name.to_owned(),
            groups: groups.iter().map(|&group| group.to_owned()).collect(),
        };
        self.users.insert(token.clone(), user);
        token
    }
}

async fn client(server: &Running, token: &str, agent: &str) -> Result<Client, Error> {
    let kubeconfig = Kubeconfig::from_yaml(&server.kubeconfig(token))?;
    let mut config =
        kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    config.headers.push((
        http::header::USER_AGENT,
        http::HeaderValue::from_str(agent).unwrap_or(http::HeaderValue::from_static("testbed")),
    ));
    Client::try_from(config).map_err(|error| Error::Client(Box::new(error)))
}
