//! The nodes that are validated: those of the node groups, or those that a selector selects.

use std::collections::BTreeMap;

use anyhow::Context as _;
use api::openshift::machine_config::MachineConfigPool;
use api::operator::v1::{NodeGroup, NumaResourcesOperator};
use api::{labels, names};
use apply::Cause;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::api::Api;
use kube::core::{Selector, SelectorExt as _};
use kube::{Client, ResourceExt as _};
use manifests::platform::Platform;

use crate::cluster;

/// The pool that every cluster has, also where no node is labelled for it (operator.md 4.5).
const WORKER_POOL: &str = "worker";

/// The nodes that are validated.
#[derive(Debug)]
pub(super) struct Members {
    /// Kind of the cluster.
    pub(super) platform: Platform,
    /// The nodes, by name, with their labels.
    pub(super) nodes: BTreeMap<String, BTreeMap<String, String>>,
}

impl Members {
    /// Finds the nodes by a label selector; an empty one stands for the node groups of the operator's resource.
    pub(super) async fn find(
        client: &Client,
        platform: Platform,
        selector: &str,
    ) -> anyhow::Result<Self> {
        let api: Api<Node> = Api::all(client.clone());
        let listed = cluster::list(&api, selector).await?;
        let mut nodes: BTreeMap<String, BTreeMap<String, String>> = listed
            .into_iter()
            .map(|node| (node.name_any(), node.metadata.labels.unwrap_or_default()))
            .collect();
        if selector.is_empty() {
            let groups = node_groups(client).await?;
            let pools = match platform {
                Platform::OpenShift => machine_config_pools(client).await?,
                Platform::Kubernetes | Platform::HyperShift => Vec::new(),
            };
            let is_labelled = nodes
                .values()
                .any(|labels| labels.contains_key(labels::WORKER));
            nodes.retain(|_, present| {
                groups.iter().any(|group| match platform {
                    Platform::OpenShift => pools
                        .iter()
                        .any(|pool| selects(group, pool) && has(pool, present)),
                    Platform::HyperShift => {
                        present.get(labels::HYPERSHIFT_NODE_POOL) == group.pool_name.as_ref()
                            && group.pool_name.is_some()
                    }
                    Platform::Kubernetes => group
                        .pool_name
                        .as_deref()
                        .is_some_and(|pool| has_role(pool, is_labelled, present)),
                })
            });
        }
        Ok(Self { platform, nodes })
    }

    /// Returns the names of the nodes.
    pub(super) fn names(&self) -> Vec<&str> {
        self.nodes.keys().map(String::as_str).collect()
    }
}

async fn node_groups(client: &Client) -> anyhow::Result<Vec<NodeGroup>> {
    let resources: Api<NumaResourcesOperator> = Api::all(client.clone());
    let resource = resources.get(names::OPERATOR_CR).await.map_err(Cause::from);
    let resource = resource.with_context(|| {
        format!(
            "cannot read NUMAResourcesOperator {}: name the nodes with -labels",
            names::OPERATOR_CR
        )
    })?;
    Ok(resource.spec.node_groups)
}

/// Lists the pools of an OpenShift.
pub(super) async fn machine_config_pools(
    client: &Client,
) -> Result<Vec<MachineConfigPool>, cluster::ListError> {
    cluster::list(&Api::all(client.clone()), "").await
}

/// Returns whether a group means a pool, by name or by labels.
fn selects(group: &NodeGroup, pool: &MachineConfigPool) -> bool {
    match (&group.pool_name, &group.machine_config_pool_selector) {
        (Some(name), _) => *name == pool.name_any(),
        (None, Some(selector)) => matches(selector, pool.labels()),
        (None, None) => false,
    }
}

/// Returns whether a node with these labels is in a pool.
pub(super) fn has(pool: &MachineConfigPool, present: &BTreeMap<String, String>) -> bool {
    let selector = pool.spec.node_selector.as_ref();
    selector.is_some_and(|selector| matches(selector, present))
}

/// Returns whether a selector matches these labels. An invalid selector matches nothing.
pub(super) fn matches(selector: &LabelSelector, present: &BTreeMap<String, String>) -> bool {
    Selector::try_from(selector.clone()).is_ok_and(|selector| selector.matches(present))
}

/// Returns whether a node of plain Kubernetes is in a pool: by its role, or as a worker where no node has that role.
fn has_role(pool: &str, workers_are_labelled: bool, present: &BTreeMap<String, String>) -> bool {
    if pool == WORKER_POOL && !workers_are_labelled {
        return !present.contains_key(labels::CONTROL_PLANE);
    }
    present.contains_key(&labels::node_role(pool))
}
