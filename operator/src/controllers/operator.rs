//! `NUMAResourcesOperator`: the NRT definition and an exporter DaemonSet for each pool (operator.md 4).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use api::openshift::machine_config::{self as mco, MachineConfig};
use api::operator::v1::{NodeGroupStatus, NumaResourcesOperator, NumaResourcesOperatorStatus};
use api::operator::{KIND, NamespacedName, ObjectReference};
use api::{annotations, conditions as condition, labels, names, nrt};
use apply::{Cause, ready};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{ConfigMap, Service, ServiceAccount};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, DeleteParams, ListParams};
use kube::core::PartialObjectMeta;
use kube::runtime::controller::{Action, Controller};
use kube::runtime::watcher::Config;
use kube::{Resource, ResourceExt};
use manifests::platform::Platform;
use manifests::rte::{Image, Options, Pool as RtePool, Set};
use manifests::{hash, to_value};
use tokio_util::sync::CancellationToken;

use super::{Error, current, is_annotated, kubelet_config, next, pools, run_controller, triggers};
use crate::conditions::{Extra, Outcome, updated};
use crate::context::Context;
use crate::node_groups::Pool;
use crate::{events, status};

mod machine_configs;

const NAME: &str = "numaresourcesoperator";
/// When to check DaemonSets that are not ready again if no event arrives earlier.
const NOT_READY_REQUEUE: Duration = Duration::from_secs(5);

pub(super) async fn run(context: Arc<Context>, stop: &CancellationToken) {
    let client = &context.client;
    let definition = format!("metadata.name={}.{}", nrt::PLURAL, nrt::GROUP);
    let mut controller = Controller::new(
        Api::<NumaResourcesOperator>::all(client.clone()),
        Config::default(),
    )
    .reconcile_all_on(triggers::owned_here::<DaemonSet>(&context, KIND))
    .reconcile_all_on(triggers::owned_here::<ServiceAccount>(&context, KIND))
    .reconcile_all_on(triggers::owned_here::<Role>(&context, KIND))
    .reconcile_all_on(triggers::owned_here::<RoleBinding>(&context, KIND))
    .reconcile_all_on(triggers::owned_here::<NetworkPolicy>(&context, KIND))
    .reconcile_all_on(triggers::owned_here::<Service>(&context, KIND))
    .reconcile_all_on(triggers::owned_named::<ClusterRole>(
        &context,
        names::RTE,
        KIND,
    ))
    .reconcile_all_on(triggers::owned_named::<ClusterRoleBinding>(
        &context,
        names::RTE,
        KIND,
    ))
    .reconcile_all_on(triggers::any_owner(
        Api::<PartialObjectMeta<CustomResourceDefinition>>::all(client.clone()),
        Config::default().fields(&definition),
    ))
    .reconcile_all_on(triggers::any_owner(
        Api::<PartialObjectMeta<ConfigMap>>::namespaced(client.clone(), &context.namespace),
        Config::default().labels(labels::OPERATOR_NAME),
    ));
    if context.platform == Platform::Kubernetes {
        controller = controller.reconcile_all_on(triggers::node_labels(client));
    }
    if context.platform == Platform::OpenShift {
        controller = controller
            .reconcile_all_on(triggers::machine_config_pools(client))
            .reconcile_all_on(triggers::owned(
                Api::<PartialObjectMeta<MachineConfig>>::all(client.clone()),
                Config::default(),
                KIND,
            ));
    }
    if context.platform.is_openshift() {
        controller = controller.reconcile_all_on(triggers::constraints(client));
    }
    run_controller(NAME, controller, Arc::clone(&context), stop, reconcile).await;
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
    let mut new_status = cr.status.clone().unwrap_or_default();
    let mut paused = Extra::unchanged(
        condition::MACHINE_CONFIG_POOL_PAUSED,
        &new_status.conditions,
    );
    let outcome = if name == names::OPERATOR_CR {
        if is_annotated(&cr, annotations::PAUSE_RECONCILIATION, annotations::ENABLED) {
            tracing::info!("Pause reconciliation enabled");
            return Ok(Action::await_change());
        }
        sync(&cr, &context, &mut new_status, &mut paused).await
    } else {
        Outcome::Invalid {
            reason: condition::REASON_INCORRECT_OPERATOR_NAME,
            message: format!("incorrect NUMAResourcesOperator resource name: {name}"),
        }
    };
    events::publish_transition(NAME, &cr, &new_status.conditions, &outcome, &context).await;
    new_status.conditions = updated(
        &new_status.conditions,
        &outcome,
        &[paused],
        cr.metadata.generation,
        Timestamp::now(),
    );
    status::write(&api, &name, cr.status.as_ref(), &new_status)
        .await
        .map_err(|error| Error::Status("numaresources-operator", error))?;
    next(&outcome)
}

