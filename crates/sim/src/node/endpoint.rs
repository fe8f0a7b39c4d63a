//! The HTTPS endpoint of a node: its configuration, its pods, and the logs and streams of its containers (kubelet-node.md 3).

mod access;
mod configz;
mod container_logs;
mod streams;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use cluster_spec::kubelet::KubeletSettings;
use fixtures::machines::Machine;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

use super::kubelet::Kubelet;

pub(crate) use access::Access;
use access::User;

/// The usual port of a kubelet; another one is used if it is taken.
const PORT: u16 = 10250;

/// Body of a response.
type Body = UnsyncBoxBody<Bytes, Infallible>;

/// What the endpoint knows in addition to the pods.
#[derive(Debug)]
pub(crate) struct Facts {
    pub(crate) settings: KubeletSettings,
    pub(crate) machine: Machine,
    /// Authentication and authorization of requests.
    pub(crate) access: Access,
}

/// Listens on the node's address, on port 10250 if it is free.
pub(crate) async fn listen(kubelet: &Kubelet) -> std::io::Result<TcpListener> {
    let address = kubelet.addresses.node();
    match TcpListener::bind((address, PORT)).await {
        Ok(listener) => Ok(listener),
        Err(_) => TcpListener::bind((address, 0)).await,
    }
}

/// Serves until the task is aborted.
pub(crate) async fn serve(
    kubelet: Arc<Kubelet>,
    listener: TcpListener,
    tls: Arc<ServerConfig>,
    facts: Arc<Facts>,
) {
    let acceptor = TlsAcceptor::from(tls);
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
        };
        let Ok((stream, _peer)) = accepted else {
            // Probably the process is out of file descriptors; some will be free again soon.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let (kubelet, facts, acceptor) =
            (Arc::clone(&kubelet), Arc::clone(&facts), acceptor.clone());
        connections.spawn(async move {
            let Ok(stream) = acceptor.accept(stream).await else {
                return;
            };
            let certificates = stream.get_ref().1.peer_certificates();
            let user = certificates.and_then(|chain| User::of(chain.first()?));
            let service = service_fn(move |request| {
                let (kubelet, facts) = (Arc::clone(&kubelet), Arc::clone(&facts));
                let user = user.clone();
                async move {
                    let access = facts.access.check(user.as_ref(), &request).await;
                    Ok::<_, Infallible>(match access {
                        Ok(()) => answer(&kubelet, &facts, request).await,
                        Err(refusal) => text(refusal.status(), &refusal.to_string()),
                    })
                }
            });
            let serving = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .with_upgrades();
            // A client that hangs up is not an error.
            let _ = serving.await;
        });
    }
}

/// Returns the port of a listener.
pub(crate) fn port(listener: &TcpListener) -> std::io::Result<u16> {
    listener
        .local_addr()
        .map(|address: SocketAddr| address.port())
}

async fn answer(
    kubelet: &Arc<Kubelet>,
    facts: &Facts,
    request: Request<Incoming>,
) -> Response<Body> {
    let path = request.uri().path().to_owned();
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let is_get = request.method() == Method::GET;
    if is_get || request.method() == Method::POST {
        use streams::Purpose::{Attach, Exec};
        // The path may contain the UID of the pod.
        match parts.as_slice() {
            ["exec", namespace, pod, .., container] if parts.len() <= 5 => {
                return streams::answer(kubelet, Exec, [namespace, pod, container], request);
            }
            ["attach", namespace, pod, .., container] if parts.len() <= 5 => {
                return streams::answer(kubelet, Attach, [namespace, pod, container], request);
            }
            ["portForward", namespace, pod] | ["portForward", namespace, pod, _] => {
                return streams::forward(kubelet, [namespace, pod], request);
            }
            _ => {}
        }
    }
    if !is_get {
        return text(StatusCode::METHOD_NOT_ALLOWED, "405: Method Not Allowed");
    }
    match parts.as_slice() {
        ["healthz" | "livez" | "readyz"] => text(StatusCode::OK, "ok"),
        ["configz"] => json_answer(&configz::configz(facts)),
        ["pods"] => json_answer(&pods(kubelet, false)),
        ["runningpods"] => json_answer(&pods(kubelet, true)),
        ["metrics"] => text(StatusCode::OK, &metrics(kubelet)),
        ["containerLogs", namespace, pod, container] => {
            let query = request.uri().query().unwrap_or_default();
            container_logs::answer(kubelet, [namespace, pod, container], query).await
        }
        _ => text(StatusCode::NOT_FOUND, "404 page not found"),
    }
}

fn pods(kubelet: &Kubelet, running: bool) -> Value {
    let items: Vec<Value> = kubelet
        .snapshots()
        .into_iter()
        .filter(|snapshot| !running || !snapshot.is_over)
        .filter_map(|snapshot| serde_json::to_value(snapshot.pod).ok())
        .collect();
    json!({ "kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items })
}

fn metrics(kubelet: &Kubelet) -> String {
    let pods = kubelet
        .snapshots()
        .iter()
        .filter(|snapshot| !snapshot.is_over)
        .count();
    format!(
        "# HELP kubelet_running_pods [ALPHA] Number of pods that have a running pod sandbox\n\
         # TYPE kubelet_running_pods gauge\nkubelet_running_pods {pods}\n"
    )
}

fn json_answer(value: &Value) -> Response<Body> {
    let mut answer = text(StatusCode::OK, &value.to_string());
    let kind = hyper::header::HeaderValue::from_static("application/json");
    answer
        .headers_mut()
        .insert(hyper::header::CONTENT_TYPE, kind);
    answer
}

fn text(status: StatusCode, text: &str) -> Response<Body> {
    let mut answer = Response::new(Full::new(Bytes::from(text.to_owned())).boxed_unsync());
    *answer.status_mut() = status;
    let kind = hyper::header::HeaderValue::from_static("text/plain; charset=utf-8");
    answer
        .headers_mut()
        .insert(hyper::header::CONTENT_TYPE, kind);
    answer
}
