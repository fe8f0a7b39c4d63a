//! A Kubernetes client from a kubeconfig path or from the pod's environment, none of whose requests waits for ever.
//!
//! In reading order, from the wire up:
//! - `connection`: how long a connection may be silent;
//! - `deadline`: how long an answer may take;
//! - `retry`: which requests are sent again, and when;
//! - here: what these make together, and where the configuration comes from.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use http::{Request, Response};
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::{Body, ConfigExt as _};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use parking_lot::Mutex;
use tokio::time::Instant;
use tower::retry::RetryLayer;
use tower::util::MapFutureLayer;
use tower::{BoxError, Layer, Service, ServiceBuilder};

use self::deadline::Deadline;
use self::retry::Policy;
use crate::metrics::requests::Requests;
use crate::rate::Bucket;

mod connection;
mod deadline;
mod retry;
#[cfg(test)]
mod tests;

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
    /// The kubeconfig names a proxy.
    #[error(
        "the kubeconfig wants the proxy {0}: reach the API server directly, proxies are not supported"
    )]
    Proxy(Box<http::Uri>),
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

/// How a client sends its requests.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Counts the requests. One that is sent several times counts once.
    pub requests: Requests,
    /// Limits how often requests are sent, each repetition included.
    pub rate: Option<Bucket>,
    /// Whether the caller alone sends requests again, because it counts them or has a rhythm of its own.
    pub retried_by_caller: bool,
}

/// Creates a client for [`config`].
pub async fn client(kubeconfig: Option<&Path>) -> Result<Client, Error> {
    build(config(kubeconfig).await?, Options::default())
}

/// Creates a client whose requests all end: a vanished API server is noticed within a minute, an answer has a deadline, and what fails for
/// now is sent again a few times, if that can do no harm.
pub fn build(config: Config, options: Options) -> Result<Client, Error> {
    if let Some(proxy) = config.proxy_url {
        return Err(Error::Proxy(Box::new(proxy)));
    }
    let failed = |source| Error::Build(Box::new(source));
    let connector = config
        .rustls_https_connector_with_connector(connection::connector())
        .map_err(failed)?;
    let http = HttpClient::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .build(connector);
    let requests = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer().map_err(failed)?)
        .layer(config.extra_headers_layer().map_err(failed)?)
        .map_err(BoxError::from)
        .service(http);
    let host = config.cluster_url.authority().map(ToString::to_string);
    let service = guarded(requests, host.unwrap_or_default(), options);
    Ok(Client::new(service, config.default_namespace))
}

/// Puts deadlines, rate, repetition and counts around what sends requests.
fn guarded<S, B>(
    inner: S,
    host: String,
    options: Options,
) -> impl Service<
    Request<Body>,
    Response = Response<deadline::Limited<B>>,
    Error = BoxError,
    Future: Send,
> + Send
where
    S: Service<Request<Body>, Response = Response<B>, Error = BoxError> + Clone + Send + 'static,
    S::Future: Send + 'static,
    B: Send + 'static,
{
    let Options {
        requests,
        rate,
        retried_by_caller,
    } = options;
    let counted = requests.layer(host.clone());
    let repeated =
        (!retried_by_caller).then(|| RetryLayer::new(Policy::new(requests.repetitions(host))));
    let bucket = rate.map(|rate| Arc::new(Mutex::new(rate)));
    let limited = MapFutureLayer::new(move |answer| {
        let bucket = bucket.clone();
        async move {
            if let Some(bucket) = bucket {
                let at = bucket.lock().take(Instant::now());
                tokio::time::sleep_until(at).await;
            }
            // the request is sent only when this is polled
            answer.await
        }
    });
    ServiceBuilder::new()
        .layer(counted)
        .option_layer(repeated)
        .service(limited.layer(Deadline::new(inner)))
}
