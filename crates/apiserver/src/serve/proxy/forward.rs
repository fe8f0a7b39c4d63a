//! Forwards a request over a new connection. Upgraded connections are copied in both directions.

use http::header::{self, HeaderMap, HeaderValue};
use http::{Request as HttpRequest, Response, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::location::Location;
use crate::access::target::Target;
use crate::failure::{Failure, Subject};
use crate::serve::answers::Body;

/// Largest refusal of a kubelet that is read, in bytes.
const LARGEST_REFUSAL: usize = 10_000;

/// Returns the refusal of a request whose backend cannot be reached.
pub(super) fn unreachable_service(location: &Location, error: &dyn std::fmt::Display) -> Failure {
    Failure::unreachable(format!(
        "error trying to reach service: {error} ({})",
        location.authority()
    ))
}

/// Opens a connection to the backend.
pub(super) async fn connect(location: &Location, proxied: bool) -> Result<TcpStream, Failure> {
    TcpStream::connect(location.authority())
        .await
        .map_err(|error| {
            let why = if error.kind() == std::io::ErrorKind::ConnectionRefused {
                "connect: connection refused".to_owned()
            } else {
                error.to_string()
            };
            let why = format!("dial tcp {}: {why}", location.authority());
            if proxied {
                Failure::unreachable(format!("error trying to reach service: {why}"))
            } else {
                let scheme = if location.secure { "https" } else { "http" };
                Failure::internal(format!(
                    "Get {:?}: {why}",
                    format!("{scheme}://{}{}", location.authority(), location.path)
                ))
            }
        })
}

/// Sends the request over a new connection; if it is upgraded, both connections are joined.
pub(super) async fn forward<S>(
    stream: S,
    mut request: HttpRequest<Incoming>,
    location: &Location,
) -> Result<Response<Incoming>, Failure>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let broken = |error: hyper::Error| unreachable_service(location, &error);
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(broken)?;
    tokio::spawn(async move {
        if let Err(error) = connection.with_upgrades().await {
            tracing::debug!(%error, "Connection to a kubelet ended");
        }
    });
    let client = request
        .headers()
        .contains_key(header::UPGRADE)
        .then(|| hyper::upgrade::on(&mut request));
    *request.uri_mut() = location
        .path
        .parse()
        .map_err(|error| unreachable_service(location, &error))?;
    rewrite_headers(request.headers_mut(), &location.authority());
    let mut response = sender.send_request(request).await.map_err(broken)?;
    if response.status() == StatusCode::SWITCHING_PROTOCOLS
        && let Some(client) = client
    {
        let kubelet = hyper::upgrade::on(&mut response);
        tokio::spawn(async move {
            let (client, kubelet) = match tokio::try_join!(client, kubelet) {
                Ok(both) => both,
                Err(error) => {
                    tracing::debug!(%error, "Cannot upgrade a connection");
                    return;
                }
            };
            let copied = tokio::io::copy_bidirectional(
                &mut TokioIo::new(client),
                &mut TokioIo::new(kubelet),
            )
            .await;
            if let Err(error) = copied {
                tracing::debug!(%error, "Upgraded connection ended");
            }
        });
    }
    Ok(response)
}

/// Removes the client's credentials and impersonation headers, and sets the host.
fn rewrite_headers(headers: &mut HeaderMap, authority: &str) {
    headers.remove(header::AUTHORIZATION);
    let impersonation: Vec<header::HeaderName> = headers
        .keys()
        .filter(|name| name.as_str().starts_with("impersonate-"))
        .cloned()
        .collect();
    for name in impersonation {
        headers.remove(name);
    }
    if let Ok(host) = HeaderValue::from_str(authority) {
        headers.insert(header::HOST, host);
    }
}

/// Returns the answer of the backend as that of this server.
pub(super) fn forwarded_response(response: Response<Incoming>) -> Response<Body> {
    let (mut parts, body) = response.into_parts();
    if parts.status == StatusCode::SWITCHING_PROTOCOLS {
        return Response::from_parts(parts, empty());
    }
    parts.headers.remove(header::CONNECTION);
    parts.headers.remove(header::TRANSFER_ENCODING);
    Response::from_parts(parts, body.map_err(Into::into).boxed_unsync())
}

/// Makes an empty body.
pub(super) fn empty() -> Body {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}

/// Converts a kubelet's refusal.
pub(super) async fn refusal(target: &Target<'_>, response: Response<Incoming>) -> Failure {
    let status = response.status();
    let body = http_body_util::Limited::new(response.into_body(), LARGEST_REFUSAL)
        .collect()
        .await
        .map(http_body_util::Collected::to_bytes)
        .unwrap_or_default();
    let text = String::from_utf8_lossy(&body).into_owned();
    match status.as_u16() {
        400 => Failure::bad_request(text),
        500 => Failure::internal(text),
        code => Failure::of_backend(
            code,
            &Subject {
                group: "",
                resource: "pods/log",
                name: target.name,
            },
            &text,
        ),
    }
}
