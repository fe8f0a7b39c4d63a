//! One listener, plain or TLS, that serves a router until its token is cancelled. No client can hold it up or wear it out: connections, their
//! requests and their silence are limited.
//!
//! `plain` answers those who speak plain HTTP to a TLS port.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::rt::{Read, Write};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use nix::sys::socket::{setsockopt, sockopt};
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;

mod plain;

/// Maximum number of connections at the same time. More of them wait in the kernel until one ends.
const CONNECTIONS: usize = 256;
/// A client that has not finished its handshake after this time is dropped.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a client may take for the head of a request, and be silent between two requests. As in Kubernetes' controllers.
const HEAD_TIMEOUT: Duration = Duration::from_secs(32);
/// How long what was sent may be left unacknowledged, or wait because the client takes nothing: the kernel closes the connection then.
const STALLED_MILLISECONDS: u32 = 32_000;
/// Largest head of a request, in bytes.
const LARGEST_HEAD: usize = 32 * 1024;
/// How long requests in progress may take after the end was asked for.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(5);
/// Pause after a failure to accept, which is mostly the want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);
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

/// Serves `router` on `listener` until `stop` is cancelled and the open requests are answered, at most for five seconds. Uses TLS if
/// there is a configuration.
pub async fn serve(
    listener: TcpListener,
    tls: Option<Arc<ServerConfig>>,
    router: Router,
    stop: CancellationToken,
) {
    let acceptor = tls.map(TlsAcceptor::from);
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    // those that are left at the end are closed with the set
    let mut connections = JoinSet::new();
    loop {
        let accepted = async {
            let place = Arc::clone(&places).acquire_owned().await;
            // the semaphore is never closed
            let place = place.map_err(io::Error::other)?;
            let (stream, peer) = listener.accept().await?;
            setsockopt(&stream, sockopt::TcpUserTimeout, &STALLED_MILLISECONDS)?;
            Ok::<_, io::Error>((place, stream, peer))
        };
        let (place, stream, peer) = tokio::select! {
            () = stop.cancelled() => break,
            Some(_) = connections.join_next() => continue,
            accepted = accepted => match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "Connection not accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            },
        };
        let (acceptor, router) = (acceptor.clone(), router.clone());
        let stop = stop.clone();
        connections.spawn(async move {
            converse(acceptor, stream, peer, router, stop).await;
            drop(place);
        });
    }
    drop(listener);
    let all = async { while connections.join_next().await.is_some() {} };
    if timeout(SHUTDOWN_LIMIT, all).await.is_err() {
        tracing::warn!("Some connections were closed before their requests were answered");
    }
}

