//! The ledger of created and changed objects. Each entry is recorded before its call, with its undo; changes are undone in reverse order.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams,
};
use kube::{Client, Resource, ResourceExt};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use thiserror::Error;

use crate::pace::Pace;

/// How long one undo may take.
pub const UNDO_DEADLINE: Duration = Duration::from_mins(1);
/// How long the deletion of a namespace's pods may take.
const NAMESPACE_DEADLINE: Duration = Duration::from_mins(2);

/// An object of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectRef {
    /// `group/version`, or `version` for the core group.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Name of the resource in URLs.
    pub plural: String,
    /// Namespace, if the kind has one.
    pub namespace: Option<String>,
    /// Name.
    pub name: String,
}

impl ObjectRef {
    /// Returns the reference to an object of a known kind.
    pub fn of<K: Resource<DynamicType = ()>>(object: &K) -> Self {
        Self {
            api_version: K::api_version(&()).into_owned(),
            kind: K::kind(&()).into_owned(),
            plural: K::plural(&()).into_owned(),
            namespace: object.meta().namespace.clone(),
            name: object.meta().name.clone().unwrap_or_default(),
        }
    }

    /// Returns the reference to a node.
    pub fn node(name: &str) -> Self {
        Self {
            api_version: "v1".to_owned(),
            kind: "Node".to_owned(),
            plural: "nodes".to_owned(),
            namespace: None,
            name: name.to_owned(),
        }
    }

    /// Returns a client for the kind, in the object's namespace.
    pub fn api(&self, client: &Client) -> Api<DynamicObject> {
        let (group, version) = self
            .api_version
            .split_once('/')
            .unwrap_or(("", &self.api_version));
        let resource = ApiResource {
            group: group.to_owned(),
            version: version.to_owned(),
            api_version: self.api_version.clone(),
            kind: self.kind.clone(),
            plural: self.plural.clone(),
        };
        match &self.namespace {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
            None => Api::all_with(client.clone(), &resource),
        }
    }
}

impl std::fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{} {namespace}/{}", self.kind, self.name),
            None => write!(f, "{} {}", self.kind, self.name),
        }
    }
}

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

/// One change.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Number within the unit, from 1.
    pub change: u32,
    /// The change, for people.
    pub what: String,
    /// How to undo it.
    pub undo: Undo,
}

/// The changes of one unit that are not undone yet.
#[derive(Debug, Default)]
pub struct Ledger {
    entries: Vec<Entry>,
    next: u32,
}

impl Ledger {
    /// Records a change and returns its number. Must be called before the change is made.
    pub fn record(&mut self, what: &str, undo: Undo) -> u32 {
        self.next += 1;
        self.entries.push(Entry {
            change: self.next,
            what: what.to_owned(),
            undo,
        });
        self.next
    }

    /// Removes and returns the change to undo next: the latest.
    pub fn pop(&mut self) -> Option<Entry> {
        self.entries.pop()
    }

    /// Returns whether everything was undone.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

impl Undo {
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
mod tests {
    use super::*;

    fn undo(name: &str) -> Undo {
        Undo::DeleteNamespace {
            name: name.to_owned(),
        }
    }

    #[test]
    fn changes_come_back_in_reverse() {
        let mut ledger = Ledger::default();
        assert_eq!(ledger.record("first", undo("a")), 1);
        assert_eq!(ledger.record("second", undo("b")), 2);
        assert_eq!(
            ledger.pop().map(|entry| entry.what),
            Some("second".to_owned())
        );
        assert_eq!(ledger.record("third", undo("c")), 3);
        let left: Vec<_> = std::iter::from_fn(|| ledger.pop())
            .map(|entry| entry.change)
            .collect();
        assert_eq!(left, [3, 1]);
        assert!(ledger.is_empty());
    }

