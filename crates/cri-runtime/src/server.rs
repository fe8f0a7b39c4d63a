//! The `node` process, which serves the CRI and the control protocol on their sockets.

use std::sync::Arc;

use anyhow::Context as _;
use podresources::server::Listener;
use podresources::socket::Socket;

use super::cri::Cri;
use super::cri::stream_server::Streaming;
use super::runtime::Runtime;
use super::spec::NodeSpec;
use super::{control, stop};

/// Serves until `SIGTERM` or `SIGINT`; all containers end with this process.
pub async fn run(spec: NodeSpec) -> anyhow::Result<()> {
    let stop = stop::signalled().context("cannot watch signals")?;
    let control_socket = spec.control_socket.clone();
    let cri_socket = Socket::new(spec.cri_socket.clone()).context("unusable CRI socket")?;
    let node = spec.node.clone();
    let runtime = Runtime::start(spec)
        .await
        .map_err(|error| anyhow::anyhow!(error.chain()))
        .context("cannot start the node's runtime")?;
    let runtime = Arc::new(runtime);
    // The control socket comes first: a client that sees the CRI socket may use both.
    let control = tokio::spawn(control::server::serve(
        control::server::listen(&control_socket)?,
        Arc::clone(&runtime),
    ));
    let streaming = Streaming::start(Arc::clone(&runtime))
        .await
        .context("cannot listen for streams")?;
    let listener = Listener::bind(&cri_socket, 0o600).await?;
    tracing::info!(node, socket = %cri_socket, "Serving the CRI");
    let outcome = listener
        .serve(Cri::new(runtime, streaming).routes(), stop)
        .await;
    control.abort();
    // The socket may already be removed.
    let _ = std::fs::remove_file(&control_socket);
    Ok(outcome?)
}
