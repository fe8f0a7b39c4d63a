//! Streams into running containers: `exec` and `attach` over SPDY or websockets, `portForward` over SPDY (kubelet-node.md 3).
//!
//! A real API server translates websocket version 5 for its kubelets. The embedded one passes connections through, so the node itself
//! speaks that version. One consequence: an error that prevents an attach is reported after the upgrade.

use std::sync::Arc;

use cri_runtime::streaming::port_forward::{self, Ports};
use cri_runtime::streaming::session::{Attached, RequestedStreams};
use cri_runtime::streaming::spdy_client;
use cri_runtime::streaming::websocket_client::{self, Version};
use form_urlencoded::parse;
use http::header::{
    CONNECTION, HeaderMap, HeaderName, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY,
    SEC_WEBSOCKET_PROTOCOL, UPGRADE,
};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use super::{Body, text};
use crate::node::kubelet::Kubelet;
use crate::node::kubelet::worker::snapshot::{ContainerSnapshot, PodSnapshot};
use crate::node::launcher::Process;

/// Header with the protocols of a SPDY client.
const STREAM_PROTOCOL: HeaderName = HeaderName::from_static("x-stream-protocol-version");
/// The only version of remote commands that is supported over SPDY.
const SPDY_COMMANDS: &str = "v4.channel.k8s.io";

/// The purpose of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Starts a new process.
    Exec,
    /// Attaches to the container's own process.
    Attach,
}

/// The transport of a client.
enum Transport {
    Spdy,
    Websocket(Version),
}

/// Parses the parameters of a request.
fn parameters(query: &str) -> (RequestedStreams, Vec<String>) {
    let pairs: Vec<(String, String)> = parse(query.as_bytes()).into_owned().collect();
    let is_set = |name: &str| {
        let values = pairs.iter().filter(|(key, _)| key == name);
        values
            .clone()
            .any(|(_, value)| matches!(value.as_str(), "1" | "true"))
    };
    let tty = is_set("tty");
    let wants = RequestedStreams {
        stdin: is_set("input"),
        stdout: is_set("output"),
        // A terminal has only one output.
        stderr: is_set("error") && !tty,
        tty,
    };
    let commands = pairs.iter().filter(|(key, _)| key == "command");
    (wants, commands.map(|(_, word)| word.clone()).collect())
}

/// Returns the values of a header, in one line or several.
fn list(headers: &HeaderMap, name: &HeaderName) -> Vec<String> {
    let lines = headers.get_all(name).iter();
    lines
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| line.split(','))
        .map(|word| word.trim().to_owned())
        .collect()
}

fn upgrade(headers: &HeaderMap) -> String {
    let word = headers.get(UPGRADE).and_then(|word| word.to_str().ok());
    word.unwrap_or_default().to_ascii_lowercase()
}

/// A refusal: status code and reason.
type Refusal = (StatusCode, String);

