//! The machines whose kubelets are configured, in both lanes.

use futures::future::BoxFuture;

use crate::faults::BoxError;
use crate::faults::nodes::{RealNodes, SimulatedNodes};
use crate::local::KubeletSettings;

/// Operations on machines that the Machine Config Operator needs.
pub trait Machines: Send + Sync + 'static {
    /// Returns the settings with which the kubelet of a node was started before any configuration.
    fn base(&self, node: &str) -> Result<KubeletSettings, BoxError>;
    /// Restarts the kubelet of a node with other settings; returns when the node is ready.
    fn restart_kubelet<'a>(
        &'a self,
        node: &'a str,
        settings: &'a KubeletSettings,
    ) -> BoxFuture<'a, Result<(), BoxError>>;
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
