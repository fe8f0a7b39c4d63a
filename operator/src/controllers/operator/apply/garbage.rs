//! Deletes the objects of pools that are no longer selected.

use std::collections::BTreeSet;

use api::names;
use api::openshift::machine_config::MachineConfig;
use api::operator::v1::NumaResourcesOperator;
use apply::Cause;
use k8s_openapi::api::apps::v1::DaemonSet;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams};
use manifests::platform::Platform;

use super::super::{observe, plan};
use super::machine_configs::{self, Error};
use crate::context::Context;
use crate::node_groups::Pool;

/// Deletes the objects that the resource owns and that belong to none of these pools. What fails is only logged: the next reconciliation
/// tries again.
pub(crate) async fn collect(cr: &NumaResourcesOperator, pools: &[Pool], context: &Context) {
    if context.installation.platform == Platform::OpenShift
        && let Err(error) = delete_machine_configs(cr, pools, context).await
    {
        tracing::warn!(error = %daemon::log::chain(&error), "Machine configs of dropped pools not deleted");
    }
    delete_daemon_sets(cr, pools, context).await;
}

async fn delete_machine_configs(
    cr: &NumaResourcesOperator,
    pools: &[Pool],
    context: &Context,
) -> Result<(), Error> {
    let expected = plan::machine_configs::expected(cr, pools);
    let api: Api<MachineConfig> = Api::all(context.client.clone());
    let owned = observe::owned(&api, cr).await;
    let owned = owned.map_err(|error| Error::Delete("*".into(), error.into()))?;
    for name in owned.iter().filter(|name| !expected.contains(*name)) {
        machine_configs::remove(name, context).await?;
    }
    Ok(())
}

async fn delete_daemon_sets(cr: &NumaResourcesOperator, pools: &[Pool], context: &Context) {
    let expected: BTreeSet<String> = pools
        .iter()
        .map(|pool| names::rte_daemon_set(&cr.name_any(), &pool.name))
        .collect();
    let namespace = &context.installation.namespace;
    let api: Api<DaemonSet> = Api::namespaced(context.client.clone(), namespace);
    let owned = match observe::owned(&api, cr).await {
        Ok(owned) => owned,
        Err(error) => {
            tracing::warn!(error = %daemon::log::chain(&Cause::from(error)), "DaemonSets cannot be listed");
            return;
        }
    };
    for name in owned.iter().filter(|name| !expected.contains(*name)) {
        match api.delete(name, &DeleteParams::default()).await {
            Ok(_) => tracing::info!(daemonset = %name, "DaemonSet of a dropped pool deleted"),
            Err(error) => {
                tracing::warn!(daemonset = %name, error = %daemon::log::chain(&Cause::from(error)), "DaemonSet not deleted");
            }
        }
    }
}
