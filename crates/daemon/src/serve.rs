//! One listener, plain or TLS, that serves a router until its token is cancelled.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::serve::Listener;
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;

mod plain;

/// A client that has not finished its handshake after this time is dropped.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of connections that wait to be served after their handshake.
const BACKLOG: usize = 64;
/// Maximum number of connections that wait to be accepted.
const PENDING: u32 = 1024;

/// Listens on an address. `shared` lets other processes listen there, too. Must be called inside a tokio runtime.
pub fn listen(address: SocketAddr, shared: bool) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    // so that a restart need not wait for old connections to be forgotten; Go does the same
    socket.set_reuseaddr(true)?;
    socket.set_reuseport(shared)?;
    socket.bind(address)?;
    socket.listen(PENDING)
}

/// Serves `router` on `listener` until `stop` is cancelled and the open requests are answered. Uses TLS if there is a configuration.
pub async fn serve(
    listener: TcpListener,
    tls: Option<Arc<ServerConfig>>,
    router: Router,
    stop: CancellationToken,
) -> io::Result<()> {
    match tls {
        None => {
            axum::serve(listener, router)
                .with_graceful_shutdown(stop.cancelled_owned())
                .await
        }
        Some(config) => {
            let listener = TlsListener::start(listener, config, stop.clone())?;
            axum::serve(listener, router)
                .with_graceful_shutdown(stop.cancelled_owned())
                .await
        }
    }
}

/// Does TLS handshakes in their own tasks, so that one slow client does not block the others.
struct TlsListener {
    ready: mpsc::Receiver<(TlsStream<TcpStream>, SocketAddr)>,
    address: SocketAddr,
}

impl TlsListener {
    fn start(
        listener: TcpListener,
        config: Arc<ServerConfig>,
        stop: CancellationToken,
    ) -> io::Result<Self> {
        let address = listener.local_addr()?;
        let (sender, ready) = mpsc::channel(BACKLOG);
        tokio::spawn(async move {
            let mut listener = listener;
            let acceptor = TlsAcceptor::from(config);
            loop {
                let (stream, peer) = tokio::select! {
                    () = stop.cancelled() => return,
                    accepted = Listener::accept(&mut listener) => accepted,
                };
                let (acceptor, sender) = (acceptor.clone(), sender.clone());
                tokio::spawn(async move {
                    match tokio::time::timeout(HANDSHAKE_TIMEOUT, greet(acceptor, stream)).await {
                        // Sending fails only after the server has stopped.
                        Ok(Ok(Some(stream))) => drop(sender.send((stream, peer)).await),
                        Ok(Ok(None)) => {
                            tracing::debug!(%peer, "Client sent an HTTP request to an HTTPS server");
                        }
                        Ok(Err(error)) => tracing::debug!(%peer, %error, "TLS handshake failed"),
                        Err(_) => tracing::debug!(%peer, "TLS handshake took too long"),
                    }
                });
            }
        });
        Ok(Self { ready, address })
    }
}

/// Does the handshake; `None` if the client does not speak TLS, which it is told.
async fn greet(
    acceptor: TlsAcceptor,
    stream: TcpStream,
) -> io::Result<Option<TlsStream<TcpStream>>> {
    if plain::is_spoken(&stream).await? {
        plain::refuse(stream).await?;
        return Ok(None);
    }
    acceptor.accept(stream).await.map(Some)
}

impl Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        match self.ready.recv().await {
            Some(connection) => connection,
            // The accept loop ended because the server is stopping: no connection will arrive.
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls;
    use axum::routing::get;
    use rustls::pki_types::ServerName;
    use rustls::{ClientConfig, RootCertStore};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio_rustls::TlsConnector;

    async fn read_answer(
        mut stream: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
    ) -> String {
        stream
            .write_all(b"GET /ping HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            .await
            .expect("request");
        let mut text = String::new();
        // A peer that closes without close_notify is no failure here.
        drop(stream.read_to_string(&mut text).await);
        text
    }

    /// What Go's server says to plain HTTP on a TLS port: users look for this sentence.
    const REFUSED: &str =
        "HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";

    #[rstest::rstest]
    #[case::get(&["GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"], true)]
    #[case::head(&["HEAD / HTTP/1.1\r\n\r\n"], true)]
    #[case::post(&["POST / HTTP/1.1\r\nContent-Length: 4\r\n\r\nbody"], true)]
    #[case::in_pieces(&["G", "ET", " /metrics HTTP/1.1\r\n\r\n"], true)]
    #[case::something_else(&["GETTING"], false)]
    #[tokio::test]
    async fn plain_http_on_a_tls_port_is_told_so(#[case] sent: &[&str], #[case] told: bool) {
        crate::client::install_crypto_provider();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("listen");
        let address = listener.local_addr().expect("address");
        let certificate = tls::self_signed(&["localhost".to_owned()]).expect("certificate");
        let tls = tls::server_config(certificate, &tls::Options::default()).expect("config");
        let stop = CancellationToken::new();
        let server = tokio::spawn(serve(listener, Some(tls), Router::new(), stop.clone()));
        let mut stream = TcpStream::connect(address).await.expect("connect");
        stream.set_nodelay(true).expect("set");
        for piece in sent {
            stream.write_all(piece.as_bytes()).await.expect("sent");
            tokio::task::yield_now().await;
        }
        let mut answer = Vec::new();
        let read = stream.read_to_end(&mut answer).await;
        let answer = String::from_utf8_lossy(&answer);
        assert_eq!(answer == REFUSED, told, "{read:?}: {answer}");
        stop.cancel();
        server.await.expect("joined").expect("served");
    }

    #[tokio::test]
    async fn plain_and_tls_serve_the_same_router_and_stop() {
        crate::client::install_crypto_provider();
        let router = Router::new().route("/ping", get(|| async { "pong" }));
        for secure in [false, true] {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("listen");
            let address = listener.local_addr().expect("address");
            let certificate = tls::self_signed(&["localhost".to_owned()]).expect("certificate");
            let chain = certificate.chain();
            let tls = secure.then(|| {
                tls::server_config(certificate, &tls::Options::default()).expect("config")
            });
            let stop = CancellationToken::new();
            let server = tokio::spawn(serve(listener, tls, router.clone(), stop.clone()));
            let stream = TcpStream::connect(address).await.expect("connect");
            let answer = if secure {
                let mut roots = RootCertStore::empty();
                roots.add(chain[0].clone()).expect("root");
                let config = ClientConfig::builder()
                    .with_root_certificates(roots)
                    .with_no_client_auth();
                let name = ServerName::try_from("localhost").expect("name");
                read_answer(
                    TlsConnector::from(Arc::new(config))
                        .connect(name, stream)
                        .await
                        .expect("handshake"),
                )
                .await
            } else {
                read_answer(stream).await
            };
            assert!(
                answer.starts_with("HTTP/1.1 200") && answer.ends_with("pong"),
                "{answer}"
            );
            stop.cancel();
            server.await.expect("joined").expect("served");
        }
    }
}
