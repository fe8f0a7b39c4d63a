//! `nrt`: whether each node has a NodeResourceTopology.

use api::nrt::KIND;
use api::nrt::v1alpha2::NodeResourceTopology;
use kube::Client;
use kube::api::Api;

use super::finding::Finding;
use super::nodes::Members;
use crate::cluster::{self, ListError};

/// Validates the objects of these nodes: there is one for each, and none beside.
pub(super) async fn validate(client: &Client, members: &Members) -> anyhow::Result<Vec<Finding>> {
    let topologies: Api<NodeResourceTopology> = Api::all(client.clone());
    let found = match cluster::list(&topologies, "").await {
        Ok(objects) => objects.len(),
        Err(ListError::NoKind(_)) => {
            return Ok(vec![Finding::of_cluster(KIND, "installed", &true, &false)]);
        }
        Err(error) => return Err(error.into()),
    };
    let expected = members.nodes.len();
    Ok(if found == 0 {
        vec![Finding::of_cluster(KIND, "items", &"> 0", &found)]
    } else if found == expected {
        Vec::new()
    } else {
        vec![Finding::of_cluster(KIND, "items", &expected, &found)]
    })
}