/// Serves one connection to its end.
async fn converse(
    acceptor: Option<TlsAcceptor>,
    stream: TcpStream,
    peer: SocketAddr,
    router: Router,
    stop: CancellationToken,
) {
    let Some(acceptor) = acceptor else {
        return answer(stream, peer, router, stop).await;
    };
    let greeted = tokio::select! {
        () = stop.cancelled() => return,
        greeted = timeout(HANDSHAKE_TIMEOUT, greet(acceptor, stream)) => greeted,
    };
    match greeted {
        Ok(Ok(Some(stream))) => answer(stream, peer, router, stop).await,
        Ok(Ok(None)) => {
            tracing::debug!(%peer, "Client sent an HTTP request to an HTTPS server");
        }
        Ok(Err(error)) => tracing::debug!(%peer, %error, "TLS handshake failed"),
        Err(_) => tracing::debug!(%peer, "TLS handshake took too long"),
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

/// Answers the requests of one connection.
async fn answer<S>(stream: S, peer: SocketAddr, router: Router, stop: CancellationToken)
where
    TokioIo<S>: Read + Write + Unpin,
{
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(LARGEST_HEAD)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let mut connection = pin!(connection);
    let result = tokio::select! {
        result = connection.as_mut() => result,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = result {
        tracing::debug!(%peer, error = %crate::log::chain(&error), "Connection ended");
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
        server.await.expect("joined");
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
            server.await.expect("joined");
        }
    }

    /// Starts a server whose `/ping` answers and whose `/slow` never does. Returns its address, its end, and itself.
    async fn mk_server() -> (SocketAddr, CancellationToken, tokio::task::JoinHandle<()>) {
        let router = Router::new()
            .route("/ping", get(|| async { "pong" }))
            .route("/slow", get(std::future::pending::<()>));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("listen");
        let address = listener.local_addr().expect("address");
        let stop = CancellationToken::new();
        let server = tokio::spawn(serve(listener, None, router, stop.clone()));
        (address, stop, server)
    }

    /// Lets the other tasks do what the connections have brought, then lets this time pass at once.
    async fn pass(time: Duration) {
        tokio::time::sleep(Duration::from_millis(200)).await;
        tokio::time::pause();
        tokio::time::advance(time).await;
        tokio::time::resume();
    }

    #[rstest::rstest]
    #[case::silence("")]
    #[case::half_a_head("GET /ping HTTP/1.1\r\nHost: x\r\n")]
    #[case::silence_after_an_answer("GET /ping HTTP/1.1\r\nHost: x\r\n\r\n")]
    #[tokio::test]
    async fn a_client_that_hangs_loses_its_connection(#[case] sent: &str) {
        let (address, stop, server) = mk_server().await;
        let mut stream = TcpStream::connect(address).await.expect("connect");
        stream.write_all(sent.as_bytes()).await.expect("sent");
        pass(HEAD_TIMEOUT + Duration::from_secs(1)).await;
        let read = async {
            let mut answer = Vec::new();
            drop(stream.read_to_end(&mut answer).await);
        };
        let closed = timeout(Duration::from_secs(10), read).await;
        closed.expect("the server closes");
        stop.cancel();
        server.await.expect("joined");
    }

    #[tokio::test]
    async fn slow_clients_leave_room_for_others() {
        let (address, stop, server) = mk_server().await;
        let mut slow = Vec::new();
        for _ in 0..200 {
            let mut stream = TcpStream::connect(address).await.expect("connect");
            stream.write_all(b"GET /ping HTT").await.expect("sent");
            slow.push(stream);
        }
        let stream = TcpStream::connect(address).await.expect("connect");
        let answer = timeout(Duration::from_secs(10), read_answer(stream)).await;
        assert!(answer.expect("in time").ends_with("pong"));
        stop.cancel();
        server.await.expect("joined");
    }

    #[tokio::test]
    async fn connections_beyond_the_limit_wait_until_others_end() {
        let (address, stop, server) = mk_server().await;
        let mut open = Vec::new();
        for _ in 0..CONNECTIONS {
            open.push(TcpStream::connect(address).await.expect("connect"));
        }
        let stream = TcpStream::connect(address).await.expect("connect");
        let mut waiting = tokio::spawn(read_answer(stream));
        let early = timeout(Duration::from_millis(300), &mut waiting).await;
        assert!(early.is_err(), "it was served beside the others");
        open.truncate(CONNECTIONS - 1);
        let answer = timeout(Duration::from_secs(10), waiting)
            .await
            .expect("in time");
        assert!(answer.expect("joined").ends_with("pong"));
        stop.cancel();
        server.await.expect("joined");
    }

    #[tokio::test]
    async fn a_head_that_is_too_large_is_refused() {
        let (address, stop, server) = mk_server().await;
        let mut stream = TcpStream::connect(address).await.expect("connect");
        let head = format!(
            "GET /ping HTTP/1.1\r\nHost: x\r\nX: {}\r\n\r\n",
            "x".repeat(2 * LARGEST_HEAD)
        );
        // the server may close before it has all
        drop(stream.write_all(head.as_bytes()).await);
        let mut answer = Vec::new();
        drop(stream.read_to_end(&mut answer).await);
        let answer = String::from_utf8_lossy(&answer);
        assert!(
            answer.is_empty() || answer.starts_with("HTTP/1.1 431"),
            "{answer}"
        );
        stop.cancel();
        server.await.expect("joined");
    }

    #[tokio::test]
    async fn a_request_that_never_ends_does_not_hold_up_the_end() {
        let (address, stop, server) = mk_server().await;
        let mut stream = TcpStream::connect(address).await.expect("connect");
        stream
            .write_all(b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n")
            .await
            .expect("sent");
        tokio::time::sleep(Duration::from_millis(200)).await;
        stop.cancel();
        pass(SHUTDOWN_LIMIT + Duration::from_secs(1)).await;
        timeout(Duration::from_secs(10), server)
            .await
            .expect("it ends")
            .expect("joined");
    }
}
