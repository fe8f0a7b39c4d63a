//! Writes of the collector. An object that is gone needs none.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt as _;
use kube::api::{
    Api, DeleteParams, DynamicObject, Patch, PatchParams, Preconditions, PropagationPolicy,
};
use serde_json::{Value, json};

use crate::controllers::{MANAGER, objects};

/// Deletes the object with this UID, if it still has the given resource version.
pub(super) async fn delete(
    api: &Api<DynamicObject>,
    name: &str,
    uid: &str,
    version: Option<String>,
    policy: PropagationPolicy,
) -> Result<(), kube::Error> {
    let params = DeleteParams {
        propagation_policy: Some(policy),
        preconditions: Some(Preconditions {
            uid: Some(uid.to_owned()),
            resource_version: version,
        }),
        ..DeleteParams::default()
    };
    match api.delete(name, &params).await {
        Err(error) if objects::code(&error) != 404 => Err(error),
        _ => Ok(()),
    }
}

/// Removes owners from an object.
pub(super) async fn drop_owners(
    api: &Api<DynamicObject>,
    latest: &DynamicObject,
    gone: &[String],
) -> Result<(), kube::Error> {
    let mut owners = latest.owner_references().to_vec();
    owners.retain(|owner| !gone.contains(&owner.uid));
    write_owners(api, latest, &owners).await
}

/// Replaces the owners of an object.
pub(super) async fn write_owners(
    api: &Api<DynamicObject>,
    latest: &DynamicObject,
    owners: &[OwnerReference],
) -> Result<(), kube::Error> {
    let owners = if owners.is_empty() {
        Value::Null
    } else {
        json!(owners)
    };
    patch(api, latest, json!({"ownerReferences": owners})).await
}

/// Removes a finalizer from an object.
pub(super) async fn remove_finalizer(
    api: &Api<DynamicObject>,
    latest: &DynamicObject,
    finalizer: &str,
) -> Result<(), kube::Error> {
    if !latest.finalizers().iter().any(|held| held == finalizer) {
        return Ok(());
    }
    let rest: Vec<&String> = latest
        .finalizers()
        .iter()
        .filter(|held| *held != finalizer)
        .collect();
    patch(api, latest, json!({"finalizers": rest})).await
}

async fn patch(
    api: &Api<DynamicObject>,
    latest: &DynamicObject,
    mut metadata: Value,
) -> Result<(), kube::Error> {
    metadata["uid"] = json!(latest.metadata.uid);
    metadata["resourceVersion"] = json!(latest.metadata.resource_version);
    let params = PatchParams {
        field_manager: Some(MANAGER.to_owned()),
        ..PatchParams::default()
    };
    let patch = Patch::Merge(json!({"metadata": metadata}));
    match api.patch(&latest.name_any(), &params, &patch).await {
        Err(error) if objects::code(&error) != 404 => Err(error),
        _ => Ok(()),
    }
}
