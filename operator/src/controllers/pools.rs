//! Finds the pools of nodes that an operator resource selects in the current cluster.

use api::labels;
use api::openshift::machine_config::MachineConfigPool;
use api::operator::v1::NumaResourcesOperator;
use apply::Cause;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, ListParams};
use manifests::platform::Platform;

use crate::context::Context;
use crate::node_groups;
use crate::node_groups::machine_pools::{self, Selected};

/// The pools cannot be determined.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// The node groups break a rule.
    #[error("{0}")]
    Invalid(String),
    /// A call failed.
    #[error("{0}")]
    Read(#[from] Cause),
}

/// Validates the node groups and finds their pools.
pub(super) async fn find(cr: &NumaResourcesOperator, context: &Context) -> Result<Selected, Error> {
    let groups = &cr.spec.node_groups;
    let platform = context.installation.platform;
    node_groups::validate(groups, platform).map_err(Error::Invalid)?;
    if platform == Platform::OpenShift {
        let api: Api<MachineConfigPool> = Api::all(context.client.clone());
        let all = api
            .list(&ListParams::default())
            .await
            .map_err(Cause::from)?;
        return machine_pools::select(groups, &all.items).map_err(Error::Invalid);
    }
    let labelled = workers_are_labelled(context).await?;
    Ok(Selected {
        pools: node_groups::pools(groups, platform, labelled),
        multiple_pools_message: None,
    })
}

/// Returns whether any node has the role of the pool `worker`; on OpenShift always true.
async fn workers_are_labelled(context: &Context) -> Result<bool, Cause> {
    if context.installation.platform != Platform::Kubernetes {
        return Ok(true);
    }
    let nodes: Api<Node> = Api::all(context.client.clone());
    let list = nodes
        .list_metadata(&ListParams::default().labels(labels::WORKER).limit(1))
        .await?;
    Ok(!list.items.is_empty())
}
