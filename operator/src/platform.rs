//! Which kind of cluster this is (operator.md 2.1).

use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, ListParams};
use manifests::platform::Platform;

/// The cluster cannot be told.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The list of cluster versions cannot be read.
    #[error("failed to list cluster versions")]
    Versions(#[source] apply::Cause),
    /// The description of the infrastructure cannot be read.
    #[error("failed to read the infrastructure of the cluster")]
    Infrastructure(#[source] apply::Cause),
    /// The API server does not tell its version.
    #[error("failed to read the version of the API server")]
    ServerVersion(#[source] apply::Cause),
}

/// The platform that the user named, or the one that is found.
pub async fn detect(client: &Client, given: &str) -> Result<Platform, Error> {
    if let Some(platform) = Platform::parse(given) {
        return Ok(platform);
    }
    let versions = config_api(client, "ClusterVersion")
        .list(&ListParams::default().limit(1))
        .await;
    match versions {
        Ok(list) if list.items.is_empty() => return Ok(Platform::Kubernetes),
        Ok(_) => {}
        Err(kube::Error::Api(status)) if status.code == 404 => return Ok(Platform::Kubernetes),
        Err(error) => return Err(Error::Versions(error.into())),
    }
    let infrastructure = config_api(client, "Infrastructure")
        .get("cluster")
        .await
        .map_err(|error| Error::Infrastructure(error.into()))?;
    let topology = infrastructure
        .data
        .pointer("/status/controlPlaneTopology")
        .and_then(|value| value.as_str());
    Ok(if topology == Some("External") {
        Platform::HyperShift
    } else {
        Platform::OpenShift
    })
}

/// Version of the cluster, up to the first dash: the given one, else what the API server says.
pub async fn version(client: &Client, given: &str) -> Result<String, Error> {
    let version = if given.is_empty() {
        client
            .apiserver_version()
            .await
            .map_err(|error| Error::ServerVersion(error.into()))?
            .git_version
    } else {
        given.to_owned()
    };
    Ok(version.split('-').next().unwrap_or_default().to_owned())
}

fn config_api(client: &Client, kind: &str) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("config.openshift.io", "v1", kind));
    Api::all_with(client.clone(), &resource)
}
