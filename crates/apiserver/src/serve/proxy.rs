//! Requests that kubelets answer: the proxy of a node, logs of containers, and the streams of exec, attach and port-forward. Proxies of
//! pods and services are here, too. Kubelets are found as in a real server, by the address and the port in the status of their node; their
//! certificates are not verified. Upgraded connections are copied in both directions.

use std::net::IpAddr;
use std::sync::Arc;

use http::header::{self, HeaderValue};
use http::{Request as HttpRequest, Response, StatusCode, Uri};
use hyper::body::Incoming;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

use self::forward::{connect, empty, forward, forwarded_response, refusal, unreachable_service};
use self::location::{Location, kubelet, split};
use self::pods::{pod_proxy, pod_request};
use self::services::service;
use super::answers::Body;
use super::shared::Shared;
use crate::access::target::Target;
use crate::failure::Failure;
use crate::storage::State;

mod forward;
mod location;
mod pods;
mod services;

/// Returns whether a kubelet, a pod or a service answers a request.
pub(super) fn answers(target: &Target<'_>) -> bool {
    target.group.is_empty()
        && match target.plural {
            "nodes" | "services" => target.subresource == "proxy",
            "pods" => {
                ["log", "exec", "attach", "portforward", "proxy"].contains(&target.subresource)
            }
            _ => false,
        }
}

/// Forwards a request.
pub(super) async fn proxy(
    shared: &Shared,
    request: HttpRequest<Incoming>,
    target: &Target<'_>,
) -> Result<Response<Body>, Failure> {
    let found = {
        let state = shared.store.lock();
        locate(&state, request.uri(), target)?
    };
    let Some(location) = found else {
        // there is no log yet
        let mut response = Response::new(empty());
        *response.status_mut() = StatusCode::NO_CONTENT;
        return Ok(response);
    };
    let proxied = target.subresource == "proxy";
    if proxied && is_forbidden_address(&location.host, shared.proxies_to_loopback) {
        return Err(Failure::bad_request("address not allowed"));
    }
    if proxied && location.path.is_empty() {
        return Ok(redirect_to_directory(request.uri()));
    }
    let upgrades = request.headers().contains_key(header::UPGRADE);
    let response = if location.secure {
        let stream = connect(&location, proxied).await?;
        let name = ServerName::try_from(location.host.clone())
            .map_err(|error| unreachable_service(&location, &error))?;
        let stream = TlsConnector::from(Arc::clone(&shared.kubelet_client))
            .connect(name, stream)
            .await
            .map_err(|error| unreachable_service(&location, &error))?;
        forward(stream, request, &location).await?
    } else {
        let stream = connect(&location, proxied).await?;
        forward(stream, request, &location).await?
    };
    let refused = !response.status().is_success() && !response.status().is_redirection();
    if !proxied && refused && response.status() != StatusCode::SWITCHING_PROTOCOLS && !upgrades {
        return Err(refusal(target, response).await);
    }
    Ok(forwarded_response(response))
}

/// Returns whether clients may not reach an address through the server: loopback addresses, unless allowed, and link-local ones.
fn is_forbidden_address(host: &str, allows_loopback: bool) -> bool {
    let Ok(address) = host.parse::<IpAddr>() else {
        return false;
    };
    let is_link_local = match address {
        IpAddr::V4(address) => address.is_link_local() || address.octets()[..3] == [224, 0, 0],
        IpAddr::V6(address) => {
            address.is_unicast_link_local()
                || matches!(address.segments()[0] & 0xff0f, 0xff01 | 0xff02)
        }
    };
    is_link_local || address.is_loopback() && !allows_loopback
}

/// Redirects to the path with a slash at its end, because the path of a proxy is a directory.
fn redirect_to_directory(uri: &Uri) -> Response<Body> {
    let query = uri
        .query()
        .map(|query| format!("?{query}"))
        .unwrap_or_default();
    let mut response = Response::new(empty());
    *response.status_mut() = StatusCode::MOVED_PERMANENTLY;
    if let Ok(place) = HeaderValue::from_str(&format!("{}/{query}", uri.path())) {
        response.headers_mut().insert(header::LOCATION, place);
    }
    response
}

fn locate(state: &State, uri: &Uri, target: &Target<'_>) -> Result<Option<Location>, Failure> {
    let rest = || {
        let path = uri.path();
        let marker = format!("/{}", target.subresource);
        let after = path
            .find(&marker)
            .map_or("", |start| &path[start + marker.len()..]);
        match uri.query() {
            Some(query) if !after.is_empty() => format!("{after}?{query}"),
            _ => after.to_owned(),
        }
    };
    match (target.plural, target.subresource) {
        ("nodes", _) => {
            let (scheme, name, port) = split(target.name);
            let mut location = kubelet(state, name)?;
            if let Some(port) = port
                && port != location.port
            {
                location.port = port;
                location.secure = scheme == "https";
            }
            location.path = rest();
            Ok(Some(location))
        }
        ("pods", "proxy") => pod_proxy(state, target, rest()).map(Some),
        ("services", _) => service(state, target, &rest()).map(Some),
        _ => pod_request(state, uri, target),
    }
}
