//! A whole cluster as one object: start, nodes, removal.
//!
//! [`LocalCluster`] owns the cluster that it brought up. Dropping the value, or the end of the process, ends the cluster unless it was
//! [detached](LocalCluster::detach).

pub mod up;

use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin};
use std::sync::Arc;
use std::time::Duration;

use cluster_faults::Faults;
use cluster_spec::plan::ClusterSpec;
use cluster_spec::progress::Report;
use cluster_spec::subnet::Subnet;
use cluster_state::Record;
use cluster_state::process::ProcessRef;
use openshift::machines::Machines;

use crate::api_server_process::ApiServerProcess;
use crate::faults::RealNodes;
use crate::net::HostLink;
use crate::node_handle::NodeHandle;
use crate::supervise::client::{self, Client as Holder};

/// A running cluster.
pub struct LocalCluster {
    spec: ClusterSpec,
    dir: PathBuf,
    subnet: Subnet,
    client: kube::Client,
    nodes: Vec<NodeHandle>,
    /// Made once, so that disturbances of the same part wait for each other whoever injects them.
    faults: Faults,
    /// Ties the cluster to this process; none for an attached cluster.
    owned: Option<Owned>,
}

/// The launcher of the holder, and the pipe that closes when this process ends, which the holder notices.
#[derive(Debug)]
pub(crate) struct Owned {
    launcher: Child,
    _lifeline: ChildStdin,
}

