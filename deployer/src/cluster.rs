//! The cluster that the program works on: how it is found, and what is asked of it before anything else.

use std::path::PathBuf;

use api::{labels, nrt};
use apply::Cause;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::api::{Api, ListParams};
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};

/// Number of objects of a page when many are listed.
pub const PAGE: u32 = 500;
/// TCP port of an API server where nothing else is known.
pub const API_SERVER_PORT: u16 = 6443;

/// There is no cluster to work on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// `KUBECONFIG` names files that cannot be used.
    #[error("cannot use the kubeconfig that KUBECONFIG names")]
    Environment(#[source] Box<KubeconfigError>),
    /// The user's kubeconfig cannot be used.
    #[error(
        "KUBECONFIG is not set, the program does not run in a pod, and the user's kubeconfig cannot be used: set KUBECONFIG"
    )]
    Home(#[source] daemon::client::Error),
    /// There is no kubeconfig.
    #[error(
        "KUBECONFIG is not set, the program does not run in a pod, and there is no home directory: set KUBECONFIG"
    )]
    NoHome,
    /// The client cannot be built.
    #[error("cannot build a client for {url}")]
    Client {
        /// URL of the API server.
        url: String,
        /// The cause.
        #[source]
        source: daemon::client::Error,
    },
    /// The API server does not answer.
    #[error("the API server {url} cannot be used: check the kubeconfig and that the cluster runs")]
    Unusable {
        /// URL of the API server.
        url: String,
        /// The cause.
        #[source]
        source: Cause,
    },
    /// Nodes cannot be listed.
    #[error("failed to list nodes")]
    Nodes(#[source] Cause),
}

/// The cluster, and the version that its API server tells.
#[derive(Clone)]
pub struct Cluster {
    /// A client with the rights of the user.
    pub client: Client,
    /// Version of the API server, `v1.35.0`.
    pub server_version: String,
}

impl Cluster {
    /// Connects to the cluster of `KUBECONFIG`, or else of the pod, or else of the user's kubeconfig, and asks for its version, so that a cluster that is
    /// not there is found before anything is done.
    pub async fn connect() -> Result<Self, Error> {
        daemon::client::install_crypto_provider();
        let config = config().await?;
        let url = config.cluster_url.to_string();
        let options = daemon::client::Options::default();
        let client = daemon::client::build(config, options).map_err(|source| Error::Client {
            url: url.clone(),
            source,
        })?;
        let version = client.apiserver_version().await;
        let version = version.map_err(|source| Error::Unusable {
            url,
            source: source.into(),
        })?;
        Ok(Self {
            client,
            server_version: version.git_version,
        })
    }

