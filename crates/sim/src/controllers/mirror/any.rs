//! Requests and watches that are compiled once for all kinds. A typed watch is some twenty thousand lines of LLVM IR, and the controllers
//! watch more than twenty kinds.

use std::borrow::Cow;

use futures::StreamExt as _;
use futures::stream::BoxStream;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, ApiResource};
use kube::core::DynamicResourceScope;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Config, Event, watcher};
use kube::{Client, Resource};
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

/// An object of any kind, as the API server has it.
#[derive(Clone, Debug)]
pub(super) struct AnyObject {
    pub(super) metadata: ObjectMeta,
    whole: Value,
}

impl AnyObject {
    /// Makes it from an object of a kind.
    ///
    /// # Errors
    /// The object cannot be written as JSON.
    pub(super) fn of<K: Resource + Serialize>(object: &K) -> Result<Self, kube::Error> {
        Ok(Self {
            metadata: object.meta().clone(),
            whole: serde_json::to_value(object).map_err(kube::Error::SerdeError)?,
        })
    }

    /// Returns it as an object of its kind.
    ///
    /// # Errors
    /// It does not have the form of the kind.
    pub(super) fn parse<K: DeserializeOwned>(self) -> Result<K, kube::Error> {
        serde_json::from_value(self.whole).map_err(kube::Error::SerdeError)
    }
}

impl<'de> Deserialize<'de> for AnyObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let whole = Value::deserialize(deserializer)?;
        let metadata = ObjectMeta::deserialize(&whole["metadata"]).map_err(D::Error::custom)?;
        Ok(Self { metadata, whole })
    }
}

impl Serialize for AnyObject {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.whole.serialize(serializer)
    }
}

impl Resource for AnyObject {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn kind(resource: &ApiResource) -> Cow<'_, str> {
        resource.kind.as_str().into()
    }

    fn group(resource: &ApiResource) -> Cow<'_, str> {
        resource.group.as_str().into()
    }

    fn version(resource: &ApiResource) -> Cow<'_, str> {
        resource.version.as_str().into()
    }

    fn plural(resource: &ApiResource) -> Cow<'_, str> {
        resource.plural.as_str().into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// Follows all objects of a kind, in all namespaces.
pub(super) fn follow(
    client: Client,
    resource: &ApiResource,
    config: Config,
) -> BoxStream<'static, watcher::Result<Event<AnyObject>>> {
    let api: Api<AnyObject> = Api::all_with(client, resource);
    watcher(api, config).default_backoff().boxed()
}
