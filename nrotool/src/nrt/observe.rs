//! The objects that a picture is drawn from.

use api::nrt::v1alpha2::NodeResourceTopology;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Client;
use kube::api::Api;

use crate::cluster::{self, ListError};

/// The objects of a cluster at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Snapshot {
    /// The zones of the nodes.
    pub(crate) topologies: Vec<NodeResourceTopology>,
    /// Pods of all namespaces.
    pub(crate) pods: Vec<Pod>,
    /// Nodes.
    pub(crate) nodes: Vec<Node>,
}

/// Lists the objects of a cluster.
pub(crate) async fn look(client: &Client) -> Result<Snapshot, ListError> {
    let topologies = Api::all(client.clone());
    let pods = Api::all(client.clone());
    let nodes = Api::all(client.clone());
    let (topologies, pods, nodes) = tokio::join!(
        cluster::list(&topologies, ""),
        cluster::list(&pods, ""),
        cluster::list(&nodes, ""),
    );
    Ok(Snapshot {
        topologies: topologies?,
        pods: pods?,
        nodes: nodes?,
    })
}
