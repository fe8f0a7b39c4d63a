//! `NUMAResourcesScheduler`: the secondary scheduler and its configuration (operator.md 5).

use std::sync::Arc;
use std::time::Duration;

use api::operator::{NamespacedName, ObjectReference};
use api::scheduler::KIND;
use api::scheduler::v1::{
    CacheResyncDebugMode, CacheResyncDetectionMode, DEFAULT_CACHE_RESYNC_PERIOD,
    NumaResourcesScheduler, NumaResourcesSchedulerSpec, NumaResourcesSchedulerStatus,
    PreemptionMode, SchedulerInformerMode,
};
use api::{annotations, conditions as condition, labels, names};
use apply::{Cause, ready};
use goflags::GoDuration;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Node, ServiceAccount};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::watcher::Config;
use manifests::platform::Platform;
use manifests::scheduler::config::Settings;
use manifests::scheduler::{Options, Set};
use tokio_util::sync::CancellationToken;

use super::{Error, current, is_annotated, next, run_controller, triggers};
use crate::conditions::{Extra, Outcome, updated};
use crate::context::Context;
use crate::{events, images, status};

const NAME: &str = "numaresourcesscheduler";
/// When to check a Deployment that is not available again if no event arrives earlier.
const NOT_READY_REQUEUE: Duration = Duration::from_secs(5);
/// Number of nodes from which three schedulers run instead of one.
const MIN_NODES_FOR_HA: usize = 3;

pub(super) async fn run(context: Arc<Context>, stop: &CancellationToken) {
    remove_legacy_binding(&context).await;
    let client = &context.client;
    let controller = Controller::new(
        Api::<NumaResourcesScheduler>::all(client.clone()),
        Config::default(),
    )
    .reconcile_all_on(triggers::owned_here::<Deployment>(&context, KIND))
    .reconcile_all_on(triggers::owned_here::<ConfigMap>(&context, KIND))
    .reconcile_all_on(triggers::owned_here::<ServiceAccount>(&context, KIND))
    .reconcile_all_on(triggers::owned_here::<Role>(&context, KIND))
    .reconcile_all_on(triggers::owned_here::<RoleBinding>(&context, KIND))
    .reconcile_all_on(triggers::owned_here::<NetworkPolicy>(&context, KIND))
    .reconcile_all_on(triggers::owned_named::<ClusterRole>(
        &context,
        names::SCHEDULER_CLUSTER_ROLE,
        KIND,
    ))
    .reconcile_all_on(triggers::owned_named::<ClusterRoleBinding>(
        &context,
        names::SCHEDULER_CLUSTER_ROLE,
        KIND,
    ))
    .reconcile_all_on(triggers::node_labels(client));
    run_controller(NAME, controller, Arc::clone(&context), stop, reconcile).await;
}

/// Deletes the binding of the scheduler's account that old releases created under another name.
async fn remove_legacy_binding(context: &Context) {
    let bindings: Api<ClusterRoleBinding> = Api::all(context.client.clone());
    match bindings
        .delete(names::SCHEDULER, &DeleteParams::default())
        .await
    {
        Ok(_) => tracing::info!(
            clusterrolebinding = names::SCHEDULER,
            "Legacy binding deleted"
        ),
        Err(kube::Error::Api(status)) if status.code == 404 => {}
        Err(error) => {
            tracing::warn!(error = %daemon::log::chain(&Cause::from(error)), "Legacy binding not deleted");
        }
    }
}

