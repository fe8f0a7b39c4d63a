//! Operations on nodes that disturbances need, for the nodes of both lanes.

use std::path::PathBuf;

use cri_runtime::control::{Signal, Target};
use futures::future::BoxFuture;

use crate::BoxError;

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
