//! The kind of cluster, and its version (operator.md 2.1).

use api::openshift::config::{self, ClusterOperator, ClusterVersion, Infrastructure};
use apply::Cause;
use kube::Client;
use kube::api::{Api, ListParams};
use manifests::platform::Platform;

/// The cluster does not tell its kind or its version.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The cluster versions cannot be listed.
    #[error("cannot list the cluster versions")]
    Versions(#[source] Cause),
    /// The infrastructure cannot be read.
    #[error("cannot read the infrastructure of the cluster")]
    Infrastructure(#[source] Cause),
    /// The cluster operator that has the version cannot be read.
    #[error("cannot read the cluster operator {}", config::VERSION_OPERATOR)]
    ClusterOperator(#[source] Cause),
    /// The cluster operator has no version.
    #[error("the cluster operator {} reports no version", config::VERSION_OPERATOR)]
    NoVersion,
    /// The API server does not tell its version.
    #[error("cannot read the version of the API server")]
    ServerVersion(#[source] Cause),
}

/// Detects the kind of cluster.
pub(crate) async fn detect(client: &Client) -> Result<Platform, Error> {
    let versions: Api<ClusterVersion> = Api::all(client.clone());
    let found = versions.list(&ListParams::default().limit(1)).await;
    match found.map_err(Cause::from) {
        Err(cause) if cause.is_not_found() => return Ok(Platform::Kubernetes),
        Err(cause) => return Err(Error::Versions(cause)),
        Ok(list) if list.items.is_empty() => return Ok(Platform::Kubernetes),
        Ok(_) => {}
    }
    let infrastructures: Api<Infrastructure> = Api::all(client.clone());
    let infrastructure = infrastructures.get(config::CLUSTER).await;
    let infrastructure = infrastructure.map_err(|error| Error::Infrastructure(error.into()))?;
    let status = infrastructure.status.unwrap_or_default();
    Ok(if status.control_plane_topology == config::EXTERNAL {
        Platform::HyperShift
    } else {
        Platform::OpenShift
    })
}

/// Returns the version of the cluster: that of Kubernetes, or of OpenShift.
pub(crate) async fn version(client: &Client, platform: Platform) -> Result<String, Error> {
    if !platform.is_openshift() {
        let info = client.apiserver_version().await;
        let info = info.map_err(|error| Error::ServerVersion(error.into()))?;
        return Ok(info.git_version);
    }
    let operators: Api<ClusterOperator> = Api::all(client.clone());
    let operator = operators.get(config::VERSION_OPERATOR).await;
    let operator = operator.map_err(|error| Error::ClusterOperator(error.into()))?;
    let mut versions = operator.status.unwrap_or_default().versions.into_iter();
    let first = versions.next().ok_or(Error::NoVersion)?;
    Ok(first.version)
}