    #[test]
    fn what_was_made_otherwise_meanwhile_is_put_right_but_for_the_address_it_was_given() {
        let mk = |spec: Value| {
            let object = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": spec});
            serde_json::from_value::<DynamicObject>(object).expect("an object")
        };
        let before =
            mk(json!({"clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"], "type": "ClusterIP"}));
        let again =
            mk(json!({"clusterIP": "10.0.0.2", "clusterIPs": ["10.0.0.2"], "type": "ClusterIP"}));
        assert_eq!(restored_object(&again, &before), None);
        let other =
            mk(json!({"clusterIP": "10.0.0.2", "clusterIPs": ["10.0.0.2"], "type": "NodePort"}));
        assert_eq!(restored_object(&other, &before), Some(again));
        let without = mk(json!({"type": "NodePort"}));
        let plain = mk(json!({"type": "ClusterIP"}));
        assert_eq!(restored_object(&without, &plain), Some(plain));
    }

    #[test]
    fn undos_survive_the_log() {
        let pod = Pod {
            metadata: kube::api::ObjectMeta {
                namespace: Some("n".into()),
                name: Some("p".into()),
                ..kube::api::ObjectMeta::default()
            },
            ..Pod::default()
        };
        let object = ObjectRef::of(&pod);
        assert_eq!(object.to_string(), "Pod n/p");
        let undos = [
            undo("a"),
            Undo::Delete {
                object: object.clone(),
            },
            Undo::Create {
                object: object.clone(),
                manifest: json!({"kind": "Pod"}),
            },
            Undo::Patch {
                object,
                patch: json!({"metadata": {"labels": {"a": null}}}),
            },
            Undo::RemoveTaint {
                node: "n".into(),
                key: "k".into(),
                effect: "NoSchedule".into(),
            },
        ];
        for undo in undos {
            let text = serde_json::to_string(&undo).expect("undo is data");
            assert_eq!(
                serde_json::from_str::<Undo>(&text).expect("undo is read back"),
                undo
            );
        }
    }

    #[tokio::test]
    async fn deleted_object_comes_back_as_it_was_without_what_the_server_says() {
        let manifest = json!({
            "apiVersion": "v1", "kind": "Node", "status": {"phase": "x"}, "spec": {"podCIDR": "y"},
            "metadata": {"name": "n", "uid": "u", "resourceVersion": "7", "labels": {"a": "b"}},
        });
        let object = without_server_fields(&manifest).expect("it is an object");
        assert_eq!(
            json!(object),
            json!({
                "apiVersion": "v1", "kind": "Node", "spec": {"podCIDR": "y"},
                "metadata": {"name": "n", "labels": {"a": "b"}},
            })
        );
        let undo = Undo::Create {
            object: ObjectRef::node("n"),
            manifest,
        };
        for (present, requests) in [
            (None, &["GET /api/v1/nodes/n", "POST /api/v1/nodes"][..]),
            (Some("y"), &["GET /api/v1/nodes/n"]),
            (Some("z"), &["GET /api/v1/nodes/n", "PUT /api/v1/nodes/n"]),
        ] {
            let (client, log) = crate::testing::client(move |method, _| {
                if method == "GET" && present.is_none() {
                    return crate::testing::not_found();
                }
                let spec = json!({"podCIDR": present});
                (
                    200,
                    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "spec": spec}),
                )
            });
            undo.run(&client).await.expect("it is there");
            assert_eq!(*log.lock().expect("requests"), requests);
        }
    }

    #[tokio::test]
    async fn only_our_taint_is_removed() {
        let taint = |key: &str| json!({"key": key, "effect": "NoSchedule"});
        let (client, log) = crate::testing::client(move |_, _| {
            let node = json!({"metadata": {"name": "n", "resourceVersion": "7"}, "spec": {"taints": [taint("ours"), taint("theirs")]}});
            (200, node)
        });
        let undo = Undo::RemoveTaint {
            node: "n".into(),
            key: "ours".into(),
            effect: "NoSchedule".into(),
        };
        undo.run(&client).await.expect("the taint is removed");
        assert_eq!(
            *log.lock().expect("requests"),
            ["GET /api/v1/nodes/n", "PATCH /api/v1/nodes/n"]
        );
        let undo = Undo::RemoveTaint {
            node: "n".into(),
            key: "absent".into(),
            effect: "NoSchedule".into(),
        };
        undo.run(&client).await.expect("there is nothing to remove");
        assert_eq!(log.lock().expect("requests").len(), 3);
    }
}
