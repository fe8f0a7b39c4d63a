//! A Kubernetes client from a kubeconfig path or from the pod's environment.

use std::path::{Path, PathBuf};

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kubeconfig file cannot be read or is not one.
    #[error("cannot read kubeconfig {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: Box<kube::config::KubeconfigError>,
    },
    /// No kubeconfig was given and this process does not run in a pod.
    #[error("no kubeconfig was given and the process does not run in a pod")]
    InCluster(#[source] kube::config::InClusterError),
    /// The configuration does not make a client.
    #[error("cannot build a Kubernetes client")]
    Build(#[source] Box<kube::Error>),
}

/// Makes rustls use ring. Every `main` calls this once before anything speaks TLS; further calls change nothing.
pub fn install_crypto_provider() {
    // The error only says that a provider is installed already.
    drop(rustls::crypto::ring::default_provider().install_default());
}

/// The configuration from `kubeconfig`, or, when it is absent or empty, from the pod's environment, as client-go decides it.
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

/// A client for [`config`].
pub async fn client(kubeconfig: Option<&Path>) -> Result<Client, Error> {
    Client::try_from(config(kubeconfig).await?).map_err(|source| Error::Build(Box::new(source)))
}

#[cfg(test)]
mod tests {
    use super::*;

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
