//! A Kubernetes client from a kubeconfig path or from the pod's environment.

use std::path::{Path, PathBuf};

use kube::client::ClientBuilder;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

use crate::metrics::requests::Requests;

/// The client cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be read or is not a kubeconfig.
    #[error("cannot read kubeconfig {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: Box<kube::config::KubeconfigError>,
    },
    /// No kubeconfig is given and the process does not run in a pod.
    #[error("no kubeconfig was given and the process does not run in a pod")]
    InCluster(#[source] kube::config::InClusterError),
    /// The URL of the API server is none.
    #[error("cannot read {url:?} as the URL of the API server")]
    Master {
        /// The text.
        url: String,
        /// The cause.
        #[source]
        source: http::uri::InvalidUri,
    },
    /// The URL of the API server lacks its scheme or host.
    #[error("{0:?} is no URL of an API server: give it as https://HOST:PORT")]
    NoUrl(String),
    /// The configuration is not usable for a client.
    #[error("cannot build a Kubernetes client")]
    Build(#[source] Box<kube::Error>),
}

/// Makes rustls use ring. Every `main` calls this once before it uses TLS; further calls change nothing.
pub fn install_crypto_provider() {
    // The only possible error is that a provider is already installed.
    drop(rustls::crypto::ring::default_provider().install_default());
}

/// Returns the configuration from `kubeconfig`. If that is absent or empty, the configuration comes from the pod's environment, as in
/// client-go.
pub async fn config(kubeconfig: Option<&Path>) -> Result<Config, Error> {
    match kubeconfig {
        Some(path) if !path.as_os_str().is_empty() => {
            let read = |source| Error::Read {
                path: path.to_owned(),
                source: Box::new(source),
            };
            let file = Kubeconfig::read_from(path).map_err(read)?;
            Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
                .await
                .map_err(read)
        }
        _ => Config::incluster().map_err(Error::InCluster),
    }
}

/// Like [`config`], but with this URL of the API server, if it is not empty: `--master` (scheduler.md 7.9). With neither a kubeconfig nor a
/// pod's environment that is all there is: a client without credentials.
pub async fn config_for(kubeconfig: Option<&Path>, master: &str) -> Result<Config, Error> {
    if master.is_empty() {
        return config(kubeconfig).await;
    }
    let url: http::Uri = master.parse().map_err(|source| Error::Master {
        url: master.to_owned(),
        source,
    })?;
    if url.scheme().is_none() || url.authority().is_none() {
        return Err(Error::NoUrl(master.to_owned()));
    }
    match kubeconfig {
        Some(path) if !path.as_os_str().is_empty() => {
            let mut config = config(kubeconfig).await?;
            config.cluster_url = url;
            Ok(config)
        }
        _ => Ok(Config::new(url)),
    }
}

/// Creates a client for [`config`].
pub async fn client(kubeconfig: Option<&Path>) -> Result<Client, Error> {
    Client::try_from(config(kubeconfig).await?).map_err(|source| Error::Build(Box::new(source)))
}

/// Creates a client whose requests are counted.
pub fn counted(config: Config, requests: &Requests) -> Result<Client, Error> {
    let layer = requests.layer(&config);
    let builder =
        ClientBuilder::try_from(config).map_err(|source| Error::Build(Box::new(source)))?;
    Ok(builder.with_layer(&layer).build())
}

#[cfg(test)]
mod tests {
    use super::*;

    const KUBECONFIG: &str = r#"{"apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "k", "cluster": {"server": "https://one:6443"}}],
        "users": [{"name": "u", "user": {"token": "secret"}}],
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}]}"#;

    #[tokio::test]
    async fn a_given_url_replaces_that_of_the_kubeconfig() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), KUBECONFIG).expect("written");
        for (master, url) in [
            ("", "https://one:6443/"),
            ("https://two:1", "https://two:1/"),
        ] {
            let config = config_for(Some(file.path()), master).await.expect("valid");
            assert_eq!(config.cluster_url.to_string(), url);
            assert!(config.auth_info.token.is_some());
        }
        for wrong in ["two:1", "/path", "http://"] {
            let error = config_for(Some(file.path()), wrong).await.err();
            assert!(
                error.is_some_and(|error| error.to_string().contains(wrong)),
                "{wrong}"
            );
        }
    }

    #[tokio::test]
    async fn a_missing_kubeconfig_is_named_in_the_error() {
        let error = config(Some(Path::new("/nowhere/kubeconfig")))
            .await
            .err()
            .map(|error| error.to_string());
        assert_eq!(
            error.as_deref(),
            Some("cannot read kubeconfig /nowhere/kubeconfig")
        );
    }
}
