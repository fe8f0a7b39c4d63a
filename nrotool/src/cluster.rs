//! The client of the tools, and lists in pages.

use std::path::Path;

use apply::Cause;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams};
use kube::config::InferConfigError;
use kube::{Client, Config};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Maximum number of objects in a page of a list.
const PAGE: u32 = 500;

/// There is no client for a cluster.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectError {
    /// No kubeconfig was given, and none was found.
    #[error("no cluster is known: give --kubeconfig, set KUBECONFIG, or run in a pod")]
    NoCluster(#[source] Box<InferConfigError>),
    /// The kubeconfig cannot be read, or not be used for a client.
    #[error(transparent)]
    Kubeconfig(#[from] daemon::client::Error),
}

/// Creates a client from `kubeconfig`; without it from `KUBECONFIG`, `~/.kube/config` or the pod that this runs in, as kubectl does.
pub(crate) async fn connect(kubeconfig: Option<&Path>) -> Result<Client, ConnectError> {
    daemon::client::install_crypto_provider();
    let config = match kubeconfig.filter(|path| !path.as_os_str().is_empty()) {
        Some(path) => daemon::client::config(Some(path)).await?,
        None => Config::infer()
            .await
            .map_err(|error| ConnectError::NoCluster(Box::new(error)))?,
    };
    Ok(daemon::client::build(
        config,
        daemon::client::Options::default(),
    )?)
}

/// Objects cannot be listed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ListError {
    /// The cluster does not know the kind.
    #[error("the cluster has no {0}: install its definition")]
    NoKind(String),
    /// The request failed.
    #[error("cannot list {what}")]
    Request {
        /// Kind of the objects.
        what: String,
        /// The cause.
        #[source]
        source: Cause,
    },
}

/// Lists all objects that a label selector selects; an empty one selects all.
pub(crate) async fn list<K>(api: &Api<K>, selector: &str) -> Result<Vec<K>, ListError>
where
    K: kube::Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
{
    let mut params = ListParams::default().limit(PAGE).labels(selector);
    let mut all = Vec::new();
    loop {
        let page = api.list(&params).await.map_err(|error| {
            let (what, source) = (K::kind(&()).into_owned(), Cause::from(error));
            if source.is_not_found() {
                ListError::NoKind(what)
            } else {
                ListError::Request { what, source }
            }
        })?;
        all.extend(page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(all),
        }
    }
}

/// Returns what a kubelet says of its settings, by way of the API server.
pub(crate) async fn configz(client: &Client, node: &str) -> Result<Value, Cause> {
    let request = http::Request::get(format!("/api/v1/nodes/{node}/proxy/configz"))
        .body(Vec::new())
        .map_err(kube::Error::HttpError)?;
    Ok(client.request(request).await?)
}

/// Returns whether a pod is running.
pub(crate) fn is_running(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|it| it.phase.as_deref());
    phase == Some("Running") && pod.metadata.deletion_timestamp.is_none()
}
