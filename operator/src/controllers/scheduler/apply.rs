//! Writes the scheduler's objects.

use api::names;
use apply::{Cause, ready};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::api::{Api, DeleteParams};
use serde_json::Value;

use crate::context::Context;

/// Deletes the binding of the scheduler's account that old releases created under another name.
pub(in crate::controllers) async fn remove_legacy_binding(context: &Context) {
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

/// Applies the objects in order. Returns whether the Deployment among them is available.
pub(super) async fn objects(objects: &[Value], context: &Context) -> Result<bool, String> {
    let mut available = false;
    for object in objects {
        let applied = context.applier.apply(object).await;
        let applied = applied.map_err(|error| daemon::log::chain(&error))?;
        if object["kind"] == "Deployment" {
            available = applied
                .object
                .try_parse::<Deployment>()
                .is_ok_and(|live| ready::deployment(&live));
        }
    }
    Ok(available)
}
