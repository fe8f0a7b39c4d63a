//! What goes wrong with simulated nodes on purpose, and how their kubelets are configured anew.

use std::path::PathBuf;
use std::sync::{Arc, Weak};

use cluster_faults::{BoxError, Error, NodeFaults};
use cluster_spec::kubelet::KubeletSettings;
use cri_runtime::control::{Signal, Target};
use futures::future::BoxFuture;
use openshift::machines::Machines;

use crate::node::SimulatedNode;

/// The simulated nodes of a cluster, as long as the cluster lives. The reference is weak, so that it does not keep the cluster alive.
#[derive(Clone, Debug)]
pub struct SimulatedNodes(Weak<[SimulatedNode]>);

impl SimulatedNodes {
    /// Wraps these nodes.
    pub fn new(nodes: &Arc<[SimulatedNode]>) -> Self {
        Self(Arc::downgrade(nodes))
    }

    /// Returns the nodes, and the index of the one with this name.
    pub(crate) fn find(&self, name: &str) -> Result<(Arc<[SimulatedNode]>, usize), BoxError> {
        let gone = || Box::new(Error::NoNode(name.to_owned())) as BoxError;
        let nodes = self.0.upgrade().ok_or_else(gone)?;
        let index = nodes.iter().position(|node| node.name() == name);
        Ok((nodes, index.ok_or_else(gone)?))
    }
}

impl NodeFaults for SimulatedNodes {
    fn has_node(&self, node: &str) -> bool {
        self.find(node).is_ok()
    }

    fn signal<'a>(
        &'a self,
        node: &'a str,
        target: &'a Target,
        signal: Signal,
    ) -> BoxFuture<'a, Result<(), BoxError>> {
        Box::pin(async move {
            let (nodes, index) = self.find(node)?;
            Ok(nodes[index].signal(target, signal)?)
        })
    }

    fn stop_kubelet<'a>(&'a self, node: &'a str) -> BoxFuture<'a, Result<(), BoxError>> {
        Box::pin(async move {
            let (nodes, index) = self.find(node)?;
            nodes[index].stop_kubelet();
            Ok(())
        })
    }

    fn start_kubelet<'a>(&'a self, node: &'a str) -> BoxFuture<'a, Result<(), BoxError>> {
        Box::pin(async move {
            let (nodes, index) = self.find(node)?;
            Ok(nodes[index].start_kubelet().await?)
        })
    }

    fn can_replace_podresources(&self) -> bool {
        true
    }

    fn stop_podresources<'a>(&'a self, node: &'a str) -> BoxFuture<'a, Result<PathBuf, BoxError>> {
        Box::pin(async move {
            let (nodes, index) = self.find(node)?;
            Ok(nodes[index].stop_podresources().await)
        })
    }

    fn start_podresources<'a>(&'a self, node: &'a str) -> BoxFuture<'a, Result<(), BoxError>> {
        Box::pin(async move {
            let (nodes, index) = self.find(node)?;
            Ok(nodes[index].start_podresources().await?)
        })
    }
}

impl Machines for SimulatedNodes {
    fn base(&self, node: &str) -> Result<KubeletSettings, BoxError> {
        let (nodes, index) = self.find(node)?;
        Ok(nodes[index].plan().kubelet.clone())
    }

    fn restart_kubelet<'a>(
        &'a self,
        node: &'a str,
        settings: &'a KubeletSettings,
    ) -> BoxFuture<'a, Result<(), BoxError>> {
        Box::pin(async move {
            let (nodes, index) = self.find(node)?;
            Ok(nodes[index].restart_kubelet(settings).await?)
        })
    }
}