/// Checks the resource, then reconciles the cluster with it.
async fn sync(
    cr: &NumaResourcesOperator,
    context: &Context,
    new_status: &mut NumaResourcesOperatorStatus,
    paused: &mut Extra,
) -> Outcome {
    let image = cr.spec.exporter_image.as_str();
    if !image.is_empty() && !context.images.exporter_image_allowed {
        let message = format!("custom operand image is not supported: {image}");
        return Outcome::Invalid {
            reason: condition::REASON_CUSTOM_USER_IMAGE,
            message,
        };
    }
    let invalid = |message| Outcome::Invalid {
        reason: condition::REASON_NODE_GROUPS,
        message,
    };
    let selected = match pools::find(cr, context).await {
        Ok(selected) => selected,
        Err(pools::Error::Invalid(message)) => return invalid(message),
        Err(pools::Error::Read(error)) => return Outcome::failed(&error),
    };
    if is_annotated(cr, annotations::NRT_API_DEFINITION, annotations::CLUSTER) {
        tracing::debug!("Skipped NRT CRD install: caused by annotation");
    } else if let Err(error) = context
        .applier
        .apply(&to_value(&api::crd::node_resource_topology()))
        .await
    {
        tracing::error!(error = %daemon::log::chain(&error), "FailedAPISync");
        return Outcome::failed(&error);
    }
    if context.platform == Platform::OpenShift {
        match machine_configs::sync(cr, &selected.pools, context, new_status).await {
            Ok(pools) => {
                *paused = paused_pools(&pools.paused);
                if let Some(outcome) = pools.outcome {
                    return outcome;
                }
            }
            Err(error) => {
                tracing::error!(error = %daemon::log::chain(&error), "failed to sync machine configs");
                return Outcome::failed(&error);
            }
        }
    }
    let outcome = sync_exporters(cr, &selected.pools, context, new_status).await;
    let outcome = outcome.unwrap_or_else(|outcome| outcome);
    let tolerated = is_annotated(
        cr,
        annotations::MULTIPLE_POOLS_PER_TREE,
        annotations::ENABLED,
    );
    match selected.multiple_pools_message {
        Some(message) if outcome == Outcome::Available && !tolerated => invalid(message),
        _ => outcome,
    }
}

/// Builds the condition that names the paused pools: nothing in them changes until somebody resumes them.
fn paused_pools(names: &BTreeSet<String>) -> Extra {
    let list: Vec<&str> = names.iter().map(String::as_str).collect();
    Extra {
        name: condition::MACHINE_CONFIG_POOL_PAUSED,
        status: if list.is_empty() { "False" } else { "True" }.into(),
        message: if list.is_empty() {
            String::new()
        } else {
            format!("detected paused MCPs: {}", list.join(", "))
        },
    }
}

/// Checks that every machine config pool has a node selector.
fn check_selectors(pools: &[Pool]) -> Result<(), String> {
    let mut mcps = pools
        .iter()
        .filter_map(|pool| pool.machine_config_pool.as_ref());
    match mcps.find(|mcp| mcp.spec.node_selector.is_none()) {
        Some(mcp) => Err(format!(
            "the machine config pool {:?} does not have node selector",
            mcp.name_any()
        )),
        None => Ok(()),
    }
}

/// Applies the exporters' objects and checks which DaemonSets are ready.
async fn sync_exporters(
    cr: &NumaResourcesOperator,
    pools: &[Pool],
    context: &Context,
    new_status: &mut NumaResourcesOperatorStatus,
) -> Result<Outcome, Outcome> {
    let failed = |error: apply::Error| {
        tracing::error!(error = %daemon::log::chain(&error), "FailedRTESync");
        Outcome::failed(&error)
    };
    check_selectors(pools).map_err(|message| Outcome::Failed { message })?;
    collect_garbage(cr, pools, context).await;
    let options = Options {
        namespace: context.namespace.clone(),
        platform: context.platform,
        image: exporter_image(cr, context),
        log_level: cr.spec.log_level,
        tls: context.tls.clone(),
        api_server_ports: context.api_server_ports.clone(),
    };
    let mut rte_pools = Vec::with_capacity(pools.len());
    let mut mixed = Vec::new();
    for pool in pools {
        let map = exporter_config(cr, pool, context).await;
        mixed.extend(map.as_ref().and_then(|map| mixed_pool_message(pool, map)));
        rte_pools.push(RtePool {
            name: names::rte_daemon_set(&cr.name_any(), &pool.name),
            nodes: pool.nodes.clone(),
            config: pool.config.clone(),
            config_hash: map.as_ref().map(hash::config_map).unwrap_or_default(),
            custom_selinux_policy: pool.custom_selinux_policy,
        });
    }
    let set = Set::new(&options, &rte_pools);
    let owner = apply::controller_reference(cr);
    let mut ready = Vec::new();
    let mut waiting = None;
    for mut object in set.objects() {
        if let Some(owner) = &owner {
            apply::set_owner(&mut object, owner);
        }
        let applied = context.applier.apply(&object).await.map_err(failed)?;
        if object["kind"] == "DaemonSet" {
            let name = NamespacedName {
                namespace: context.namespace.clone(),
                name: applied.object.name_any(),
            };
            let live = applied.object.try_parse::<DaemonSet>();
            if live.is_ok_and(|live| ready::daemon_set(&live)) {
                ready.push(name);
            } else {
                waiting.get_or_insert(name);
            }
        }
    }
    new_status.related_objects = related_objects(&context.namespace, &ready);
    new_status.daemonsets = ready;
    if let Some(name) = waiting {
        return Ok(Outcome::Progressing {
            message: format!("{name} is updating"),
            requeue_after: NOT_READY_REQUEUE,
        });
    }
    new_status.node_groups = pools
        .iter()
        .zip(&rte_pools)
        .map(|(pool, rte)| NodeGroupStatus {
            daemon_set: NamespacedName {
                namespace: context.namespace.clone(),
                name: rte.name.clone(),
            },
            config: pool.config.clone(),
            pool_name: pool.name.clone(),
        })
        .collect();
    if mixed.is_empty() {
        return Ok(Outcome::Available);
    }
    Ok(Outcome::Invalid {
        reason: condition::REASON_MIXED_POOL,
        message: mixed.join("\n"),
    })
}

