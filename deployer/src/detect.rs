//! Kind and version of the cluster: given by the user, or detected (deployer.md 9).

use apply::platform;
use manifests::platform::Platform;
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::platform::Given;

/// How the original names a platform that is not known.
const UNKNOWN: &str = "Unknown";

/// The cluster cannot be classified.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kind of cluster is not known.
    #[error("cannot autodetect the platform, and no platform given")]
    Platform(#[source] Option<platform::Error>),
    /// The version of the cluster is not known.
    #[error("cannot autodetect the platform version, and no version given")]
    Version(#[source] Option<platform::Error>),
}

/// What was found. What the user gave is not detected.
#[derive(Debug, Default)]
pub struct Detection {
    given_platform: Option<Platform>,
    found_platform: Option<Platform>,
    given_version: String,
    found_version: String,
    /// Why something was not found.
    pub failure: Option<platform::Error>,
}

impl Detection {
    /// Asks the cluster for what the user has not given.
    pub async fn run(cluster: &Cluster, given: &Given) -> Self {
        let mut found = Self {
            given_platform: given.platform,
            given_version: given
                .version
                .as_ref()
                .map(ToString::to_string)
                .unwrap_or_default(),
            ..Self::default()
        };
        if given.platform.is_none() {
            match platform::detect(&cluster.client).await {
                Ok(platform) => found.found_platform = Some(platform),
                Err(error) => found.failure = Some(error),
            }
        }
        if given.version.is_none() {
            match version(cluster, found.platform()).await {
                Ok(version) => found.found_version = version,
                Err(error) => found.failure = Some(error),
            }
        }
        found
    }

    /// Returns the kind of cluster that counts.
    pub fn platform(&self) -> Option<Platform> {
        self.given_platform.or(self.found_platform)
    }

    /// Returns the version that counts; empty when unknown.
    pub fn version(&self) -> &str {
        if self.given_version.is_empty() {
            &self.found_version
        } else {
            &self.given_version
        }
    }

    /// Returns where kind and version are from, as the log has it.
    pub fn reasons(&self) -> [&'static str; 2] {
        let reason = |given: bool, found: bool| match (given, found) {
            (true, _) => "user-supplied",
            (false, true) => "autodetected from cluster",
            (false, false) => "autodetection failed",
        };
        [
            reason(self.given_platform.is_some(), self.found_platform.is_some()),
            reason(
                !self.given_version.is_empty(),
                !self.found_version.is_empty(),
            ),
        ]
    }

    /// Returns kind and version, both of which must be known before anything is deployed.
    pub fn required(self) -> Result<(Platform, String), Error> {
        match (self.platform(), self.version()) {
            (None, _) => Err(Error::Platform(self.failure)),
            (_, "") => Err(Error::Version(self.failure)),
            (Some(platform), version) => Ok((platform, version.to_owned())),
        }
    }

    /// Formats the output of `detect`, with a newline at the end.
    pub fn format(&self, as_json: bool) -> String {
        let name = |platform: Option<Platform>| {
            platform.map_or_else(|| UNKNOWN.to_owned(), |platform| platform.to_string())
        };
        if !as_json {
            return format!("{}:{}\n", name(self.platform()), self.version());
        }
        let part = |found: &str, given: &str, counts: &str| {
            let [found, given, counts] =
                [found, given, counts].map(|text| Value::from(text).to_string());
            format!("{{\"autoDetected\":{found},\"userSupplied\":{given},\"discovered\":{counts}}}")
        };
        format!(
            "{{\"platform\":{},\"version\":{}}}\n",
            part(
                &name(self.found_platform),
                &name(self.given_platform),
                &name(self.platform())
            ),
            part(&self.found_version, &self.given_version, self.version()),
        )
    }
}

/// Formats the number of nodes of the control plane, with a newline at the end.
pub fn format_control_plane(count: usize, as_json: bool) -> String {
    if as_json {
        format!("{}\n", json!({"nodeCount": count}))
    } else {
        format!("nodes={count}\n")
    }
}

async fn version(cluster: &Cluster, platform: Option<Platform>) -> Result<String, platform::Error> {
    match platform {
        Some(platform) if platform.is_openshift() => {
            platform::version(&cluster.client, platform).await
        }
        _ => Ok(cluster.server_version.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_has_the_keys_of_the_original_in_their_order() {
        let found = Detection {
            found_platform: Some(Platform::Kubernetes),
            found_version: "v1.27.3".into(),
            ..Detection::default()
        };
        assert_eq!(found.format(false), "Kubernetes:v1.27.3\n");
        assert_eq!(
            found.format(true),
            "{\"platform\":{\"autoDetected\":\"Kubernetes\",\"userSupplied\":\"Unknown\",\"discovered\":\"Kubernetes\"},\
             \"version\":{\"autoDetected\":\"v1.27.3\",\"userSupplied\":\"\",\"discovered\":\"v1.27.3\"}}\n"
        );
        assert_eq!(found.reasons(), ["autodetected from cluster"; 2]);
    }

    #[test]
    fn nothing_is_deployed_on_an_unknown_cluster() {
        let unknown = Detection::default();
        assert_eq!(unknown.format(false), "Unknown:\n");
        let error = unknown.required().unwrap_err();
        assert_eq!(
            error.to_string(),
            "cannot autodetect the platform, and no platform given"
        );
        let no_version = Detection {
            given_platform: Some(Platform::OpenShift),
            ..Detection::default()
        };
        assert!(matches!(no_version.required(), Err(Error::Version(None))));
    }
}