    /// Returns all nodes, sorted by name.
    pub async fn nodes(&self) -> Result<Vec<Node>, Error> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let mut all = everything(&nodes, ListParams::default())
            .await
            .map_err(|error| Error::Nodes(error.into()))?;
        all.sort_by(|one, other| one.metadata.name.cmp(&other.metadata.name));
        Ok(all)
    }

    /// Returns how many nodes the control plane has.
    pub async fn control_plane_nodes(&self) -> Result<usize, Error> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let params = ListParams::default().labels(&format!("{}=", labels::CONTROL_PLANE));
        let found = everything(&nodes, params).await;
        Ok(found.map_err(|error| Error::Nodes(error.into()))?.len())
    }

    /// Returns the TCP ports at which the API server can be reached once a Service has translated them, which is what network policies see. The usual one
    /// is always among them.
    pub async fn api_server_ports(&self) -> Vec<u16> {
        let slices: Api<EndpointSlice> = Api::namespaced(self.client.clone(), "default");
        let params = ListParams::default().labels("kubernetes.io/service-name=kubernetes");
        // who may not see them gets the usual port
        let slices = slices.list(&params).await.map(|list| list.items);
        let mut ports: Vec<u16> = slices
            .unwrap_or_default()
            .into_iter()
            .flat_map(|slice| slice.ports.unwrap_or_default())
            .filter_map(|port| u16::try_from(port.port?).ok())
            .chain([API_SERVER_PORT])
            .collect();
        ports.sort_unstable();
        ports.dedup();
        ports
    }

    /// Returns the names of the DaemonSets in a namespace; none if there is no such namespace, or the user may not see them.
    pub async fn daemon_sets(&self, namespace: &str) -> Vec<String> {
        let sets: Api<DaemonSet> = Api::namespaced(self.client.clone(), namespace);
        let sets = sets.list_metadata(&ListParams::default()).await;
        let sets = sets.map(|list| list.items).unwrap_or_default();
        sets.into_iter()
            .filter_map(|set| set.metadata.name)
            .collect()
    }

    /// Returns the namespaces in which a role binding of this name is for this account; none if the user may not see them.
    pub async fn bound(&self, name: &str, namespace: &str, account: &str) -> Vec<String> {
        let bindings: Api<RoleBinding> = Api::all(self.client.clone());
        let params = ListParams::default().fields(&format!("metadata.name={name}"));
        let found = everything(&bindings, params).await.unwrap_or_default();
        let is_its = |binding: &RoleBinding| {
            let mut subjects = binding.subjects.iter().flatten();
            subjects.any(|it| it.name == account && it.namespace.as_deref() == Some(namespace))
        };
        found
            .into_iter()
            .filter(is_its)
            .filter_map(|binding| binding.metadata.namespace)
            .collect()
    }

    /// Returns all topologies; `None` if the cluster does not know the kind.
    pub async fn topologies(
        &self,
    ) -> Result<Option<Vec<nrt::v1alpha2::NodeResourceTopology>>, Cause> {
        let topologies: Api<nrt::v1alpha2::NodeResourceTopology> = Api::all(self.client.clone());
        match everything(&topologies, ListParams::default()).await {
            Ok(all) => Ok(Some(all)),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// Lists all objects, page by page.
pub async fn everything<K>(api: &Api<K>, params: ListParams) -> Result<Vec<K>, kube::Error>
where
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let mut params = params.limit(PAGE);
    let mut all = Vec::new();
    loop {
        let page = api.list(&params).await?;
        all.extend(page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(all),
        }
    }
}

/// Returns whether a node is a worker by the label with the empty value that the original looks for (deployer.md 9).
pub fn is_worker(node: &Node) -> bool {
    let all = node.metadata.labels.as_ref();
    all.and_then(|all| all.get(labels::WORKER))
        .is_some_and(String::is_empty)
}

/// A pool of nodes, and the label by which its nodes are known.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodePool {
    /// Its name.
    pub name: String,
    /// Key of the label.
    pub key: String,
    /// Value of the label.
    pub value: String,
}

/// Roles that every worker or no worker has, so that they say nothing of pools.
const COMMON_ROLES: [&str; 3] = ["worker", "control-plane", "master"];

/// Returns the pool of a node: its pool in a hosted cluster, or its own role. A node without either is one of the workers, as all the others are.
pub fn node_pool(node: &Node) -> Option<NodePool> {
    let all = node.metadata.labels.as_ref()?;
    let pool = |name: &str, key: &str, value: &str| NodePool {
        name: name.to_owned(),
        key: key.to_owned(),
        value: value.to_owned(),
    };
    if let Some(name) = all.get(labels::HYPERSHIFT_NODE_POOL) {
        return Some(pool(name, labels::HYPERSHIFT_NODE_POOL, name));
    }
    all.iter().find_map(|(key, value)| {
        let role = key.strip_prefix(labels::NODE_ROLE_PREFIX)?;
        (!COMMON_ROLES.contains(&role)).then(|| pool(role, key, value))
    })
}

/// Returns whether a node takes pods without tolerations.
pub fn takes_pods(node: &Node) -> bool {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref());
    !taints
        .unwrap_or_default()
        .iter()
        .any(|taint| taint.effect == "NoSchedule" || taint.effect == "NoExecute")
}

async fn config() -> Result<Config, Error> {
    let environment = |error| Error::Environment(Box::new(error));
    if std::env::var_os("KUBECONFIG").is_some_and(|value| !value.is_empty())
        && let Some(file) = Kubeconfig::from_env().map_err(environment)?
    {
        return Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
            .await
            .map_err(environment);
    }
    if let Ok(config) = Config::incluster() {
        return Ok(config);
    }
    let home = std::env::var_os("HOME").filter(|home| !home.is_empty());
    let path = PathBuf::from(home.ok_or(Error::NoHome)?).join(".kube/config");
    daemon::client::config(Some(&path))
        .await
        .map_err(Error::Home)
}
