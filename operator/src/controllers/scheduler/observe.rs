//! Reads which nodes may run the scheduler, and which scheduler runs.

use api::{labels, names};
use apply::Cause;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, ListParams};
use manifests::platform::Platform;

use super::super::Error;
use super::plan;
use crate::context::Context;

/// Returns the scheduler's Deployment, if there is one.
pub(super) async fn deployment(context: &Context) -> Result<Option<Deployment>, Error> {
    let namespace = &context.installation.namespace;
    let deployments: Api<Deployment> = Api::namespaced(context.client.clone(), namespace);
    let found = deployments.get_opt(names::SCHEDULER).await;
    found.map_err(|error| Error::Get(format!("Deployment {}", names::SCHEDULER), error.into()))
}

/// Returns the number of nodes that determine the number of schedulers.
pub(super) async fn candidates(context: &Context) -> Result<usize, String> {
    let platform = context.installation.platform;
    let selector = format!("{}=", labels::node_role(plan::role(platform)));
    let of_role = count(context, &ListParams::default().labels(&selector)).await?;
    if of_role == 0 && platform == Platform::Kubernetes {
        // the control plane runs elsewhere: the scheduler may run on any node
        return count(context, &ListParams::default()).await;
    }
    Ok(of_role)
}

async fn count(context: &Context, params: &ListParams) -> Result<usize, String> {
    let nodes: Api<Node> = Api::all(context.client.clone());
    let found = nodes.list_metadata(params).await;
    found
        .map(|list| list.items.len())
        .map_err(|error| daemon::log::chain(&Cause::from(error)))
}
