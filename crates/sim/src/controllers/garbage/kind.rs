//! A kind of objects that the collector watches.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ApiResource, DynamicObject};
use kube::{Client, ResourceExt as _};

use crate::controllers::objects;

/// A kind that is watched.
#[derive(Clone, Debug)]
pub(crate) struct WatchedKind {
    pub(super) api: ApiResource,
    pub(super) namespaced: bool,
}

impl WatchedKind {
    /// Returns `<plural>.<group>`; the dot is also there if the group is empty.
    pub(crate) fn group_resource(&self) -> String {
        format!("{}.{}", self.api.plural, self.api.group)
    }

    /// Returns whether the kind is pods.
    pub(crate) fn is_pods(&self) -> bool {
        self.api.plural == "pods" && self.api.group.is_empty()
    }

    /// Returns an API handle for the objects of a namespace.
    pub(crate) fn api_in(&self, client: &Client, namespace: &str) -> Api<DynamicObject> {
        Api::namespaced_with(client.clone(), namespace, &self.api)
    }
}

/// Returns the kind that a definition creates, once it is served.
pub(super) fn served(definition: &CustomResourceDefinition) -> Option<WatchedKind> {
    let established = definition
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten())
        .any(|condition| condition.type_ == "Established" && condition.status == "True");
    if !established || objects::deleting(definition) && definition.finalizers().is_empty() {
        return None;
    }
    let spec = &definition.spec;
    let version = spec.versions.iter().find(|version| version.served)?;
    Some(WatchedKind {
        api: ApiResource {
            group: spec.group.clone(),
            version: version.name.clone(),
            api_version: format!("{}/{}", spec.group, version.name),
            kind: spec.names.kind.clone(),
            plural: spec.names.plural.clone(),
        },
        namespaced: spec.scope == "Namespaced",
    })
}
