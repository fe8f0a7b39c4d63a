//! Operations on nodes that disturbances need, for the nodes of both lanes.

use std::path::PathBuf;
use std::sync::{Arc, Weak};

use futures::future::BoxFuture;

use super::{BoxError, Error, Part};
use crate::embedded::node::SimulatedNode;
use crate::local::NodeHandle;
use crate::node::control::{Signal, Target};

/// Operations on the nodes of a cluster that disturbances need.
pub trait NodeFaults: Send + Sync {
    /// Returns whether a node has this name.
    fn has_node(&self, node: &str) -> bool;
    /// Sends a signal to a running container.
    fn signal<'a>(
        &'a self,
        node: &'a str,
        target: &'a Target,
        signal: Signal,
    ) -> BoxFuture<'a, Result<(), BoxError>>;
    /// Stops the kubelet; containers live on.
    fn stop_kubelet<'a>(&'a self, node: &'a str) -> BoxFuture<'a, Result<(), BoxError>>;
    /// Starts the stopped kubelet with its settings.
    fn start_kubelet<'a>(&'a self, node: &'a str) -> BoxFuture<'a, Result<(), BoxError>>;
    /// Returns whether another server can replace that of a podresources socket.
    fn can_replace_podresources(&self) -> bool;
    /// Stops the service of the podresources socket and closes all its connections. Returns the path on this machine where another server
    /// can listen instead.
    fn stop_podresources<'a>(&'a self, node: &'a str) -> BoxFuture<'a, Result<PathBuf, BoxError>>;
    /// Serves the podresources socket again.
    fn start_podresources<'a>(&'a self, node: &'a str) -> BoxFuture<'a, Result<(), BoxError>>;
}

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

/// Nodes with real kubelets. Their podresources sockets belong to the kubelets: no other server can replace them without a restart of all
/// clients.
#[derive(Clone, Debug)]
pub struct RealNodes(Arc<[NodeHandle]>);

impl RealNodes {
    /// Wraps these nodes.
    pub fn new(nodes: &[NodeHandle]) -> Self {
        Self(nodes.into())
    }

    pub(crate) fn find(&self, name: &str) -> Result<&NodeHandle, BoxError> {
        let found = self.0.iter().find(|node| node.name() == name);
        found.ok_or_else(|| Box::new(Error::NoNode(name.to_owned())) as BoxError)
    }
}

impl NodeFaults for RealNodes {
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
            let (runtime, target) = (self.find(node)?.runtime(), target.clone());
            tokio::task::spawn_blocking(move || runtime.signal(&target, signal)).await??;
            Ok(())
        })
    }

    fn stop_kubelet<'a>(&'a self, node: &'a str) -> BoxFuture<'a, Result<(), BoxError>> {
        Box::pin(async move { Ok(self.find(node)?.stop_kubelet().await?) })
    }

    fn start_kubelet<'a>(&'a self, node: &'a str) -> BoxFuture<'a, Result<(), BoxError>> {
        Box::pin(async move { Ok(self.find(node)?.start_kubelet().await?) })
    }

    fn can_replace_podresources(&self) -> bool {
        false
    }

    fn stop_podresources<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<PathBuf, BoxError>> {
        own_socket()
    }

    fn start_podresources<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<(), BoxError>> {
        own_socket()
    }
}

/// Returns the error for the socket of a real kubelet, which serves it itself.
fn own_socket<'a, T: Send + 'a>() -> BoxFuture<'a, Result<T, BoxError>> {
    let error = Error::Unsupported(Part::PodResources.verb());
    Box::pin(std::future::ready(Err(Box::new(error) as BoxError)))
}
