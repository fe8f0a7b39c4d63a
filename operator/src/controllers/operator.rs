//! `NUMAResourcesOperator`: the NRT definition and an exporter DaemonSet for each pool (operator.md 4).
//!
//! A reconciliation consists of steps of four kinds:
//! - [`observe`] reads from the cluster;
//! - [`plan`] decides what is wanted and what is wrong (pure);
//! - [`apply`] writes to the cluster;
//! - [`status`] collects what the resource's status and conditions will say (pure).
//!
//! They come in turns, because the first step that does not succeed ends the reconciliation: nothing later is read or written
//! (operator.md 4.2, point 9). [`sync`] has their order.

use std::sync::Arc;

use api::openshift::machine_config::MachineConfig;
use api::operator::KIND;
use api::operator::v1::NumaResourcesOperator;
use api::{labels, names, nrt};
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{ConfigMap, Service, ServiceAccount};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::api::Api;
use kube::core::PartialObjectMeta;
use kube::runtime::controller::{Action, Controller};
use kube::runtime::watcher::Config;
use manifests::platform::Platform;
use tokio_util::sync::CancellationToken;

use self::status::NewStatus;
use super::{Admission, Error, current, next, run_controller, triggers};
use crate::context::Context;
use crate::node_groups::Pool;
use crate::report::conditions::Outcome;
use crate::report::{events, patch};

mod apply;
mod observe;
mod plan;
mod status;

const NAME: &str = "numaresourcesoperator";

pub(super) async fn run(context: Arc<Context>, stop: &CancellationToken) {
    let client = &context.client;
    let namespace = &context.installation.namespace;
    let platform = context.installation.platform;
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
        Api::<PartialObjectMeta<ConfigMap>>::namespaced(client.clone(), namespace),
        Config::default().labels(labels::OPERATOR_NAME),
    ));
    if context.installation.has_admission_policies {
        let policy = names::RTE_OWN_NODE_POLICY;
        controller = controller
            .reconcile_all_on(triggers::owned_named::<ValidatingAdmissionPolicy>(
                &context, policy, KIND,
            ))
            .reconcile_all_on(triggers::owned_named::<ValidatingAdmissionPolicyBinding>(
                &context, policy, KIND,
            ));
    }
    if platform == Platform::Kubernetes {
        controller = controller.reconcile_all_on(triggers::node_labels(client));
    }
    if platform == Platform::OpenShift {
        controller = controller
            .reconcile_all_on(triggers::machine_config_pools(client))
            .reconcile_all_on(triggers::owned(
                Api::<PartialObjectMeta<MachineConfig>>::all(client.clone()),
                Config::default(),
                KIND,
            ));
    }
    if platform.is_openshift() {
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
    let mut new_status = NewStatus::of(&cr);
    let outcome = match plan::admission(&cr, &context.installation.images) {
        Admission::Paused => {
            tracing::info!("Pause reconciliation enabled");
            return Ok(Action::await_change());
        }
        Admission::Refused(outcome) => outcome,
        Admission::Granted => sync(&cr, &context, &mut new_status)
            .await
            .unwrap_or_else(|ended| ended),
    };
    events::publish_transition(NAME, &cr, new_status.conditions(), &outcome, &context).await;
    let new_status = new_status.after(&outcome, Timestamp::now());
    patch::write(&api, &name, cr.status.as_ref(), &new_status)
        .await
        .map_err(|error| Error::Status("numaresources-operator", error))?;
    next(&outcome)
}

/// Reconciles the cluster with an admitted resource. The error is the outcome of a step that ends the reconciliation early.
async fn sync(
    cr: &NumaResourcesOperator,
    context: &Context,
    new_status: &mut NewStatus,
) -> Result<Outcome, Outcome> {
    let selected = observe::pools(cr, context).await?;
    if plan::installs_definition(cr) {
        apply::definition(context).await?;
    } else {
        tracing::debug!("Skipped NRT CRD install: caused by annotation");
    }
    if context.installation.platform == Platform::OpenShift {
        sync_machine_configs(cr, &selected.pools, context, new_status).await?;
    }
    let outcome = sync_exporters(cr, &selected.pools, context, new_status).await?;
    Ok(plan::verdict(cr, selected.multiple_pools_message, outcome))
}

/// Installs the legacy SELinux policy where it is wanted, and continues only when all machines have what they should have
/// (operator.md 4.4).
async fn sync_machine_configs(
    cr: &NumaResourcesOperator,
    pools: &[Pool],
    context: &Context,
    new_status: &mut NewStatus,
) -> Result<(), Outcome> {
    let steps = plan::machine_configs::steps(cr, pools, &context.installation.version);
    if let Err(error) = apply::machine_configs::take(&steps, context).await {
        tracing::error!(error = %daemon::log::chain(&error), "failed to sync machine configs");
        return Err(Outcome::failed(&error));
    }
    let forwards_conditions = context.installation.forwards_pool_conditions;
    let progress = plan::machine_configs::progress(cr, pools, forwards_conditions);
    new_status.machine_config_pools(&progress.paused, progress.pools);
    progress.updating.map_or(Ok(()), Err)
}

/// Applies the exporters' objects and checks which DaemonSets are ready (operator.md 4.5).
async fn sync_exporters(
    cr: &NumaResourcesOperator,
    pools: &[Pool],
    context: &Context,
    new_status: &mut NewStatus,
) -> Result<Outcome, Outcome> {
    plan::check_selectors(pools).map_err(|message| Outcome::Failed { message })?;
    apply::garbage::collect(cr, pools, context).await;
    let configs = apply::exporter_configs(cr, pools, context).await;
    let wanted = plan::exporters::exporters(cr, pools, &configs, &context.installation);
    let daemon_sets = apply::exporters(&wanted.objects, context).await?;
    Ok(new_status.exporters(&context.installation.namespace, &daemon_sets, wanted))
}
