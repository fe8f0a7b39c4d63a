//! Watches an object until it is in effect.

use std::time::Duration;

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::runtime::wait::{Condition, await_condition};
use kube::{Api, Client};

use crate::ready;

/// The object is not in effect.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The time limit has passed.
    #[error("{kind} {name} is not ready after {limit:?}")]
    Late {
        /// Kind of the object.
        kind: &'static str,
        /// Name of the object.
        name: String,
        /// The time limit.
        limit: Duration,
    },
    /// The watch failed.
    #[error("failed to watch {kind} {name}")]
    Watch {
        /// Kind of the object.
        kind: &'static str,
        /// Name of the object.
        name: String,
        /// Cause.
        #[source]
        source: Box<kube::runtime::wait::Error>,
    },
}

/// Waits until objects of the kind can be written.
pub async fn definition(client: &Client, name: &str, limit: Duration) -> Result<(), Error> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    until(
        api,
        "CustomResourceDefinition",
        name,
        limit,
        |object: Option<&CustomResourceDefinition>| object.is_some_and(ready::definition),
    )
    .await
}

/// Waits until every node that should run a pod runs a ready one.
pub async fn daemon_set(
    client: &Client,
    namespace: &str,
    name: &str,
    limit: Duration,
) -> Result<(), Error> {
    let api: Api<DaemonSet> = Api::namespaced(client.clone(), namespace);
    until(
        api,
        "DaemonSet",
        name,
        limit,
        |object: Option<&DaemonSet>| object.is_some_and(ready::daemon_set),
    )
    .await
}

/// Waits until the Deployment is available.
pub async fn deployment(
    client: &Client,
    namespace: &str,
    name: &str,
    limit: Duration,
) -> Result<(), Error> {
    let api: Api<Deployment> = Api::namespaced(client.clone(), namespace);
    until(
        api,
        "Deployment",
        name,
        limit,
        |object: Option<&Deployment>| object.is_some_and(ready::deployment),
    )
    .await
}

async fn until<K, C>(
    api: Api<K>,
    kind: &'static str,
    name: &str,
    limit: Duration,
    condition: C,
) -> Result<(), Error>
where
    K: Clone + std::fmt::Debug + Send + serde::de::DeserializeOwned + kube::Resource + 'static,
    C: Condition<K>,
{
    match tokio::time::timeout(limit, await_condition(api, name, condition)).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(source)) => Err(Error::Watch {
            kind,
            name: name.into(),
            source: Box::new(source),
        }),
        Err(_) => Err(Error::Late {
            kind,
            name: name.into(),
            limit,
        }),
    }
}
