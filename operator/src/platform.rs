//! Detects the kind of cluster, its version and its TLS settings (operator.md 2.1).
//!
//! `active_pods` draws a conclusion from the version; `tls_profile` watches the TLS settings.

use api::openshift::config::{self, ApiServer, ClusterOperator, ClusterVersion, Infrastructure};
use kube::Client;
use kube::api::{Api, ListParams};
use manifests::platform::{Platform, TlsError, TlsSettings};

pub use self::active_pods::lists_active_pods;

mod active_pods;
pub(crate) mod tls_profile;

/// The API group of admission policies, in the version that this operator writes.
const ADMISSION: &str = "admissionregistration.k8s.io/v1";

/// The properties of the cluster cannot be determined.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The list of cluster versions cannot be read.
    #[error("failed to list cluster versions")]
    Versions(#[source] apply::Cause),
    /// The description of the infrastructure cannot be read.
    #[error("failed to read the infrastructure of the cluster")]
    Infrastructure(#[source] apply::Cause),
    /// The version of an OpenShift cluster cannot be read.
    #[error("failed to read the cluster operator of the API server")]
    ClusterOperator(#[source] apply::Cause),
    /// The cluster operator has no version yet.
    #[error("the cluster operator of the API server reports no version")]
    NoVersion,
    /// The TLS settings of the cluster cannot be read.
    #[error("failed to read the TLS security profile of the cluster")]
    ApiServer(#[source] apply::Cause),
    /// The TLS settings of the cluster cannot be applied.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The version of the API server cannot be read.
    #[error("failed to read the version of the API server")]
    ServerVersion(#[source] apply::Cause),
    /// The kinds that the API server has cannot be listed.
    #[error("failed to list the kinds of the API group {ADMISSION}")]
    AdmissionKinds(#[source] apply::Cause),
}

/// Returns the platform that the user named, or else the detected one.
pub async fn detect(client: &Client, given: &str) -> Result<Platform, Error> {
    if let Some(platform) = Platform::parse(given) {
        return Ok(platform);
    }
    let versions: Api<ClusterVersion> = Api::all(client.clone());
    match versions
        .list_metadata(&ListParams::default().limit(1))
        .await
    {
        Ok(list) if list.items.is_empty() => return Ok(Platform::Kubernetes),
        Ok(_) => {}
        Err(kube::Error::Api(status)) if status.code == 404 => return Ok(Platform::Kubernetes),
        Err(error) => return Err(Error::Versions(error.into())),
    }
    let infrastructures: Api<Infrastructure> = Api::all(client.clone());
    let infrastructure = infrastructures
        .get(config::CLUSTER)
        .await
        .map_err(|error| Error::Infrastructure(error.into()))?;
    let topology = infrastructure
        .status
        .map(|status| status.control_plane_topology);
    Ok(if topology.as_deref() == Some(config::EXTERNAL) {
        Platform::HyperShift
    } else {
        Platform::OpenShift
    })
}

/// Returns the full version of the cluster: the given one, or else the version of the API server, or on OpenShift that of the cluster
/// operator.
pub async fn version(client: &Client, platform: Platform, given: &str) -> Result<String, Error> {
    if !given.is_empty() {
        return Ok(given.to_owned());
    }
    if platform.is_openshift() {
        let operators: Api<ClusterOperator> = Api::all(client.clone());
        let operator = operators.get(config::VERSION_OPERATOR).await;
        let operator = operator.map_err(|error| Error::ClusterOperator(error.into()))?;
        let versions = operator.status.unwrap_or_default().versions;
        let first = versions.into_iter().next();
        return first.map(|first| first.version).ok_or(Error::NoVersion);
    }
    let info = client.apiserver_version().await;
    Ok(info
        .map_err(|error| Error::ServerVersion(error.into()))?
        .git_version)
}

/// Returns whether the API server knows admission policies, as all do from Kubernetes 1.30 on.
pub async fn has_admission_policies(client: &Client) -> Result<bool, Error> {
    let kinds = match client.list_api_group_resources(ADMISSION).await {
        Ok(kinds) => kinds.resources,
        Err(kube::Error::Api(status)) if status.code == 404 => Vec::new(),
        Err(error) => return Err(Error::AdmissionKinds(error.into())),
    };
    let has = kinds
        .iter()
        .any(|kind| kind.name == "validatingadmissionpolicies");
    if !has {
        tracing::warn!(
            "The API server knows no admission policies: every exporter may write the NodeResourceTopology of every node"
        );
    }
    Ok(has)
}

/// Returns a version up to the first dash.
pub fn short(version: &str) -> &str {
    version.split('-').next().unwrap_or_default()
}

/// Returns the TLS settings that every server of the cluster must use; the Intermediate ones if the cluster sets none.
pub async fn tls(client: &Client, platform: Platform) -> Result<TlsSettings, Error> {
    if !platform.is_openshift() {
        return Ok(TlsSettings::default());
    }
    let servers: Api<ApiServer> = Api::all(client.clone());
    let server = servers.get(config::CLUSTER).await;
    let server = server.map_err(|error| Error::ApiServer(error.into()))?;
    Ok(TlsSettings::of_profile(
        server.spec.tls_security_profile.as_ref(),
    )?)
}
