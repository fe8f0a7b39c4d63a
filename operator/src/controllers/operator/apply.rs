//! Writes what the plan wants: the NRT definition and the exporters' objects. [`machine_configs`] has the objects of OpenShift, [`garbage`]
//! the objects that are no longer wanted.

use api::names;
use api::operator::v1::NumaResourcesOperator;
use apply::{Cause, ready};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt as _;
use kube::api::Api;
use manifests::to_value;
use serde_json::Value;

use crate::context::Context;
use crate::controllers::kubelet_config;
use crate::node_groups::Pool;
use crate::report::conditions::Outcome;

pub(super) mod garbage;
pub(super) mod machine_configs;

/// A DaemonSet that was applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AppliedDaemonSet {
    pub(super) name: String,
    pub(super) ready: bool,
}

/// Applies the NRT definition. Nothing owns it: it outlives the resource (operator.md 4.3).
pub(super) async fn definition(context: &Context) -> Result<(), Outcome> {
    let definition = to_value(&api::crd::node_resource_topology());
    let applied = context.applier.apply(&definition).await;
    applied.map(drop).map_err(|error| {
        tracing::error!(error = %daemon::log::chain(&error), "FailedAPISync");
        Outcome::failed(&error)
    })
}

/// Returns the ConfigMap of each pool, if there is one. Creates missing ones first if possible, because pods that start without it would
/// need a rollout right away.
pub(super) async fn exporter_configs(
    cr: &NumaResourcesOperator,
    pools: &[Pool],
    context: &Context,
) -> Vec<Option<ConfigMap>> {
    let mut configs = Vec::with_capacity(pools.len());
    for pool in pools {
        configs.push(exporter_config(cr, pool, context).await);
    }
    configs
}

async fn exporter_config(
    cr: &NumaResourcesOperator,
    pool: &Pool,
    context: &Context,
) -> Option<ConfigMap> {
    let namespace = &context.installation.namespace;
    let maps: Api<ConfigMap> = Api::namespaced(context.client.clone(), namespace);
    let name = names::rte_daemon_set(&cr.name_any(), &pool.name);
    let mut found = maps.get_opt(&name).await;
    if matches!(found, Ok(None)) {
        match kubelet_config::sync_pool(cr, pool, context).await {
            Ok(true) => found = maps.get_opt(&name).await,
            Ok(false) => {}
            Err(error) => {
                tracing::warn!(pool = %pool.name, error = %daemon::log::chain(&error), "Kubelet settings are not known yet");
            }
        }
    }
    match found {
        Ok(found) => found,
        Err(error) => {
            tracing::warn!(pool = %pool.name, error = %daemon::log::chain(&Cause::from(error)), "Exporter configuration cannot be read");
            None
        }
    }
}

/// Applies the exporters' objects in order. Returns the DaemonSets among them.
pub(super) async fn exporters(
    objects: &[Value],
    context: &Context,
) -> Result<Vec<AppliedDaemonSet>, Outcome> {
    let mut daemon_sets = Vec::new();
    for object in objects {
        let applied = context.applier.apply(object).await.map_err(|error| {
            tracing::error!(error = %daemon::log::chain(&error), "FailedRTESync");
            Outcome::failed(&error)
        })?;
        if object["kind"] == "DaemonSet" {
            let name = applied.object.name_any();
            let live = applied.object.try_parse::<DaemonSet>();
            let ready = live.is_ok_and(|live| ready::daemon_set(&live));
            daemon_sets.push(AppliedDaemonSet { name, ready });
        }
    }
    Ok(daemon_sets)
}
