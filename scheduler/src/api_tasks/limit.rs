//! `clientConnection.qps` and `.burst`: the rate limit of requests to the API server, as in client-go.

use std::path::Path;
use std::sync::Arc;

use daemon::metrics::requests::Requests;
use daemon::rate::Bucket;
use kube::Client;
use kube::client::ClientBuilder;
use parking_lot::Mutex;
use scheduler_config::configuration::ClientConnection;
use tokio::time::Instant;
use tower::util::MapFutureLayer;

/// Why no client can be created.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no usable kubeconfig.
    #[error("cannot read the client configuration")]
    Config(#[from] daemon::client::Error),
    /// The kubeconfig does not yield a client.
    #[error("cannot build a Kubernetes client")]
    Build(#[source] Box<kube::Error>),
}

/// Creates a client with its own rate limit, whose requests are counted. `master` is the URL of the API server, if it is not that of the kubeconfig. The client uses JSON, whatever content type is configured.
///
/// # Errors
/// When there is no usable kubeconfig, or it does not yield a client.
pub async fn client(
    kubeconfig: Option<&Path>,
    master: &str,
    connection: &ClientConnection,
    requests: &Requests,
) -> Result<Client, Error> {
    let config = daemon::client::config_for(kubeconfig, master).await?;
    let counted = requests.layer(&config);
    let builder =
        ClientBuilder::try_from(config).map_err(|source| Error::Build(Box::new(source)))?;
    let builder = builder.with_layer(&counted);
    let Some(qps) = connection.qps else {
        return Ok(builder.build());
    };
    let bucket = Arc::new(Mutex::new(Bucket::new(qps, connection.burst)));
    let layer = MapFutureLayer::new(move |answer| {
        let bucket = Arc::clone(&bucket);
        async move {
            let at = bucket.lock().take(Instant::now());
            tokio::time::sleep_until(at).await;
            // the request is sent only when this is polled
            answer.await
        }
    });
    Ok(builder.with_layer(&layer).build())
}