/// Describes the nodes of a pool whose kubelets differ from the others. Exporters publish the settings of the majority for all nodes.
fn mixed_pool_message(pool: &Pool, map: &ConfigMap) -> Option<String> {
    let nodes = map.annotations().get(annotations::DIFFERING_KUBELETS)?;
    (!nodes.is_empty()).then(|| {
        format!(
            "kubelets of the pool {:?} have different settings: {nodes}",
            pool.name
        )
    })
}

fn exporter_image(cr: &NumaResourcesOperator, context: &Context) -> Image {
    if cr.spec.exporter_image.is_empty() {
        return context.image.clone();
    }
    Image {
        reference: cr.spec.exporter_image.clone(),
        pull_policy: None,
        run_as_root: false,
    }
}

/// Returns the pool's ConfigMap, if there is one. Creates it first if possible, because pods that start without it would need a rollout
/// right away.
async fn exporter_config(
    cr: &NumaResourcesOperator,
    pool: &Pool,
    context: &Context,
) -> Option<ConfigMap> {
    let maps: Api<ConfigMap> = Api::namespaced(context.client.clone(), &context.namespace);
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

/// Deletes the objects of pools that are no longer selected.
async fn collect_garbage(cr: &NumaResourcesOperator, pools: &[Pool], context: &Context) {
    if context.platform == Platform::OpenShift
        && let Err(error) = machine_configs::collect_garbage(cr, pools, context).await
    {
        tracing::warn!(error = %daemon::log::chain(&error), "Machine configs of dropped pools not deleted");
    }
    let expected: BTreeSet<String> = pools
        .iter()
        .map(|pool| names::rte_daemon_set(&cr.name_any(), &pool.name))
        .collect();
    let api: Api<DaemonSet> = Api::namespaced(context.client.clone(), &context.namespace);
    let found = match api.list_metadata(&ListParams::default()).await {
        Ok(found) => found,
        Err(error) => {
            tracing::warn!(error = %daemon::log::chain(&Cause::from(error)), "DaemonSets cannot be listed");
            return;
        }
    };
    let uid = cr.meta().uid.as_deref();
    for object in found.items {
        let owned = object
            .owner_references()
            .iter()
            .any(|owner| Some(owner.uid.as_str()) == uid);
        let name = object.name_any();
        if owned && !expected.contains(&name) {
            match api.delete(&name, &DeleteParams::default()).await {
                Ok(_) => tracing::info!(daemonset = %name, "DaemonSet of a dropped pool deleted"),
                Err(error) => {
                    tracing::warn!(daemonset = %name, error = %daemon::log::chain(&Cause::from(error)), "DaemonSet not deleted");
                }
            }
        }
    }
}

/// Returns the objects to look at when something is wrong (operator.md 4.7).
fn related_objects(namespace: &str, ready: &[NamespacedName]) -> Vec<ObjectReference> {
    let any = |group: &str, resource: &str| ObjectReference {
        group: group.into(),
        resource: resource.into(),
        ..ObjectReference::default()
    };
    let mut objects = vec![
        ObjectReference {
            name: namespace.into(),
            ..any("", "namespaces")
        },
        any(mco::GROUP, "kubeletconfigs"),
        any(mco::GROUP, "machineconfigs"),
        any(nrt::GROUP, nrt::PLURAL),
    ];
    objects.extend(ready.iter().map(|name| ObjectReference {
        namespace: name.namespace.clone(),
        name: name.name.clone(),
        ..any("apps", "daemonsets")
    }));
    objects
}
