//! Passes the resource manager settings of each pool's kubelets to the exporters, in a ConfigMap (operator.md 7; ARCHITECTURE.md 11).
//!
//! Every change reconciles all pools. So two objects for one pool always give the same result, and ConfigMaps that belong to no pool are
//! deleted. For each pool in turn:
//! - [`observe`] reads the settings: the platform decides whether from the kubelets themselves or from the objects that configure them;
//! - [`plan`] decides on the ConfigMap (pure);
//! - [`apply`] writes it.
//!
//! The controller has no status: a failure shows in an Event, kubelets of different settings show in the status that the controller of
//! `NUMAResourcesOperator` writes.

use std::collections::BTreeSet;
use std::sync::Arc;

use api::openshift::machine_config::KubeletConfig;
use api::operator::v1::NumaResourcesOperator;
use api::{labels, names};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use kube::api::Api;
use kube::core::PartialObjectMeta;
use kube::runtime::controller::{Action, Controller};
use kube::runtime::watcher::{Config, watcher};
use kube::runtime::{WatchStreamExt, predicates, reflector};
use manifests::platform::Platform;
use tokio_util::sync::CancellationToken;

use self::observe::Sources;
use super::{Error, current, pools, run_controller, triggers};
use crate::context::Context;
use crate::node_groups::Pool;
use crate::report::events;

mod apply;
mod observe;
mod plan;

pub(super) async fn run(context: Arc<Context>, stop: &CancellationToken) {
    let client = &context.client;
    let platform = context.installation.platform;
    let (reader, writer) = reflector::store();
    // status patches of the other controller must not cause requests to all kubelets
    let resources = watcher(
        Api::<NumaResourcesOperator>::all(client.clone()),
        Config::default(),
    )
    .default_backoff()
    .reflect(writer)
    .applied_objects()
    .predicate_filter(
        predicates::generation,
        kube::runtime::PredicateConfig::default(),
    );
    let maps: Api<PartialObjectMeta<ConfigMap>> =
        Api::namespaced(client.clone(), &context.installation.namespace);
    let controller = Controller::for_stream(resources, reader).reconcile_all_on(
        triggers::any_owner(maps, Config::default().labels(labels::OPERATOR_NAME)),
    );
    let controller = match platform {
        Platform::Kubernetes => controller.reconcile_all_on(triggers::kubelets(client)),
        Platform::OpenShift => controller
            .reconcile_all_on(triggers::any_owner(
                Api::<PartialObjectMeta<KubeletConfig>>::all(client.clone()),
                Config::default(),
            ))
            .reconcile_all_on(triggers::machine_config_pools(client)),
        Platform::HyperShift => controller.reconcile_all_on(triggers::any_owner(
            Api::<PartialObjectMeta<ConfigMap>>::namespaced(
                client.clone(),
                names::HYPERSHIFT_CONFIG_NAMESPACE,
            ),
            Config::default().labels(labels::HYPERSHIFT_KUBELET_CONFIG),
        )),
    };
    let name = plan::controller_name(platform);
    run_controller(name, controller, Arc::clone(&context), stop, reconcile).await;
}

async fn reconcile(
    seen: Arc<NumaResourcesOperator>,
    context: Arc<Context>,
) -> Result<Action, Error> {
    let api: Api<NumaResourcesOperator> = Api::all(context.client.clone());
    let name = seen.name_any();
    let Some(cr) = current(&api, &name).await? else {
        return Ok(Action::await_change());
    };
    if name != names::OPERATOR_CR {
        return Ok(Action::await_change());
    }
    let result = sync_all(&cr, &context).await;
    let controller = plan::controller_name(context.installation.platform);
    // an Event only for the first failure: the retries bring nothing new
    if let Err(error) = &result
        && !context.is_failing(controller, &name)
    {
        let message = daemon::log::chain(error);
        events::publish_kubelet_config_failure(controller, &cr, &message, &context).await;
    }
    result
}

/// Updates the ConfigMaps of all pools.
async fn sync_all(cr: &NumaResourcesOperator, context: &Context) -> Result<Action, Error> {
    let platform = context.installation.platform;
    let pools = match pools::find(cr, context).await {
        Ok(selected) => selected.pools,
        // the other controller reports what is wrong with the resource
        Err(pools::Error::Invalid(_)) => return Ok(Action::await_change()),
        Err(error) => return Err(Error::of(&error)),
    };
    let sources = Sources::read(context)
        .await
        .map_err(|error| Error::of(&error))?;
    let mut kept = BTreeSet::new();
    for pool in &pools {
        let synced = sync(cr, pool, &sources, context).await;
        let known = synced.map_err(|error| Error::of(&error))?;
        if plan::keeps(known, platform) {
            kept.insert(names::rte_daemon_set(&cr.name_any(), &pool.name));
        }
    }
    apply::delete_others(cr, &kept, context).await;
    Ok(plan::next(platform))
}

/// The ConfigMap of a pool could not be updated.
#[derive(Debug, thiserror::Error)]
pub(super) enum SyncError {
    #[error("failed to read the configuration of kubelets")]
    Read(#[source] ::apply::Cause),
    #[error("failed to write the exporter configuration")]
    Write(#[source] ::apply::Error),
}

/// Updates the ConfigMap of one pool. Returns `false` when the settings of its kubelets are unknown.
pub(super) async fn sync_pool(
    cr: &NumaResourcesOperator,
    pool: &Pool,
    context: &Context,
) -> Result<bool, SyncError> {
    let sources = Sources::read(context).await?;
    sync(cr, pool, &sources, context).await
}

async fn sync(
    cr: &NumaResourcesOperator,
    pool: &Pool,
    sources: &Sources,
    context: &Context,
) -> Result<bool, SyncError> {
    let Some(found) = sources.pool_settings(cr, pool, context).await else {
        tracing::debug!(pool = %pool.name, "No source for the settings of the kubelets");
        return Ok(false);
    };
    let map = plan::config_map(cr, pool, &found, &context.installation.namespace);
    apply::config_map(pool, &found.settings, &map, context).await?;
    Ok(true)
}
