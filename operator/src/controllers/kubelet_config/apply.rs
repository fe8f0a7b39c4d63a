//! Writes the ConfigMaps of the pools.

use std::collections::BTreeSet;

use api::labels;
use api::operator::v1::NumaResourcesOperator;
use apply::{Cause, Outcome};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams};
use manifests::rte::config_map::KubeletSettings;
use serde_json::Value;

use super::SyncError;
use crate::context::Context;
use crate::node_groups::Pool;

/// Applies the ConfigMap of a pool. The log has the settings in it.
pub(super) async fn config_map(
    pool: &Pool,
    settings: &KubeletSettings,
    map: &Value,
    context: &Context,
) -> Result<(), SyncError> {
    let applied = context.applier.apply(map).await.map_err(SyncError::Write)?;
    if applied.outcome != Outcome::Unchanged {
        tracing::info!(pool = %pool.name, policy = %settings.topology_manager_policy, scope = %settings.topology_manager_scope, "updated RTE config from kubelet config");
    }
    Ok(())
}

/// Deletes the ConfigMaps of pools that are no longer selected or whose settings have no source any more.
pub(super) async fn delete_others(
    cr: &NumaResourcesOperator,
    kept: &BTreeSet<String>,
    context: &Context,
) {
    let maps: Api<ConfigMap> =
        Api::namespaced(context.client.clone(), &context.installation.namespace);
    let selector = format!("{}={}", labels::OPERATOR_NAME, cr.name_any());
    let found = match maps
        .list_metadata(&ListParams::default().labels(&selector))
        .await
    {
        Ok(found) => found.items,
        Err(error) => {
            tracing::warn!(error = %daemon::log::chain(&Cause::from(error)), "Exporter configurations cannot be listed");
            return;
        }
    };
    for name in found
        .iter()
        .map(ResourceExt::name_any)
        .filter(|name| !kept.contains(name))
    {
        match maps.delete(&name, &DeleteParams::default()).await {
            Ok(_) => {
                tracing::info!(configmap = %name, "Configuration that belongs to no pool deleted");
            }
            Err(error) => {
                tracing::warn!(configmap = %name, error = %daemon::log::chain(&Cause::from(error)), "Configuration not deleted");
            }
        }
    }
}