/// Why an operation on a running cluster failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The record of the cluster could not be used.
    #[error(transparent)]
    State(#[from] cluster_state::Error),
    /// The holder of the cluster could not be reached or refused a request.
    #[error(transparent)]
    Holder(#[from] client::Error),
    /// The record has no subnet, because the cluster never came up completely.
    #[error("cluster {0:?} never came up completely: remove it with `cluster down`")]
    Incomplete(String),
    /// The cluster has no real Kubernetes parts.
    #[error("cluster {0:?} is embedded: use its kubeconfig")]
    Embedded(String),
    /// The kubeconfig could not be used.
    #[error("cannot use the kubeconfig of the cluster")]
    Kubeconfig(#[from] kube::config::KubeconfigError),
    /// A client could not be created.
    #[error("cannot make a client for the cluster")]
    Client(#[from] kube::Error),
}

impl LocalCluster {
    /// Brings a cluster up to all nodes Ready and labelled, and all devices allocatable.
    ///
    /// The cluster ends with this value or this process unless it is detached. If bringing it up fails, its processes are ended, and its
    /// directory stays until the next start, for the logs.
    pub async fn up(spec: ClusterSpec, report: Report<'_>) -> Result<Self, up::Error> {
        up::up(spec, report).await
    }

    /// Attaches to a running cluster that another process brought up. It does not end with this value.
    pub async fn attach(state_root: &Path, name: &str) -> Result<Self, Error> {
        Self::recorded(cluster_state::find(state_root, name)?, name).await
    }

    /// Returns the cluster that this process is part of. It does not check the holder, which has another ID in its own PID namespace.
    pub(crate) async fn enclosing(state_root: &Path, name: &str) -> Result<Self, Error> {
        Self::recorded(cluster_state::recorded(state_root, name)?, name).await
    }

    async fn recorded(record: Record, name: &str) -> Result<Self, Error> {
        let local = record
            .local
            .ok_or_else(|| Error::Embedded(name.to_owned()))?;
        let subnet = local
            .subnet
            .ok_or_else(|| Error::Incomplete(name.to_owned()))?;
        let client = client_from(&local.spec.dir().join("kubeconfig")).await?;
        Ok(Self::assemble(local.spec, subnet, client, None))
    }

    pub(crate) fn assemble(
        spec: ClusterSpec,
        subnet: Subnet,
        client: kube::Client,
        owned: Option<Owned>,
    ) -> Self {
        let dir = spec.dir();
        let shared = Arc::new(spec.clone());
        let nodes: Vec<NodeHandle> = (0..spec.nodes.len())
            .map(|index| NodeHandle::new(Arc::clone(&shared), index, subnet, client.clone()))
            .collect();
        let server = ApiServerProcess::new(Holder::new(&dir), &dir, &spec.assets, subnet);
        let disturbed = Arc::new(RealNodes::new(&nodes));
        let faults =
            Faults::new(client.clone(), None, Some(disturbed)).with_process(Arc::new(server));
        Self {
            spec,
            dir,
            subnet,
            client,
            nodes,
            faults,
            owned,
        }
    }

    /// Returns the path of the administrator's kubeconfig.
    pub fn kubeconfig(&self) -> PathBuf {
        self.dir.join("kubeconfig")
    }

    /// Returns a client with the administrator's permissions.
    pub fn client(&self) -> kube::Client {
        self.client.clone()
    }

    /// Returns the spec that it was brought up from.
    pub fn spec(&self) -> &ClusterSpec {
        &self.spec
    }

    /// Returns the directory with all files of the cluster; logs are below `logs`.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns its network.
    pub fn subnet(&self) -> Subnet {
        self.subnet
    }

    /// Returns all nodes, the control plane's first.
    pub fn nodes(&self) -> &[NodeHandle] {
        &self.nodes
    }

    /// Returns the node with this name.
    pub fn node(&self, name: &str) -> Option<&NodeHandle> {
        self.nodes.iter().find(|node| node.name() == name)
    }

    /// Returns the faults that can be injected: into the API server as a whole, real kubelets and the processes on their nodes, and leases.
    pub fn faults(&self) -> Faults {
        self.faults.clone()
    }

    /// Returns its nodes as machines that can be configured.
    pub fn machines(&self) -> Arc<dyn Machines> {
        Arc::new(RealNodes::new(&self.nodes))
    }

    /// Returns a client of the holder, e.g. to stop a component of the control plane.
    pub fn holder(&self) -> Holder {
        Holder::new(&self.dir)
    }

    /// Returns the holder's process.
    pub fn holder_process(&self) -> Option<ProcessRef> {
        cluster_state::find(&self.spec.state_root, &self.spec.name)
            .ok()?
            .holder
    }

    /// Lets the cluster outlive this value and this process.
    pub fn detach(mut self) -> Result<(), Error> {
        self.holder().detach()?;
        cluster_state::update(&self.spec.state_root, &self.spec.name, |record| {
            record.detached = true;
        })?;
        if let Some(owned) = self.owned.take() {
            // The launcher keeps waiting for the holder; init reaps the launcher after this process has ended.
            drop(owned);
        }
        Ok(())
    }

    /// Ends every process of the cluster and removes its directory.
    pub fn down(mut self) -> Result<(), Error> {
        self.end()
    }

    /// Ends every process of the cluster and keeps its directory until the next start, for the logs.
    pub(crate) fn abandon(mut self) {
        if let Err(error) = cluster_state::abandon(&self.spec.state_root, &self.spec.name) {
            tracing::warn!(%error, cluster = %self.spec.name, "Could not end a cluster that did not come up");
        }
        if let Some(owned) = self.owned.take() {
            owned.wait();
        }
    }

    fn end(&mut self) -> Result<(), Error> {
        let outcome = down(&self.spec.state_root, &self.spec.name);
        if let Some(owned) = self.owned.take() {
            owned.wait();
        }
        outcome?;
        Ok(())
    }
}

impl std::fmt::Debug for LocalCluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LocalCluster")
            .field("dir", &self.dir)
            .field("subnet", &self.subnet)
            .field("owned", &self.owned.is_some())
            .finish_non_exhaustive()
    }
}

impl Drop for LocalCluster {
    fn drop(&mut self) {
        if self.owned.is_some()
            && let Err(error) = self.end()
        {
            tracing::warn!(%error, cluster = %self.spec.name, "Could not remove the cluster; the next start will");
        }
    }
}

impl Owned {
    pub(crate) fn new(launcher: Child, lifeline: ChildStdin) -> Self {
        Self {
            launcher,
            _lifeline: lifeline,
        }
    }

    /// Waits for the launcher after its holder was ended, so that it leaves no zombie.
    pub(crate) fn wait(mut self) {
        drop(self.launcher.wait());
    }
}

/// Ends a cluster by name, whichever process brought it up; returns whether there was one.
pub fn down(state_root: &Path, name: &str) -> Result<bool, cluster_state::Error> {
    let record = cluster_state::find(state_root, name).ok();
    let subnet = record.and_then(|record| record.local?.subnet);
    let link = subnet.and_then(HostLink::of);
    let existed = cluster_state::remove(state_root, name)?;
    if let Some(link) = link {
        link.delete();
    }
    Ok(existed)
}

/// Returns a client from a kubeconfig file.
pub async fn client_from(kubeconfig: &Path) -> Result<kube::Client, Error> {
    let kubeconfig = kube::config::Kubeconfig::read_from(kubeconfig)?;
    let mut config = kube::Config::from_custom_kubeconfig(
        kubeconfig,
        &kube::config::KubeConfigOptions::default(),
    )
    .await?;
    config.connect_timeout = Some(Duration::from_secs(5));
    Ok(kube::Client::try_from(config)?)
}
