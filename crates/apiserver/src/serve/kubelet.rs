//! Requests that kubelets answer: the proxy of a node, logs of containers, and the streams of exec, attach and port-forward. Proxies of
//! pods and services are here, too. Kubelets are found as in a real server, by the address and the port in the status of their node; their
//! certificates are not verified. Upgraded connections are copied in both directions.

use std::net::IpAddr;
use std::sync::Arc;

use form_urlencoded::Serializer;
use http::header::{self, HeaderMap, HeaderValue};
use http::{Request as HttpRequest, Response, StatusCode, Uri};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

use super::Body;
use super::shared::Shared;
use crate::access::target::Target;
use crate::failure::{Cause, Failure, Subject};
use crate::storage::State;

/// Default port of kubelets.
const KUBELET_PORT: u64 = 10250;
/// Largest refusal of a kubelet that is read, in bytes.
const LARGEST_REFUSAL: usize = 10_000;

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

/// The target of a proxied request.
#[derive(Debug, PartialEq)]
struct Location {
    secure: bool,
    host: String,
    port: u64,
    /// Path and query.
    path: String,
}

impl Location {
    fn authority(&self) -> String {
        format!("{}:{}", self.host, self.port)
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

fn unreachable_service(location: &Location, error: &dyn std::fmt::Display) -> Failure {
    Failure::unreachable(format!(
        "error trying to reach service: {error} ({})",
        location.authority()
    ))
}

async fn connect(location: &Location, proxied: bool) -> Result<TcpStream, Failure> {
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
async fn forward<S>(
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

fn forwarded_response(response: Response<Incoming>) -> Response<Body> {
    let (mut parts, body) = response.into_parts();
    if parts.status == StatusCode::SWITCHING_PROTOCOLS {
        return Response::from_parts(parts, empty());
    }
    parts.headers.remove(header::CONNECTION);
    parts.headers.remove(header::TRANSFER_ENCODING);
    Response::from_parts(parts, body.map_err(Into::into).boxed_unsync())
}

fn empty() -> Body {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}

/// Converts a kubelet's refusal.
async fn refusal(target: &Target<'_>, response: Response<Incoming>) -> Failure {
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

/// Splits `scheme:name:port`, of which only the name is required.
fn split(text: &str) -> (&str, &str, Option<u64>) {
    let parts: Vec<&str> = text.split(':').collect();
    match parts.as_slice() {
        [scheme, name, port] => (scheme, name, port.parse().ok()),
        [name, port] => ("", name, port.parse().ok()),
        _ => ("", text, None),
    }
}

/// Returns the address of a node's kubelet.
fn kubelet(state: &State, name: &str) -> Result<Location, Failure> {
    let node = state.get("nodes", "", name).ok_or_else(|| {
        Failure::not_found(&Subject {
            group: "",
            resource: "nodes",
            name,
        })
    })?;
    let addresses = node["status"]["addresses"].as_array();
    let host = addresses
        .into_iter()
        .flatten()
        .find(|address| address["type"] == "InternalIP")
        .and_then(|address| address["address"].as_str())
        .ok_or_else(|| {
            let known: Vec<String> = addresses
                .into_iter()
                .flatten()
                .map(|address| {
                    format!(
                        "{{{} {}}}",
                        address["type"].as_str().unwrap_or_default(),
                        address["address"].as_str().unwrap_or_default()
                    )
                })
                .collect();
            Failure::internal(format!(
                "no preferred addresses found; known addresses: [{}]",
                known.join(" ")
            ))
        })?;
    let port = node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"]
        .as_u64()
        .filter(|port| *port > 0)
        .unwrap_or(KUBELET_PORT);
    Ok(Location {
        secure: true,
        host: host.to_owned(),
        port,
        path: String::new(),
    })
}

fn find_pod<'s>(state: &'s State, target: &Target<'_>, name: &str) -> Result<&'s Value, Failure> {
    state
        .get("pods", target.namespace, name)
        .map(|pod| &**pod)
        .ok_or_else(|| {
            Failure::not_found(&Subject {
                group: "",
                resource: "pods",
                name,
            })
        })
}

/// Returns the requested container: the named one, or the only one.
fn container(pod: &Value, container: &str) -> Result<String, Failure> {
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    let names = |list: &str| -> Vec<String> {
        let list = pod["spec"][list].as_array().into_iter().flatten();
        list.filter_map(|container| container["name"].as_str())
            .map(str::to_owned)
            .collect()
    };
    let (main, first, later) = (
        names("containers"),
        names("initContainers"),
        names("ephemeralContainers"),
    );
    if container.is_empty() {
        return match main.as_slice() {
            [one] => Ok(one.clone()),
            [] => Err(Failure::bad_request(format!(
                "a container name must be specified for pod {name}"
            ))),
            many => {
                let mut text = format!(
                    "a container name must be specified for pod {name}, choose one of: [{}]",
                    many.join(" ")
                );
                for (kind, list) in [("init", first), ("ephemeral", later)] {
                    if !list.is_empty() {
                        text.push_str(" or one of the ");
                        text.push_str(kind);
                        text.push_str(" containers: [");
                        text.push_str(&list.join(" "));
                        text.push(']');
                    }
                }
                Err(Failure::bad_request(text))
            }
        };
    }
    if [main, first, later]
        .iter()
        .any(|list| list.iter().any(|known| known == container))
    {
        return Ok(container.to_owned());
    }
    Err(Failure::bad_request(format!(
        "container {container} is not valid for pod {name}"
    )))
}

/// Checks the numbers in the query of a log.
fn check_log_options<'q>(name: &str, value: &dyn Fn(&str) -> &'q str) -> Result<(), Failure> {
    let mut causes = Vec::new();
    for (field, least, why) in [
        ("tailLines", 0, "must be greater than or equal to 0"),
        ("limitBytes", 1, "must be greater than 0"),
        ("sinceSeconds", 1, "must be greater than 0"),
    ] {
        if let Ok(number) = value(field).parse::<i64>()
            && number < least
        {
            causes.push(Cause::invalid(field, &serde_json::json!(number), why));
        }
    }
    if causes.is_empty() {
        return Ok(());
    }
    let subject = Subject {
        group: "",
        resource: "PodLogOptions",
        name,
    };
    Err(Failure::invalid(&subject, &causes))
}

/// Returns where a pod's kubelet answers a request about it; `None` for the log of a pod that is not bound to a node yet.
fn pod_request(state: &State, uri: &Uri, target: &Target<'_>) -> Result<Option<Location>, Failure> {
    let pairs: Vec<(String, String)> =
        form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes())
            .into_owned()
            .collect();
    let value = |name: &str| {
        let found = pairs.iter().find(|(key, _)| key == name);
        found.map_or("", |(_, value)| value.as_str())
    };
    let is_true = |name: &str| matches!(value(name), "true" | "1");
    if target.subresource == "log" {
        check_log_options(target.name, &value)?;
    }
    let pod = find_pod(state, target, target.name)?;
    let forwards = target.subresource == "portforward";
    let container = if forwards {
        String::new()
    } else {
        container(pod, value("container"))?
    };
    let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
    if node.is_empty() {
        if target.subresource == "log" {
            return Ok(None);
        }
        return Err(Failure::bad_request(format!(
            "pod {} does not have a host assigned",
            target.name
        )));
    }
    let mut location = kubelet(state, node)?;
    let mut query = Serializer::new(String::new());
    let path = match target.subresource {
        "log" => {
            for name in ["follow", "previous", "timestamps"] {
                if is_true(name) {
                    query.append_pair(name, "true");
                }
            }
            for name in ["sinceSeconds", "sinceTime", "tailLines", "limitBytes"] {
                if !value(name).is_empty() {
                    query.append_pair(name, value(name));
                }
            }
            "containerLogs"
        }
        "portforward" => {
            let ports: Vec<&str> = pairs
                .iter()
                .filter(|(key, _)| key == "ports")
                .map(|(_, value)| value.as_str())
                .collect();
            if !ports.is_empty() {
                query.append_pair("port", &ports.join(","));
            }
            "portForward"
        }
        other => {
            for (name, sent) in [
                ("stdin", "input"),
                ("stdout", "output"),
                ("stderr", "error"),
                ("tty", "tty"),
            ] {
                if is_true(name) {
                    query.append_pair(sent, "1");
                }
            }
            for (_, word) in pairs.iter().filter(|(key, _)| key == "command") {
                query.append_pair("command", word);
            }
            other
        }
    };
    let query = query.finish();
    location.path = format!("/{path}/{}/{}", target.namespace, target.name);
    if !forwards {
        location.path.push('/');
        location.path.push_str(&container);
    }
    if !query.is_empty() {
        location.path.push('?');
        location.path.push_str(&query);
    }
    Ok(Some(location))
}

/// Returns the location of a pod's own port.
fn pod_proxy(state: &State, target: &Target<'_>, path: String) -> Result<Location, Failure> {
    let (scheme, name, port) = split(target.name);
    let pod = find_pod(state, target, name)?;
    let own = pod["spec"]["containers"]
        .as_array()
        .into_iter()
        .flatten()
        .flat_map(|container| container["ports"].as_array().into_iter().flatten())
        .find_map(|port| port["containerPort"].as_u64());
    let address = pod["status"]["podIP"].as_str().unwrap_or_default();
    if address.is_empty() {
        return Err(Failure::bad_request("address not allowed"));
    }
    Ok(Location {
        secure: scheme == "https",
        host: address.to_owned(),
        port: port
            .or(own)
            .unwrap_or(if scheme == "https" { 443 } else { 80 }),
        path,
    })
}

/// Returns the location of a ready endpoint of a service.
fn service(state: &State, target: &Target<'_>, path: &str) -> Result<Location, Failure> {
    let parts: Vec<&str> = target.name.split(':').collect();
    let (scheme, name, port) = match parts.as_slice() {
        [scheme, name, port] => (*scheme, *name, *port),
        [name, port] => ("", *name, *port),
        _ => ("", target.name, ""),
    };
    let subject = Subject {
        group: "",
        resource: "services",
        name,
    };
    let service = state
        .get("services", target.namespace, name)
        .ok_or_else(|| Failure::not_found(&subject))?;
    let wanted = service["spec"]["ports"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|entry| {
            port.is_empty()
                || entry["name"] == port
                || port.parse::<u64>().is_ok_and(|port| entry["port"] == port)
        });
    let none = || Failure::unreachable(format!("no endpoints available for service {name:?}"));
    let wanted = wanted.ok_or_else(none)?;
    state
        .list("endpointslices.discovery.k8s.io", target.namespace)
        .filter(|(_, slice)| slice["metadata"]["labels"]["kubernetes.io/service-name"] == name)
        .find_map(|(_, slice)| {
            let name = wanted["name"].as_str().unwrap_or_default();
            let port = slice["ports"]
                .as_array()?
                .iter()
                .find(|port| port["name"].as_str().unwrap_or_default() == name)?["port"]
                .as_u64()?;
            let endpoint = slice["endpoints"]
                .as_array()?
                .iter()
                .find(|endpoint| endpoint["conditions"]["ready"] != false)?;
            Some(Location {
                secure: scheme == "https",
                host: endpoint["addresses"][0].as_str()?.to_owned(),
                port,
                path: path.to_owned(),
            })
        })
        .ok_or_else(none)
}
