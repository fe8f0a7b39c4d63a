//! `NUMAResourcesScheduler`: the secondary scheduler and its configuration (operator.md 5).
//!
//! A reconciliation consists of steps of four kinds:
//! - [`observe`] reads from the cluster;
//! - [`plan`] decides what is wanted and what is wrong (pure);
//! - [`apply`] writes to the cluster;
//! - [`status`] collects what the resource's status and conditions will say (pure).
//!
//! [`sync`] has their order.

use std::sync::Arc;

use api::names;
use api::scheduler::KIND;
use api::scheduler::v1::NumaResourcesScheduler;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, ServiceAccount};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::api::Api;
use kube::runtime::controller::{Action, Controller};
use kube::runtime::watcher::Config;
use tokio_util::sync::CancellationToken;

use self::status::NewStatus;
use super::{Admission, Error, current, next, run_controller, triggers};
use crate::context::Context;
use crate::report::conditions::Outcome;
use crate::report::{events, patch};

pub(super) use self::apply::remove_legacy_binding;

mod apply;
mod observe;
mod plan;
mod status;

const NAME: &str = "numaresourcesscheduler";

pub(super) async fn run(context: Arc<Context>, stop: &CancellationToken) {
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

async fn reconcile(
    seen: Arc<NumaResourcesScheduler>,
    context: Arc<Context>,
) -> Result<Action, Error> {
    let api: Api<NumaResourcesScheduler> = Api::all(context.client.clone());
    let name = seen.name_any();
    let Some(cr) = current(&api, &name).await? else {
        return Ok(Action::await_change());
    };
    let mut new_status = NewStatus::of(&cr);
    let images = &context.installation.images;
    let running = if plan::asks_for_an_unknown_image(&cr, images) {
        observe::deployment(&context).await?
    } else {
        None
    };
    let outcome = match plan::admission(&cr, running.as_ref(), images) {
        Admission::Paused => {
            tracing::info!("Pause reconciliation enabled");
            return Ok(Action::await_change());
        }
        Admission::Refused(outcome) => outcome,
        Admission::Granted => {
            sync(&cr, &context, &mut new_status)
                .await
                .unwrap_or_else(|message| {
                    tracing::error!(error = %message, "FailedSchedulerSync");
                    Outcome::Failed { message }
                })
        }
    };
    events::publish_transition(NAME, &cr, new_status.conditions(), &outcome, &context).await;
    let new_status = new_status.after(&outcome, Timestamp::now());
    patch::write(&api, &name, cr.status.as_ref(), &new_status)
        .await
        .map_err(|error| Error::Status("numaresourcesscheduler", error))?;
    next(&outcome)
}

/// Reconciles the cluster with an admitted resource.
async fn sync(
    cr: &NumaResourcesScheduler,
    context: &Context,
    new_status: &mut NewStatus,
) -> Result<Outcome, String> {
    let informer = plan::informer(&cr.spec, context.installation.lists_active_pods);
    let period = plan::resync_period(&cr.spec)?;
    let nodes = observe::candidates(context).await?;
    let objects = plan::objects(cr, informer, period, nodes, &context.installation)?;
    let available = apply::objects(&objects, context).await?;
    new_status.informer(informer);
    let namespace = &context.installation.namespace;
    Ok(new_status.scheduler(namespace, plan::profile(&cr.spec), period, available))
}
