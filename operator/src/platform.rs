//! Detects the kind of cluster, its version and its TLS settings (operator.md 2.1).
//!
//! `active_pods` draws a conclusion from the version; `tls_profile` watches the TLS settings.

use api::openshift::config::{self, ApiServer};
use kube::Client;
use kube::api::Api;
use manifests::platform::{Platform, TlsError, TlsSettings};

pub use self::active_pods::lists_active_pods;

mod active_pods;
pub(crate) mod tls_profile;

/// The API group of admission policies, in the version that this operator writes.
const ADMISSION: &str = "admissionregistration.k8s.io/v1";

/// The properties of the cluster cannot be determined.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The cluster does not tell its kind or its version.
    #[error(transparent)]
    Cluster(#[from] apply::platform::Error),
    /// The TLS settings of the cluster cannot be read.
    #[error("failed to read the TLS security profile of the cluster")]
    ApiServer(#[source] apply::Cause),
    /// The TLS settings of the cluster cannot be applied.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The kinds that the API server has cannot be listed.
    #[error("failed to list the kinds of the API group {ADMISSION}")]
    AdmissionKinds(#[source] apply::Cause),
}

/// Returns the platform that the user named, or else the detected one.
pub async fn detect(client: &Client, given: &str) -> Result<Platform, Error> {
    match Platform::parse(given) {
        Some(platform) => Ok(platform),
        None => Ok(apply::platform::detect(client).await?),
    }
}

/// Returns the full version of the cluster: the given one, or else the one that it reports.
pub async fn version(client: &Client, platform: Platform, given: &str) -> Result<String, Error> {
    if given.is_empty() {
        Ok(apply::platform::version(client, platform).await?)
    } else {
        Ok(given.to_owned())
    }
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