/// Agrees on a protocol; returns the response that confirms it.
fn negotiate(
    headers: &HeaderMap,
    spdy: &'static str,
) -> Result<(Transport, Response<Body>), Refusal> {
    let mut accepted = text(StatusCode::SWITCHING_PROTOCOLS, "");
    accepted.headers_mut().clear();
    let answer = accepted.headers_mut();
    answer.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    let none = |offered: Vec<String>, server: &str| {
        let offered = offered.join(" ");
        let reason = format!(
            "unable to negotiate protocol: client supports [{offered}], server accepts [{server}]"
        );
        (StatusCode::FORBIDDEN, reason)
    };
    match upgrade(headers).as_str() {
        "websocket" => {
            let offered = list(headers, &SEC_WEBSOCKET_PROTOCOL);
            let version = Version::choose(offered.iter().map(String::as_str));
            let known = format!("{} {}", Version::V5.protocol(), Version::V4.protocol());
            let version = version.ok_or_else(|| none(offered, &known))?;
            let key = headers.get(SEC_WEBSOCKET_KEY);
            let key = key.map(HeaderValue::as_bytes).unwrap_or_default();
            let proof = HeaderValue::from_str(&derive_accept_key(key));
            let proof = proof.map_err(|_| (StatusCode::BAD_REQUEST, "bad key".to_owned()))?;
            answer.insert(UPGRADE, HeaderValue::from_static("websocket"));
            answer.insert(SEC_WEBSOCKET_ACCEPT, proof);
            answer.insert(
                SEC_WEBSOCKET_PROTOCOL,
                HeaderValue::from_static(version.protocol()),
            );
            Ok((Transport::Websocket(version), accepted))
        }
        "spdy/3.1" => {
            let offered = list(headers, &STREAM_PROTOCOL);
            if !offered.iter().any(|one| one == spdy) {
                return Err(none(offered, spdy));
            }
            answer.insert(UPGRADE, HeaderValue::from_static("SPDY/3.1"));
            answer.insert(STREAM_PROTOCOL, HeaderValue::from_static(spdy));
            Ok((Transport::Spdy, accepted))
        }
        _ => {
            let lines = headers
                .get_all(CONNECTION)
                .iter()
                .chain(headers.get_all(UPGRADE));
            let seen: Vec<_> = lines.filter_map(|line| line.to_str().ok()).collect();
            let reason = format!("unable to upgrade: missing upgrade headers in request: {seen:?}");
            Err((StatusCode::BAD_REQUEST, reason))
        }
    }
}

/// Returns the pod of a request.
pub(super) fn pod(kubelet: &Kubelet, namespace: &str, name: &str) -> Option<PodSnapshot> {
    let mut all = kubelet.snapshots().into_iter();
    all.find(|snapshot| {
        let metadata = &snapshot.pod.metadata;
        metadata.namespace.as_deref() == Some(namespace) && metadata.name.as_deref() == Some(name)
    })
}

/// Answers a request for streams; the streams run in a task of their own.
pub(super) fn answer(
    kubelet: &Arc<Kubelet>,
    purpose: Purpose,
    [namespace, name, container]: [&str; 3],
    request: Request<Incoming>,
) -> Response<Body> {
    let (wants, command) = parameters(request.uri().query().unwrap_or_default());
    if !(wants.stdin || wants.stdout || wants.stderr) {
        let reason = "you must specify at least 1 of stdin, stdout, stderr";
        return text(StatusCode::BAD_REQUEST, reason);
    }
    let Some(snapshot) = pod(kubelet, namespace, name) else {
        return text(StatusCode::NOT_FOUND, "pod does not exist");
    };
    let running = snapshot
        .containers
        .into_iter()
        .find(|seen| seen.name == container && seen.process.is_some());
    let (transport, accepted) = match negotiate(request.headers(), SPDY_COMMANDS) {
        Ok(agreed) => agreed,
        Err((status, reason)) => return text(status, &reason),
    };
    let missing = format!("container not found ({container:?})");
    if running.is_none() && !matches!(transport, Transport::Websocket(Version::V5)) {
        return text(StatusCode::INTERNAL_SERVER_ERROR, &missing);
    }
    let start = begin(
        Arc::clone(kubelet),
        purpose,
        running,
        missing,
        wants,
        command,
    );
    let upgrading = hyper::upgrade::on(request);
    tokio::spawn(async move {
        if let Err(error) = serve_streams(upgrading, transport, wants, start).await {
            tracing::debug!(%error, "Streams of a container failed");
        }
    });
    accepted
}

/// Starts or finds the process to attach to.
async fn begin(
    kubelet: Arc<Kubelet>,
    purpose: Purpose,
    running: Option<ContainerSnapshot>,
    missing: String,
    wants: RequestedStreams,
    command: Vec<String>,
) -> Result<Attached, String> {
    let seen = running.ok_or_else(|| format!("unable to upgrade connection: {missing}"))?;
    match purpose {
        Purpose::Exec => {
            let started = kubelet.attach(&seen.env, &command, wants.stdin).await;
            started.map_err(|problem| format!("error executing command in container: {problem}"))
        }
        Purpose::Attach => seen
            .process
            .as_ref()
            .map(Process::attach)
            .ok_or_else(|| "error attaching to container: it has ended".to_owned()),
    }
}

