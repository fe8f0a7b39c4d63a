//! The ways to undo a change.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, Resource, ResourceExt};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use thiserror::Error;

use super::ObjectRef;
use crate::pace::Pace;

/// How long one undo may take.
const UNDO_DEADLINE: Duration = Duration::from_mins(1);
/// How long the deletion of a namespace's pods may take.
const NAMESPACE_DEADLINE: Duration = Duration::from_mins(2);

/// How to undo a change. Each may run twice, and may run when the change never took place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "undo", rename_all = "kebab-case")]
pub enum Undo {
    /// Delete an object and wait until it is gone.
    Delete {
        /// Which one.
        object: ObjectRef,
    },
    /// Delete a namespace and wait until its pods are gone; its other objects are deleted in the background.
    DeleteNamespace {
        /// Its name.
        name: String,
    },
    /// Nothing: the deletion of the namespace, which was recorded before, deletes the object.
    WithNamespace {
        /// The object.
        object: ObjectRef,
    },
    /// Merge a patch that restores the old values.
    Patch {
        /// Into which object.
        object: ObjectRef,
        /// JSON merge patch.
        patch: Value,
    },
    /// Create a deleted object again as it was, or restore a changed one. Objects that were deleted with it are left to their owners.
    Create {
        /// Which one.
        object: ObjectRef,
        /// Its old state.
        manifest: Value,
    },
    /// Remove a taint from a node, keeping the others.
    RemoveTaint {
        /// Name of the node.
        node: String,
        /// Key of the taint.
        key: String,
        /// Effect of the taint.
        effect: String,
    },
}

/// Why a change could not be undone.
#[derive(Debug, Error)]
pub enum Error {
    /// The API server refused.
    #[error("the API server refused: {0}")]
    Api(#[from] kube::Error),
    /// It took too long.
    #[error("{what} is still there after {after:?}")]
    Deadline {
        /// What should have been deleted.
        what: String,
        /// How long the deletion could take.
        after: Duration,
    },
}

impl Undo {
    /// Returns the undo that creates this object again, as it is now.
    pub fn recreate<K>(object: &K) -> Self
    where
        K: Resource<DynamicType = ()> + Serialize,
    {
        Self::Create {
            object: ObjectRef::of(object),
            manifest: json!(object),
        }
    }

    /// Returns whether there is anything to do.
    pub fn is_needed(&self) -> bool {
        !matches!(self, Self::WithNamespace { .. })
    }

    /// Returns whether this undo, run after that of a later change, restores everything that the other one restores. Then the other one would
    /// only bring back a state that the scenario has left, for a moment in which controllers act on it.
    pub fn covers(&self, later: &Self) -> bool {
        match (self, later) {
            (
                Self::Patch { object, patch },
                Self::Patch {
                    object: other,
                    patch: later,
                },
            ) => object == other && sets_all_of(patch, later),
            _ => false,
        }
    }

