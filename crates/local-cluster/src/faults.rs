//! What goes wrong with nodes of real kubelets on purpose, and how their kubelets are configured anew.

use std::path::PathBuf;
use std::sync::Arc;

use cluster_faults::{BoxError, Error, NodeFaults, Part};
use cluster_spec::kubelet::KubeletSettings;
use cri_runtime::control::{Signal, Target};
use futures::future::BoxFuture;
use openshift::machines::Machines;

use crate::node_handle::NodeHandle;

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

impl Machines for RealNodes {
    fn base(&self, node: &str) -> Result<KubeletSettings, BoxError> {
        Ok(self.find(node)?.plan().kubelet.clone())
    }

    fn restart_kubelet<'a>(
        &'a self,
        node: &'a str,
        settings: &'a KubeletSettings,
    ) -> BoxFuture<'a, Result<(), BoxError>> {
        Box::pin(async move { Ok(self.find(node)?.restart_kubelet(settings).await?) })
    }
}