async fn serve_streams(
    upgrading: OnUpgrade,
    transport: Transport,
    wants: RequestedStreams,
    start: impl Future<Output = Result<Attached, String>>,
) -> std::io::Result<()> {
    let connection = upgrading.await.map_err(std::io::Error::other)?;
    let connection = TokioIo::new(connection);
    match transport {
        Transport::Spdy => spdy_client::run(connection, Vec::new(), wants, start).await,
        Transport::Websocket(version) => {
            websocket_client::run(connection, version, wants, start).await
        }
    }
}

/// Answers a request for connections to ports of a pod.
pub(super) fn forward(
    kubelet: &Kubelet,
    [namespace, name]: [&str; 2],
    request: Request<Incoming>,
) -> Response<Body> {
    let Some(address) = pod(kubelet, namespace, name).and_then(|snapshot| snapshot.address) else {
        return text(StatusCode::NOT_FOUND, "pod does not exist");
    };
    let ports = Ports::At(address);
    let query = request.uri().query().unwrap_or_default().to_owned();
    let agreed = negotiate(request.headers(), port_forward::PROTOCOL);
    let (transport, accepted) = match agreed {
        Ok(agreed) => agreed,
        Err((status, reason)) => return text(status, &reason),
    };
    let upgrading = hyper::upgrade::on(request);
    tokio::spawn(async move {
        let outcome = async {
            let connection = upgrading.await.map_err(std::io::Error::other)?;
            let connection = TokioIo::new(connection);
            match transport {
                Transport::Spdy => port_forward::spdy(connection, Vec::new(), ports).await,
                Transport::Websocket(_) => {
                    let wanted = port_forward::listed(&query);
                    port_forward::websocket(connection, Vec::new(), ports, &wanted).await
                }
            }
        };
        if let Err(error) = outcome.await {
            tracing::debug!(%error, "Port forwarding failed");
        }
    });
    accepted
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[test]
    fn parameters_are_those_of_the_query() {
        let query = "command=sh&command=-c&command=echo+%2Fa%20b&output=1&error=1&tty=1";
        let (wants, command) = parameters(query);
        let expected = RequestedStreams {
            stdin: false,
            stdout: true,
            stderr: false,
            tty: true,
        };
        assert_eq!(wants, expected);
        assert_eq!(command, ["sh", "-c", "echo /a b"]);
    }

    fn mk_headers(list: &[(&'static str, &'static str)]) -> HeaderMap {
        let pairs = list.iter().map(|(name, value)| {
            (
                HeaderName::from_static(name),
                HeaderValue::from_static(value),
            )
        });
        pairs.collect()
    }

    #[test]
    fn websocket_client_gets_its_proof_and_the_first_protocol_that_is_known() {
        // The key and its proof are those of RFC 6455, 1.3.
        let headers = mk_headers(&[
            ("upgrade", "websocket"),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
            ("sec-websocket-protocol", "v6.x, v4.channel.k8s.io"),
        ]);
        let (_, accepted) = negotiate(&headers, SPDY_COMMANDS).ok().unwrap();
        let headers = accepted.headers();
        assert_eq!(
            headers[SEC_WEBSOCKET_ACCEPT],
            "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
        );
        assert_eq!(headers[SEC_WEBSOCKET_PROTOCOL], "v4.channel.k8s.io");
    }

    #[rstest]
    #[case::no_upgrade(&[], StatusCode::BAD_REQUEST)]
    #[case::unknown_version(&[("upgrade", "SPDY/3.1"), ("x-stream-protocol-version", "v3.channel.k8s.io")], StatusCode::FORBIDDEN)]
    #[case::unknown_websocket(&[("upgrade", "websocket"), ("sec-websocket-protocol", "SPDY/3.1+portforward.k8s.io")], StatusCode::FORBIDDEN)]
    fn what_is_not_spoken_is_refused(
        #[case] headers: &[(&'static str, &'static str)],
        #[case] status: StatusCode,
    ) {
        let refusal = negotiate(&mk_headers(headers), SPDY_COMMANDS);
        assert_eq!(refusal.err().unwrap().0, status);
    }
}
