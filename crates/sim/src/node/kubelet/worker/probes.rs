//! Startup, liveness and readiness probes of containers.

mod grpc;

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cluster_spec::kubernetes;
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::{Container, HTTPGetAction, Probe};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::node::kubelet::Kubelet;
use crate::node::kubelet::worker::prepared::Prepared;
use crate::node::tls;

/// Kind of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Whether the container has started.
    Startup,
    /// Whether the container is alive.
    Liveness,
    /// Whether the container can serve.
    Readiness,
}

impl Kind {
    /// Returns the name of the kind in events.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Startup => "Startup",
            Self::Liveness => "Liveness",
            Self::Readiness => "Readiness",
        }
    }
}

/// The outcome of one attempt.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    /// The problem, in the kubelet's words.
    pub(crate) problem: Option<String>,
    /// The new result, once enough consecutive attempts agree.
    pub(crate) verdict: Option<bool>,
}

/// What to probe.
#[derive(Debug)]
pub(crate) struct Subject {
    pub(crate) kind: Kind,
    pub(crate) probe: Probe,
    pub(crate) address: Ipv4Addr,
    pub(crate) container: Container,
    pub(crate) prepared: Arc<Prepared>,
    /// When the container was started.
    pub(crate) began: Instant,
}

/// Failures within this time after the first attempt do not count, and the attempt is repeated after `START_RETRY`. A kubelet learns of a
/// new container late; here the container is probed at once.
const START_GRACE: Duration = Duration::from_secs(2);
const START_RETRY: Duration = Duration::from_millis(100);
/// User agent of the requests, without the version that follows.
const AGENT: &str = "kube-probe";

/// Returns the user agent of a kubelet's requests: a name and the version of Kubernetes.
pub(super) fn user_agent(name: &str) -> String {
    format!("{name}/{}", kubernetes::minor_version())
}

fn seconds(value: Option<i32>, default: u64) -> Duration {
    let given = value.and_then(|value| u64::try_from(value).ok());
    Duration::from_secs(given.unwrap_or(default))
}

fn count(value: Option<i32>, default: u32) -> u32 {
    let given = value.and_then(|value| u32::try_from(value).ok());
    given.filter(|count| *count > 0).unwrap_or(default)
}

/// Probes until the task is aborted or the startup probe succeeds.
pub(crate) async fn run(kubelet: Arc<Kubelet>, subject: Subject, report: impl Fn(Outcome) + Send) {
    let probe = &subject.probe;
    let first = subject.began + seconds(probe.initial_delay_seconds, 0);
    tokio::time::sleep_until(first.into()).await;
    let period = seconds(probe.period_seconds, 10).max(Duration::from_secs(1));
    let limit = seconds(probe.timeout_seconds, 1).max(Duration::from_secs(1));
    let successes = count(probe.success_threshold, 1);
    let failures = count(probe.failure_threshold, 3);
    let mut row: Option<(bool, u32)> = None;
    let mut reported: Option<bool> = None;
    loop {
        kubelet.until_running().await;
        let problem = if let Some(action) = &probe.grpc {
            // The gRPC check has its own time limit, because it reports which step took too long.
            grpc::check(subject.address, action, limit).await.err()
        } else {
            let tried = tokio::time::timeout(limit, attempt(&kubelet, &subject, limit)).await;
            let late = |_| Err("context deadline exceeded".to_owned());
            tried.unwrap_or_else(late).err()
        };
        if problem.is_some() && reported.is_none() && first.elapsed() < START_GRACE {
            tokio::time::sleep(START_RETRY).await;
            continue;
        }
        let is_good = problem.is_none();
        let in_row = match row {
            Some((before, number)) if before == is_good => number.saturating_add(1),
            _ => 1,
        };
        row = Some((is_good, in_row));
        let enough = in_row >= if is_good { successes } else { failures };
        let verdict = (enough && reported != Some(is_good)).then_some(is_good);
        if verdict.is_some() {
            reported = verdict;
        }
        if problem.is_some() || verdict.is_some() {
            report(Outcome { problem, verdict });
        }
        if subject.kind == Kind::Startup && verdict == Some(true) {
            return;
        }
        tokio::time::sleep(period).await;
    }
}

