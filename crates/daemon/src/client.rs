//! A Kubernetes client from a kubeconfig path or from the pod's environment.

use std::path::{Path, PathBuf};

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

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

/// Creates a client for [`config`].
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
