//! Detects the kind of cluster, its version and its TLS settings (operator.md 2.1).

use api::openshift::config::{self, ApiServer, ClusterOperator, ClusterVersion, Infrastructure};
use kube::Client;
use kube::api::{Api, ListParams};
use manifests::platform::{Platform, TlsError, TlsSettings};

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

/// Returns a version up to the first dash.
pub fn short(version: &str) -> &str {
    version.split('-').next().unwrap_or_default()
}

/// Returns whether the kubelets leave terminated pods out of their answers to exporters. Kubelets of OpenShift do so from 4.20 on; each
/// known form of its version numbers has its own first version (operator.md 2.1).
pub fn lists_active_pods(platform: Platform, version: &str) -> bool {
    platform.is_openshift() && active_pods_since(version) == Some(true)
}

/// Compares a version with the first such version of its form; `None` for an unknown form.
fn active_pods_since(version: &str) -> Option<bool> {
    let (numbers, rest) = version.split_once('-').unwrap_or((version, ""));
    let numbers: Vec<u64> = numbers
        .split('.')
        .map(|number| number.parse().ok())
        .collect::<Option<_>>()?;
    let since = [4, 20, 0];
    if numbers != since {
        return Some(numbers.as_slice() > since.as_slice()).filter(|_| is_known(rest));
    }
    if rest.is_empty() {
        return Some(true);
    }
    // the timestamps sort as text
    for (kind, first) in [
        ("0.nightly-", "2025-08-04-154809"),
        ("0.ci-", "2025-08-01-195417"),
    ] {
        if let Some(time) = rest.strip_prefix(kind) {
            return Some(time >= first);
        }
    }
    for (kind, first) in [("ec.", 6), ("rc.", 0)] {
        if let Some(number) = rest.strip_prefix(kind) {
            return Some(number.parse::<u64>().ok()? >= first);
        }
    }
    None
}

/// Returns whether the text after the numbers has a known form.
fn is_known(rest: &str) -> bool {
    let kinds = ["0.nightly-", "0.ci-", "ec.", "rc."];
    rest.is_empty() || kinds.iter().any(|kind| rest.starts_with(kind))
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

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::first_release("4.20.0", true)]
    #[case::older_release("4.19.12", false)]
    #[case::newer_release("4.20.1", true)]
    #[case::next_line("4.21.0-ec.1", true)]
    #[case::nightly("4.20.0-0.nightly-2025-08-04-154809", true)]
    #[case::older_nightly("4.20.0-0.nightly-2025-08-04-154808", false)]
    #[case::ci("4.20.0-0.ci-2025-08-01-195417", true)]
    #[case::older_ci("4.20.0-0.ci-2025-08-01-195416", false)]
    #[case::candidate("4.20.0-ec.6", true)]
    #[case::older_candidate("4.20.0-ec.5", false)]
    #[case::release_candidate("4.20.0-rc.0", true)]
    #[case::other_form("4.20.0-okd", false)]
    #[case::other_form_of_a_newer_one("4.21.0-okd", false)]
    #[case::no_version("soon", false)]
    fn kubelets_leave_terminated_pods_out_from_4_20_on(
        #[case] version: &str,
        #[case] expected: bool,
    ) {
        assert_eq!(lists_active_pods(Platform::OpenShift, version), expected);
        assert!(!lists_active_pods(Platform::Kubernetes, version));
    }
}
