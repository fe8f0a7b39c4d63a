//! What kind of cluster this is, and in which version (operator.md 2.1).

use api::openshift::config::{self, ClusterOperator, ClusterVersion, Infrastructure};
use kube::Client;
use kube::api::{Api, ListParams};
use manifests::platform::Platform;

use crate::Cause;

/// The cluster does not tell its kind or its version.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The list of cluster versions cannot be read.
    #[error("failed to list cluster versions")]
    Versions(#[source] Cause),
    /// The description of the infrastructure cannot be read.
    #[error("failed to read the infrastructure of the cluster")]
    Infrastructure(#[source] Cause),
    /// The cluster operator that has the version of OpenShift cannot be read.
    #[error("failed to read the cluster operator {}", config::VERSION_OPERATOR)]
    ClusterOperator(#[source] Cause),
    /// The cluster operator has no version yet.
    #[error("the cluster operator {} reports no version", config::VERSION_OPERATOR)]
    NoVersion,
    /// The version of the API server cannot be read.
    #[error("failed to read the version of the API server")]
    ServerVersion(#[source] Cause),
}

/// Detects the kind of cluster: one with a cluster version is OpenShift, and `HyperShift` if its control plane is elsewhere.
///
/// # Errors
/// Returns an error if a question to the API server fails. That it does not know OpenShift's kinds is an answer.
pub async fn detect(client: &Client) -> Result<Platform, Error> {
    let versions: Api<ClusterVersion> = Api::all(client.clone());
    let found = versions
        .list_metadata(&ListParams::default().limit(1))
        .await;
    match found.map_err(Cause::from) {
        Ok(list) if list.items.is_empty() => return Ok(Platform::Kubernetes),
        Ok(_) => {}
        Err(cause) if cause.is_not_found() => return Ok(Platform::Kubernetes),
        Err(cause) => return Err(Error::Versions(cause)),
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

/// Returns the version of the cluster: that of the API server, or on OpenShift that of the cluster operator.
///
/// # Errors
/// Returns an error if the question to the API server fails, or if the cluster operator has no version yet.
pub async fn version(client: &Client, platform: Platform) -> Result<String, Error> {
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
