//! Coordinates of an object, read from its JSON.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind};
use kube::{Client, Resource};
use serde_json::{Value, json};

/// A kind whose name is already a plural. The default English plural rule would append another ending.
const CONSTRAINTS: &str = "SecurityContextConstraints";

/// API group and version, kind, namespace and name of an object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    /// API group, empty for the core.
    pub group: String,
    /// Version within the group.
    pub version: String,
    /// Kind.
    pub kind: String,
    /// Namespace; absent for cluster-wide objects.
    pub namespace: Option<String>,
    /// Name.
    pub name: String,
}

impl Identity {
    /// Reads the coordinates; `None` if a required one is missing.
    pub fn of(object: &Value) -> Option<Self> {
        let api_version = object.get("apiVersion")?.as_str()?;
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let metadata = object.get("metadata")?;
        Some(Self {
            group: group.into(),
            version: version.into(),
            kind: object.get("kind")?.as_str()?.into(),
            namespace: metadata
                .get("namespace")
                .and_then(Value::as_str)
                .map(Into::into),
            name: metadata.get("name")?.as_str()?.into(),
        })
    }

    /// Returns the kind with its plural, as URLs have it.
    pub fn resource(&self) -> ApiResource {
        let kind = GroupVersionKind::gvk(&self.group, &self.version, &self.kind);
        if kind.kind == CONSTRAINTS {
            ApiResource::from_gvk_with_plural(&kind, &CONSTRAINTS.to_ascii_lowercase())
        } else {
            ApiResource::from_gvk(&kind)
        }
    }

    /// Returns the API of the kind, in the namespace of the object.
    pub fn api(&self, client: &Client) -> Api<DynamicObject> {
        let resource = self.resource();
        match &self.namespace {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
            None => Api::all_with(client.clone(), &resource),
        }
    }
}

/// Writes the form that the original logs and reports: `(apps/v1, Kind=DaemonSet) namespace/name`.
impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let slash = if self.group.is_empty() { "" } else { "/" };
        let namespace = self.namespace.as_deref().unwrap_or("");
        write!(
            f,
            "({}{slash}{}, Kind={}) {namespace}/{}",
            self.group, self.version, self.kind, self.name
        )
    }
}

/// Returns a reference that makes `owner` the controller of an object; `None` until the API server has given the owner a name and a uid.
pub fn controller_reference<K: Resource<DynamicType = ()>>(owner: &K) -> Option<OwnerReference> {
    owner.controller_owner_ref(&())
}

/// Sets `owner` as the only owner of an object that is not written yet.
pub fn set_owner(object: &mut Value, owner: &OwnerReference) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("ownerReferences".into(), json!([owner]));
    }
}