async fn reconcile(
    seen: Arc<NumaResourcesScheduler>,
    context: Arc<Context>,
) -> Result<Action, Error> {
    let api: Api<NumaResourcesScheduler> = Api::all(context.client.clone());
    let name = seen.name_any();
    let Some(cr) = current(&api, &name).await? else {
        return Ok(Action::await_change());
    };
    let mut new_status = cr.status.clone().unwrap_or_default();
    let informer = effective_informer(&cr.spec, context.lists_active_pods);
    let mut dedicated = "Unknown";
    let outcome = if name == names::SCHEDULER_CR {
        if is_annotated(&cr, annotations::PAUSE_RECONCILIATION, annotations::ENABLED) {
            tracing::info!("Pause reconciliation enabled");
            return Ok(Action::await_change());
        }
        if let Err(error) = images::validate_scheduler(&context.images, &cr.spec.scheduler_image) {
            Outcome::Invalid {
                reason: condition::REASON_INVALID_SCHEDULER_IMAGE,
                message: error.to_string(),
            }
        } else {
            dedicated = if informer == SchedulerInformerMode::Dedicated {
                "True"
            } else {
                "False"
            };
            sync(&cr, informer, &context, &mut new_status)
                .await
                .unwrap_or_else(|message| {
                    tracing::error!(error = %message, "FailedSchedulerSync");
                    Outcome::Failed { message }
                })
        }
    } else {
        Outcome::Invalid {
            reason: condition::REASON_INCORRECT_SCHEDULER_NAME,
            message: format!("incorrect NUMAResourcesScheduler resource name: {name}"),
        }
    };
    let extra = Extra {
        name: condition::DEDICATED_INFORMER_ACTIVE,
        status: dedicated.into(),
        message: String::new(),
    };
    events::publish_transition(NAME, &cr, &new_status.conditions, &outcome, &context).await;
    new_status.conditions = updated(
        &new_status.conditions,
        &outcome,
        &[extra],
        cr.metadata.generation,
        Timestamp::now(),
    );
    status::write(&api, &name, cr.status.as_ref(), &new_status)
        .await
        .map_err(|error| Error::Status("numaresourcesscheduler", error))?;
    next(&outcome)
}

/// Applies the scheduler's objects and checks whether its Deployment is available.
async fn sync(
    cr: &NumaResourcesScheduler,
    informer: SchedulerInformerMode,
    context: &Context,
    new_status: &mut NumaResourcesSchedulerStatus,
) -> Result<Outcome, String> {
    let text = |error: &dyn std::error::Error| daemon::log::chain(error).to_string();
    let period = resync_period(&cr.spec)?;
    let nodes: Api<Node> = Api::all(context.client.clone());
    let role = role(context.platform);
    let selector = format!("{}=", labels::node_role(role));
    let mut candidates = nodes
        .list_metadata(&ListParams::default().labels(&selector))
        .await
        .map_err(|error| text(&Cause::from(error)))?
        .items
        .len();
    if candidates == 0 && context.platform == Platform::Kubernetes {
        // the control plane runs elsewhere: the scheduler may run on any node
        candidates = nodes
            .list_metadata(&ListParams::default())
            .await
            .map_err(|error| text(&Cause::from(error)))?
            .items
            .len();
    }
    let replicas = replicas(cr.spec.replicas, candidates, role, context.platform)?;
    let set = Set::new(&options(cr, informer, period, replicas, context))
        .map_err(|error| text(&error))?;
    let owner = apply::controller_reference(cr);
    let mut available = false;
    for mut object in set.objects() {
        if let Some(owner) = &owner {
            apply::set_owner(&mut object, owner);
        }
        let applied = context
            .applier
            .apply(&object)
            .await
            .map_err(|error| text(&error))?;
        if object["kind"] == "Deployment" {
            available = applied
                .object
                .try_parse::<Deployment>()
                .is_ok_and(|live| ready::deployment(&live));
        }
    }
    let deployment = NamespacedName {
        namespace: context.namespace.clone(),
        name: names::SCHEDULER.into(),
    };
    new_status.scheduler_name =
        Some(profile(&cr.spec).unwrap_or_else(|| names::SCHEDULER_PROFILE.into()));
    new_status.cache_resync_period =
        Some(GoDuration::from_seconds(period.rounded_seconds()).to_string());
    new_status.related_objects = related_objects(&deployment);
    new_status.deployment = Some(deployment);
    Ok(if available {
        Outcome::Available
    } else {
        Outcome::Progressing {
            message: String::new(),
            requeue_after: NOT_READY_REQUEUE,
        }
    })
}

fn options(
    cr: &NumaResourcesScheduler,
    informer: SchedulerInformerMode,
    period: GoDuration,
    replicas: i32,
    context: &Context,
) -> Options {
    let spec = &cr.spec;
    let strategy = spec.scoring_strategy.clone().unwrap_or_default();
    Options {
        namespace: context.namespace.clone(),
        image: spec.scheduler_image.clone(),
        platform: context.platform,
        replicas,
        log_level: spec.log_level,
        tls: context.tls.clone(),
        dump_cache: spec.cache_resync_debug != Some(CacheResyncDebugMode::Disabled),
        guaranteed: is_annotated(
            cr,
            annotations::SCHEDULER_QOS_REQUEST,
            annotations::GUARANTEED,
        ),
        api_server_ports: context.api_server_ports.clone(),
        config: Settings {
            namespace: context.namespace.clone(),
            profile: profile(spec),
            cache_resync_seconds: period.rounded_seconds(),
            detection: spec
                .cache_resync_detection
                .unwrap_or(CacheResyncDetectionMode::Relaxed),
            informer,
            scoring: strategy.strategy.unwrap_or_default(),
            resources: strategy.resources,
            preemption: spec.preemption_mode == Some(PreemptionMode::Enabled),
            leader_elect: replicas > 1,
        },
    }
}

