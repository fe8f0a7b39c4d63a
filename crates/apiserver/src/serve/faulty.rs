//! What serving has of its own for faults: the time in which the server is down, and the requests that ask for faults.

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

use super::{Body, LARGEST_BODY, json_response, respond_with, text_body};
use crate::Shared;
use crate::authz::{Attributes, User};
use crate::failure::Failure;
use crate::faults::{self, Faults};

/// How long the port may stay in use: a process that is about to be started has a copy of the listener until it is.
const PORT_FREE: Duration = Duration::from_secs(10);
/// Pause between two tries to have the port.
const AGAIN: Duration = Duration::from_millis(5);

/// The server is down: nothing is open, but its port stays taken. Returns with the listener of the time after it.
pub(super) async fn outage(
    listener: TcpListener,
    connections: &mut JoinSet<()>,
    shared: &Shared,
) -> std::io::Result<TcpListener> {
    let address = listener.local_addr()?;
    drop(listener);
    let socket = bound(address).await?;
    connections.shutdown().await;
    shared.faults.listens(false);
    shared.faults.taken_up().await;
    let listener = socket.listen(1024)?;
    shared.faults.listens(true);
    Ok(listener)
}

/// A socket that is bound but does not listen: it refuses connections and keeps others from the port.
async fn bound(address: SocketAddr) -> std::io::Result<TcpSocket> {
    let deadline = Instant::now() + PORT_FREE;
    loop {
        let socket = match address {
            SocketAddr::V4(_) => TcpSocket::new_v4()?,
            SocketAddr::V6(_) => TcpSocket::new_v6()?,
        };
        socket.set_reuseaddr(true)?;
        match socket.bind(address) {
            Err(error) if error.kind() == ErrorKind::AddrInUse && Instant::now() < deadline => {
                tokio::time::sleep(AGAIN).await;
            }
            outcome => return outcome.map(|()| socket),
        }
    }
}

/// 429 as priority and fairness gives it, which is no `Status`.
pub(super) fn busy(seconds: u64) -> Response<Body> {
    let body = text_body("Too many requests, please try again later.\n");
    let mut response = respond_with(429, "text/plain; charset=utf-8", body, &[]);
    response
        .headers_mut()
        .insert(header::RETRY_AFTER, seconds.into());
    response
}

/// The faults, for who may do anything; the segments are those after the first.
pub(super) async fn testing(
    shared: &Arc<Shared>,
    user: &User,
    request: HttpRequest<Incoming>,
    segments: &[&str],
) -> Result<Response<Body>, Failure> {
    let (parts, body) = request.into_parts();
    let asked = Attributes {
        verb: &parts.method.as_str().to_lowercase(),
        path: parts.uri.path(),
        ..Attributes::default()
    };
    if !user.groups.iter().any(|group| group == "system:masters") {
        return Err(Failure::forbidden_path(&asked.refusal(user)));
    }
    let body = Limited::new(body, LARGEST_BODY)
        .collect()
        .await
        .map_err(|_| Failure::too_large())?
        .to_bytes();
    let faults = Faults::new(Arc::clone(shared));
    let answer = faults::http::answer(&faults, &parts.method, segments, &body)?;
    Ok(json_response(200, &answer, &[]))
}
