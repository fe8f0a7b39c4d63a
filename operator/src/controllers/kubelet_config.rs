//! Passes the resource manager settings of each pool's kubelets to the exporters, in a ConfigMap (operator.md 7; ARCHITECTURE.md 9).
//!
//! The platform decides where the settings come from: the kubelets themselves ([`kubelets`]), or the objects that configure them
//! ([`objects`]). Every change reconciles all pools. So two objects for one pool always give the same result, and ConfigMaps that belong
//! to no pool are deleted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use api::openshift::machine_config::KubeletConfig;
use api::operator::v1::NumaResourcesOperator;
use api::{annotations, labels, names};
use apply::Cause;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams};
use kube::core::PartialObjectMeta;
use kube::runtime::controller::{Action, Controller};
use kube::runtime::watcher::{Config, watcher};
use kube::runtime::{WatchStreamExt, predicates, reflector};
use manifests::platform::Platform;
use manifests::rte::config_map::{KubeletSettings, config_map};
use manifests::to_value;
use tokio_util::sync::CancellationToken;

use super::{Error, current, pools, run_controller, triggers};
use crate::context::Context;
use crate::events;
use crate::node_groups::Pool;

mod kubelets;
mod objects;

/// Names of the controller in logs and metrics.
const NAME: &str = "kubeletconfig";
const HYPERSHIFT_NAME: &str = "configmap";
/// Interval between two reconciliations on plain Kubernetes: the restart of a kubelet does not reliably cause an event of its node.
const SYNC_INTERVAL: Duration = Duration::from_secs(30);

pub(super) async fn run(context: Arc<Context>, stop: &CancellationToken) {
    let client = &context.client;
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
        Api::namespaced(client.clone(), &context.namespace);
    let controller = Controller::for_stream(resources, reader).reconcile_all_on(
        triggers::any_owner(maps, Config::default().labels(labels::OPERATOR_NAME)),
    );
    let controller = match context.platform {
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
    let name = controller_name(context.platform);
    run_controller(name, controller, Arc::clone(&context), stop, reconcile).await;
}

fn controller_name(platform: Platform) -> &'static str {
    match platform {
        Platform::HyperShift => HYPERSHIFT_NAME,
        Platform::Kubernetes | Platform::OpenShift => NAME,
    }
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
    let controller = controller_name(context.platform);
    // an Event only for the first failure: the retries bring nothing new
    if let Err(error) = &result
        && !context.is_failing(controller, &name)
    {
        let message = daemon::log::chain(error).to_string();
        events::publish_kubelet_config_failure(controller, &cr, &message, &context).await;
    }
    result
}

/// Updates the ConfigMaps of all pools.
async fn sync_all(cr: &NumaResourcesOperator, context: &Context) -> Result<Action, Error> {
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
        // keep the ConfigMap of a kubelet that does not answer now: its settings are still the same
        if synced.map_err(|error| Error::of(&error))? || context.platform == Platform::Kubernetes {
            kept.insert(names::rte_daemon_set(&cr.name_any(), &pool.name));
        }
    }
    delete_others(cr, &kept, context).await;
    Ok(match context.platform {
        Platform::Kubernetes => Action::requeue(SYNC_INTERVAL),
        Platform::OpenShift | Platform::HyperShift => Action::await_change(),
    })
}

/// The ConfigMap of a pool could not be updated.
#[derive(Debug, thiserror::Error)]
pub(super) enum SyncError {
    #[error("failed to read the configuration of kubelets")]
    Read(#[source] Cause),
    #[error("failed to write the exporter configuration")]
    Write(#[source] apply::Error),
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

/// Sources of kubelet settings.
enum Sources {
    Kubelets(Vec<kubelets::Member>),
    KubeletConfigs(Vec<KubeletConfig>),
    ConfigMaps(Vec<ConfigMap>),
}

/// Settings of a pool's kubelets, and the owner of the ConfigMap.
struct PoolSettings {
    settings: KubeletSettings,
    owner: Option<OwnerReference>,
    /// Annotations of the ConfigMap, which the other controller reads.
    annotations: Option<BTreeMap<String, String>>,
}

impl Sources {
    async fn read(context: &Context) -> Result<Self, SyncError> {
        let client = &context.client;
        let sources = match context.platform {
            Platform::Kubernetes => kubelets::list_nodes(context).await.map(Self::Kubelets),
            Platform::OpenShift => objects::kubelet_configs(client)
                .await
                .map(Self::KubeletConfigs),
            Platform::HyperShift => objects::config_maps(client).await.map(Self::ConfigMaps),
        };
        sources.map_err(SyncError::Read)
    }

    async fn pool_settings(
        &self,
        cr: &NumaResourcesOperator,
        pool: &Pool,
        context: &Context,
    ) -> Option<PoolSettings> {
        match self {
            Self::Kubelets(nodes) => {
                let answers = kubelets::ask_all(context, pool, nodes).await?;
                let differing = (annotations::DIFFERING_KUBELETS.into(), answers.differing);
                Some(PoolSettings {
                    settings: answers.settings,
                    owner: apply::controller_reference(cr),
                    annotations: Some([differing].into()),
                })
            }
            Self::KubeletConfigs(all) => {
                let (config, settings) =
                    objects::for_machine_config_pool(pool.machine_config_pool.as_ref()?, all)?;
                Some(PoolSettings {
                    settings,
                    owner: apply::controller_reference(config),
                    annotations: None,
                })
            }
            // these ConfigMaps are in another namespace, so they cannot own objects in ours
            Self::ConfigMaps(all) => Some(PoolSettings {
                settings: objects::for_hosted_pool(&pool.name, all)?,
                owner: None,
                annotations: None,
            }),
        }
    }
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
    let settings = &found.settings;
    let mut map = config_map(
        &cr.name_any(),
        &pool.name,
        &context.namespace,
        settings,
        &cr.spec.pod_excludes,
    );
    map.metadata.annotations = found.annotations;
    let mut object = to_value(&map);
    if let Some(owner) = found.owner {
        apply::set_owner(&mut object, &owner);
    }
    let applied = context
        .applier
        .apply(&object)
        .await
        .map_err(SyncError::Write)?;
    if applied.outcome != apply::Outcome::Unchanged {
        tracing::info!(pool = %pool.name, policy = %settings.topology_manager_policy, scope = %settings.topology_manager_scope, "updated RTE config from kubelet config");
    }
    Ok(true)
}

/// Deletes the ConfigMaps of pools that are no longer selected or whose settings have no source any more.
async fn delete_others(cr: &NumaResourcesOperator, kept: &BTreeSet<String>, context: &Context) {
    let maps: Api<ConfigMap> = Api::namespaced(context.client.clone(), &context.namespace);
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