fn profile(spec: &NumaResourcesSchedulerSpec) -> Option<String> {
    spec.scheduler_name.clone().filter(|name| !name.is_empty())
}

/// Returns the informer in effect. By default it is shared when the kubelets leave terminated pods out of their answers, and dedicated
/// otherwise (operator.md 5.4).
fn effective_informer(
    spec: &NumaResourcesSchedulerSpec,
    lists_active_pods: bool,
) -> SchedulerInformerMode {
    spec.scheduler_informer.unwrap_or(if lists_active_pods {
        SchedulerInformerMode::Shared
    } else {
        SchedulerInformerMode::Dedicated
    })
}

fn resync_period(spec: &NumaResourcesSchedulerSpec) -> Result<GoDuration, String> {
    let given = spec
        .cache_resync_period
        .as_deref()
        .unwrap_or(DEFAULT_CACHE_RESYNC_PERIOD);
    given
        .parse()
        .map_err(|error| format!("cacheResyncPeriod: {error}"))
}

/// Returns the role of the nodes that determine the number of schedulers.
fn role(platform: Platform) -> &'static str {
    if platform == Platform::HyperShift {
        "worker"
    } else {
        "control-plane"
    }
}

/// Returns the number of pods (operator.md 5.5).
fn replicas(
    given: Option<i32>,
    nodes: usize,
    role: &str,
    platform: Platform,
) -> Result<i32, String> {
    let prefix = "failed to compute scheduler replicas: ";
    match given {
        Some(given) if i64::from(given) > i64::try_from(nodes).unwrap_or(i64::MAX) => Err(format!(
            "{prefix}explicitly set replicas count should not be greater than the number of the nodes with role {role}"
        )),
        Some(given) => Ok(given),
        None if nodes == 0 => Err(format!(
            "{prefix}{prefix}no {role} nodes found for platform {platform}"
        )),
        None if nodes < MIN_NODES_FOR_HA => Ok(1),
        None => Ok(3),
    }
}

/// Returns the objects to look at when something is wrong (operator.md 4.7).
fn related_objects(deployment: &NamespacedName) -> Vec<ObjectReference> {
    vec![
        ObjectReference {
            resource: "namespaces".into(),
            name: deployment.namespace.clone(),
            ..ObjectReference::default()
        },
        ObjectReference {
            group: "apps".into(),
            resource: "deployments".into(),
            namespace: deployment.namespace.clone(),
            name: deployment.name.clone(),
        },
    ]
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::none_given_one_node(None, 1, Ok(1))]
    #[case::none_given_two_nodes(None, 2, Ok(1))]
    #[case::none_given_three_nodes(None, 3, Ok(3))]
    #[case::none_given_five_nodes(None, 5, Ok(3))]
    #[case::zero(Some(0), 1, Ok(0))]
    #[case::as_many_as_nodes(Some(3), 3, Ok(3))]
    #[case::too_many(
        Some(4),
        3,
        Err(
            "failed to compute scheduler replicas: explicitly set replicas count should not be greater than the number of the nodes with role control-plane"
        )
    )]
    #[case::no_nodes(
        None,
        0,
        Err(
            "failed to compute scheduler replicas: failed to compute scheduler replicas: no control-plane nodes found for platform Kubernetes"
        )
    )]
    fn replicas_follow_the_control_plane(
        #[case] given: Option<i32>,
        #[case] nodes: usize,
        #[case] expected: Result<i32, &str>,
    ) {
        assert_eq!(
            replicas(given, nodes, "control-plane", Platform::Kubernetes),
            expected.map_err(str::to_owned)
        );
    }

    #[test]
    fn period_defaults_and_is_checked() {
        let mut spec = NumaResourcesSchedulerSpec::default();
        assert_eq!(resync_period(&spec), Ok(GoDuration::from_seconds(5)));
        spec.cache_resync_period = Some("soon".into());
        assert_eq!(
            resync_period(&spec).unwrap_err(),
            "cacheResyncPeriod: invalid duration \"soon\""
        );
    }
}
