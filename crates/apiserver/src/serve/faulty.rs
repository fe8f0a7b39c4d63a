//! Faults in connections and routes: outages of the server, and the requests that control faults.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{Request as HttpRequest, Response, header};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use tokio::net::{TcpListener, TcpSocket};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::answers::{Body, json_response, respond_with, text_body};
use super::requests::LARGEST_BODY;
use super::shared::Shared;
use crate::access::authz::Attributes;
use crate::access::identity::User;
use crate::failure::Failure;
use crate::faults::{self, Faults};

/// How long the port may stay in use: a child process that is being started holds a copy of the listener until it runs its own program.
const BIND_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval between two attempts to bind the port.
const BIND_RETRY_INTERVAL: Duration = Duration::from_millis(5);

/// Keeps the server down: nothing is open, but its port stays bound. Returns the listener to use after the outage.
pub(super) async fn outage(
    listener: TcpListener,
    connections: &mut JoinSet<()>,
    shared: &Shared,
) -> std::io::Result<TcpListener> {
    let address = listener.local_addr()?;
    drop(listener);
    let socket = bind_without_listening(address).await?;
    connections.shutdown().await;
    shared.faults.set_listening(false);
    shared.faults.wait_until_up().await;
    let listener = socket.listen(1024)?;
    shared.faults.set_listening(true);
    Ok(listener)
}

/// Binds a socket without listening: it refuses connections and keeps other processes from the port.
async fn bind_without_listening(address: SocketAddr) -> std::io::Result<TcpSocket> {
    let deadline = Instant::now() + BIND_TIMEOUT;
    loop {
        let socket = match address {
            SocketAddr::V4(_) => TcpSocket::new_v4()?,
            SocketAddr::V6(_) => TcpSocket::new_v6()?,
        };
        socket.set_reuseaddr(true)?;
        match socket.bind(address) {
            Err(error) if error.kind() == ErrorKind::AddrInUse && Instant::now() < deadline => {
                tokio::time::sleep(BIND_RETRY_INTERVAL).await;
            }
            outcome => return outcome.map(|()| socket),
        }
    }
}

/// Returns the 429 of API priority and fairness, which is not a `Status`.
pub(super) fn busy(seconds: u64) -> Response<Body> {
    let body = text_body("Too many requests, please try again later.\n");
    let mut response = respond_with(429, "text/plain; charset=utf-8", body, &[]);
    response
        .headers_mut()
        .insert(header::RETRY_AFTER, seconds.into());
    response
}

/// Answers requests that control faults, for members of `system:masters`. `segments` are the path segments after the first.
pub(super) async fn testing(
    shared: &Arc<Shared>,
    user: &User,
    request: HttpRequest<Incoming>,
    segments: &[&str],
) -> Result<Response<Body>, Failure> {
    let (parts, body) = request.into_parts();
    let attributes = Attributes {
        verb: &parts.method.as_str().to_lowercase(),
        path: parts.uri.path(),
        ..Attributes::default()
    };
    if !user.groups.iter().any(|group| group == "system:masters") {
        return Err(Failure::forbidden_path(&attributes.refusal(user)));
    }
    let body = Limited::new(body, LARGEST_BODY)
        .collect()
        .await
        .map_err(|_| Failure::too_large())?
        .to_bytes();
    let faults = Faults::new(Arc::clone(&shared.faults), Arc::clone(&shared.store));
    let answer = faults::http::answer(&faults, &parts.method, segments, &body)?;
    Ok(json_response(200, &answer, &[]))
}