async fn attempt(kubelet: &Kubelet, subject: &Subject, limit: Duration) -> Result<(), String> {
    let probe = &subject.probe;
    if let Some(action) = &probe.http_get {
        let agent = user_agent(AGENT);
        let asked = request(subject.address, &subject.container, action, &agent);
        return match asked.await? {
            code if (200..400).contains(&code) => Ok(()),
            code => Err(format!("HTTP probe failed with statuscode: {code}")),
        };
    }
    if let Some(action) = &probe.tcp_socket {
        let host = host(subject.address, action.host.as_deref());
        return connect(&host, port(&subject.container, &action.port)?)
            .await
            .map(drop);
    }
    if let Some(action) = &probe.exec {
        let command = action.command.clone().unwrap_or_default();
        return kubelet.run_in(&subject.prepared, &command, limit).await;
    }
    Ok(())
}

fn host(address: Ipv4Addr, host: Option<&str>) -> String {
    let given = host.filter(|host| !host.is_empty());
    given.map_or_else(|| address.to_string(), str::to_owned)
}

fn port(container: &Container, port: &IntOrString) -> Result<u16, String> {
    let wrong = || "invalid port number".to_owned();
    match port {
        IntOrString::Int(number) => u16::try_from(*number).map_err(|_| wrong()),
        IntOrString::String(name) => container
            .ports
            .iter()
            .flatten()
            .find(|port| port.name.as_ref() == Some(name))
            .and_then(|port| u16::try_from(port.container_port).ok())
            .or_else(|| name.parse().ok())
            .ok_or_else(wrong),
    }
}

async fn connect(host: &str, port: u16) -> Result<TcpStream, String> {
    TcpStream::connect((host, port)).await.map_err(|error| {
        let text = match error.kind() {
            std::io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
            _ => error.to_string(),
        };
        format!("dial tcp {host}:{port}: connect: {text}")
    })
}

/// Sends a request to a server of a pod; returns the status code of the response.
pub(crate) async fn request(
    address: Ipv4Addr,
    container: &Container,
    action: &HTTPGetAction,
    agent: &str,
) -> Result<u16, String> {
    let host = host(address, action.host.as_deref());
    let port = port(container, &action.port)?;
    let is_tls = action.scheme.as_deref() == Some("HTTPS");
    let path = action.path.as_deref().unwrap_or("/");
    let path = format!("/{}", path.trim_start_matches('/'));
    let scheme = if is_tls { "https" } else { "http" };
    let url = format!("{scheme}://{host}:{port}{path}");
    let failed = |problem: String| format!("Get {url:?}: {problem}");
    let stream = connect(&host, port).await.map_err(failed)?;
    let mut request = hyper::Request::get(&path)
        .header("Host", format!("{host}:{port}"))
        .header("User-Agent", agent)
        .header("Accept", "*/*");
    for header in action.http_headers.iter().flatten() {
        request = request.header(&header.name, &header.value);
    }
    let request = request
        .body(Empty::<Bytes>::new())
        .map_err(|error| failed(error.to_string()))?;
    let status = if is_tls {
        let config = tls::unverified().map_err(|error| failed(error.to_string()))?;
        let name = tls::name_of(address);
        let stream = TlsConnector::from(config).connect(name, stream).await;
        exchange(stream.map_err(|error| failed(error.to_string()))?, request).await
    } else {
        exchange(stream, request).await
    };
    status.map_err(failed)
}

async fn exchange<S>(stream: S, request: hyper::Request<Empty<Bytes>>) -> Result<u16, String>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let text = |error: hyper::Error| error.to_string();
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(text)?;
    let conversation = async {
        let answer = sender.send_request(request).await.map_err(text)?;
        let status = answer.status().as_u16();
        // The body does not matter.
        let _ = answer.into_body().collect().await;
        Ok(status)
    };
    tokio::select! {
        outcome = conversation => outcome,
        ended = connection => Err(ended.err().map_or_else(|| "EOF".to_owned(), text)),
    }
}