    /// Undoes the change.
    pub async fn run(&self, client: &Client) -> Result<(), Error> {
        match self {
            Self::Delete { object } => delete(client, object).await,
            Self::DeleteNamespace { name } => delete_namespace(client, name).await,
            Self::WithNamespace { .. } => Ok(()),
            Self::Patch { object, patch } => {
                let api = object.api(client);
                absent_is_fine(
                    api.patch(&object.name, &PatchParams::default(), &Patch::Merge(patch))
                        .await,
                )
            }
            Self::Create { object, manifest } => create(client, object, manifest).await,
            Self::RemoveTaint { node, key, effect } => {
                remove_taint(client, node, key, effect).await
            }
        }
    }
}

/// Returns whether a JSON merge patch sets every field that another one sets.
fn sets_all_of(patch: &Value, other: &Value) -> bool {
    match (patch, other) {
        (Value::Object(patch), Value::Object(other)) => other.iter().all(|(field, other)| {
            let own = patch.get(field);
            own.is_some_and(|own| sets_all_of(own, other))
        }),
        // a map of old values is merged into what is there, so it does not take away what the other one adds
        (Value::Object(_), _) | (_, Value::Object(_)) => false,
        _ => true,
    }
}

async fn delete(client: &Client, object: &ObjectRef) -> Result<(), Error> {
    let api = object.api(client);
    absent_is_fine(api.delete(&object.name, &DeleteParams::background()).await)?;
    wait_until_gone(&object.to_string(), UNDO_DEADLINE, async || {
        Ok(api.get_opt(&object.name).await?.is_none())
    })
    .await
}

/// Creates an object unless it exists as it was. Waits for one that is being deleted, and restores one that was created with other fields
/// meanwhile.
async fn create(client: &Client, object: &ObjectRef, manifest: &Value) -> Result<(), Error> {
    let api = object.api(client);
    let wanted = without_server_fields(manifest)?;
    let params = PostParams::default();
    wait_until_gone("the previous object", UNDO_DEADLINE, async || {
        let written = match api.get_opt(&object.name).await? {
            Some(present) if present.metadata.deletion_timestamp.is_some() => return Ok(false),
            Some(present) => match restored_object(&present, &wanted) {
                Some(changed) => api.replace(&object.name, &params, &changed).await,
                None => return Ok(true),
            },
            None => api.create(&params, &wanted).await,
        };
        match written {
            Ok(_) => Ok(true),
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
            Err(error) => Err(error.into()),
        }
    })
    .await
}

/// Returns the existing object with the fields that it had before, except those that the server sets at creation, or `None` if nothing
/// differs.
fn restored_object(present: &DynamicObject, wanted: &DynamicObject) -> Option<DynamicObject> {
    let mut changed = present.clone();
    for (field, value) in wanted.data.as_object().into_iter().flatten() {
        changed.data[field] = value.clone();
    }
    // a Service that was created again has another address
    for given in ["clusterIP", "clusterIPs"] {
        if let Some(value) = present.data["spec"].get(given) {
            changed.data["spec"][given] = value.clone();
        }
    }
    (changed != *present).then_some(changed)
}

/// Returns an object as it was, without the fields that the server sets.
fn without_server_fields(manifest: &Value) -> Result<DynamicObject, Error> {
    let mut object: DynamicObject =
        serde_json::from_value(manifest.clone()).map_err(kube::Error::SerdeError)?;
    object.metadata = kube::api::ObjectMeta {
        name: object.metadata.name,
        namespace: object.metadata.namespace,
        labels: object.metadata.labels,
        annotations: object.metadata.annotations,
        ..kube::api::ObjectMeta::default()
    };
    if let Some(fields) = object.data.as_object_mut() {
        fields.remove("status");
    }
    Ok(object)
}

async fn delete_namespace(client: &Client, name: &str) -> Result<(), Error> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    // the namespace first, so that no controller creates new objects
    absent_is_fine(namespaces.delete(name, &DeleteParams::background()).await)?;
    let pods: Api<Pod> = Api::namespaced(client.clone(), name);
    let now = DeleteParams {
        grace_period_seconds: Some(0),
        ..DeleteParams::default()
    };
    let all = ListParams::default();
    wait_until_gone(
        &format!("a pod of namespace {name}"),
        NAMESPACE_DEADLINE,
        async || {
            let left = pods.list_metadata(&all).await?.items;
            if left.is_empty() {
                return Ok(true);
            }
            absent_is_fine(pods.delete_collection(&now, &all).await)?;
            Ok(false)
        },
    )
    .await
}

async fn remove_taint(client: &Client, node: &str, key: &str, effect: &str) -> Result<(), Error> {
    let nodes: Api<Node> = Api::all(client.clone());
    loop {
        let Some(object) = nodes.get_opt(node).await? else {
            return Ok(());
        };
        let old = object
            .spec
            .clone()
            .unwrap_or_default()
            .taints
            .unwrap_or_default();
        let left: Vec<_> = old
            .iter()
            .filter(|taint| taint.key != key || taint.effect != effect)
            .collect();
        if left.len() == old.len() {
            return Ok(());
        }
        // with the resource version, so that a concurrent change is not lost
        let patch = json!({"metadata": {"resourceVersion": object.resource_version()}, "spec": {"taints": left}});
        match nodes
            .patch(node, &PatchParams::default(), &Patch::Merge(&patch))
            .await
        {
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            other => return absent_is_fine(other),
        }
    }
}

fn absent_is_fine<T>(result: Result<T, kube::Error>) -> Result<(), Error> {
    match result {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        // already being deleted
        Err(kube::Error::Api(status)) if status.code == 409 && status.reason == "Conflict" => {
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}

async fn wait_until_gone(
    what: &str,
    limit: Duration,
    mut is_gone: impl AsyncFnMut() -> Result<bool, Error>,
) -> Result<(), Error> {
    let pace = Pace::begin();
    while !is_gone().await? {
        if pace.waited() > limit {
            return Err(Error::Deadline {
                what: what.to_owned(),
                after: limit,
            });
        }
        pace.pause().await;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
