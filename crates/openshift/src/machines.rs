//! The machines whose kubelets are configured, in both lanes.

use cluster_faults::BoxError;
use cluster_spec::kubelet::KubeletSettings;
use futures::future::BoxFuture;

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
