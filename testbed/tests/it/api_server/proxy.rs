//! Tests of requests that are proxied to kubelets, with a simple kubelet that reports the requests.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use http::{Request, Response};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::{Node, Pod, ServiceAccount};
use kube::api::{Api, LogParams, Patch, PatchParams, PostParams};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::{ServerConfig, crypto, pki_types::PrivateKeyDer};

use super::clients::{code, impatient, start};

/// Answers with the path, refuses below `/refuse`, and echoes upgraded connections.
async fn kubelet(mut request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let path = request.uri().to_string();
    if request.headers().contains_key("upgrade") {
        let upgrade = hyper::upgrade::on(&mut request);
        tokio::spawn(async move {
            let mut stream = TokioIo::new(upgrade.await.unwrap());
            let mut word = [0; 4];
            stream.read_exact(&mut word).await.unwrap();
            stream.write_all(&word).await.unwrap();
            stream.flush().await.unwrap();
        });
        let response = Response::builder()
            .status(101)
            .header("connection", "upgrade")
            .header("upgrade", "echo");
        return Ok(response.body(Full::default()).unwrap());
    }
    let status = if path.contains("broken") { 400 } else { 200 };
    let response = Response::builder().status(status);
    Ok(response.body(Full::from(path)).unwrap())
}

async fn serve_kubelet() -> SocketAddr {
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()])
        .unwrap()
        .self_signed(&key)
        .unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate.der().clone()],
            PrivateKeyDer::Pkcs8(key.serialize_der().into()),
        )
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let stream = acceptor.accept(stream).await.unwrap();
                let connection = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service_fn(kubelet))
                    .with_upgrades();
                // clients disconnect as soon as they have what they need
                let _ = connection.await;
            });
        }
    });
    address
}

/// Starts a server with a node and a pod on it; returns the server and the administrator's client.
async fn cluster() -> (apiserver::Running, kube::Client) {
    let server = start().await;
    let admin = impatient(&server, &server.admin_token).await;
    let address = serve_kubelet().await;
    let nodes: Api<Node> = Api::all(admin.clone());
    let node = serde_json::from_value(json!({"metadata": {"name": "worker"}, "status": {
        "addresses": [{"type": "InternalIP", "address": address.ip().to_string()}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": address.port()}}}}));
    nodes
        .create(&PostParams::default(), &node.unwrap())
        .await
        .unwrap();
    let accounts: Api<ServiceAccount> = Api::namespaced(admin.clone(), "default");
    let account = serde_json::from_value(json!({"metadata": {"name": "default"}})).unwrap();
    accounts
        .create(&PostParams::default(), &account)
        .await
        .unwrap();
    let pods: Api<Pod> = Api::namespaced(admin.clone(), "default");
    for name in ["web", "broken"] {
        let pod = serde_json::from_value(json!({"metadata": {"name": name},
            "spec": {"nodeName": "worker", "containers": [{"name": "main", "image": "web:1"}]}}));
        pods.create(&PostParams::default(), &pod.unwrap())
            .await
            .unwrap();
    }
    (server, admin)
}

#[tokio::test]
async fn the_proxy_of_a_node_asks_its_kubelet() {
    let (_server, admin) = cluster().await;
    let request = Request::get("/api/v1/nodes/worker/proxy/configz?a=b")
        .body(Vec::new())
        .unwrap();
    assert_eq!(admin.request_text(request).await.unwrap(), "/configz?a=b");
    let request = Request::get("/api/v1/nodes/nobody/proxy/configz")
        .body(Vec::new())
        .unwrap();
    let missing = admin.request_text(request).await.unwrap_err();
    assert_eq!(code(&missing), 404);
}

#[tokio::test]
async fn a_kubelet_that_is_gone_is_unreachable() {
    let (_server, admin) = cluster().await;
    let nodes: Api<Node> = Api::all(admin.clone());
    let gone = json!({"status": {"daemonEndpoints": {"kubeletEndpoint": {"Port": 1}}}});
    nodes
        .patch_status("worker", &PatchParams::default(), &Patch::Merge(gone))
        .await
        .unwrap();
    let request = Request::get("/api/v1/nodes/worker/proxy/healthz")
        .body(Vec::new())
        .unwrap();
    let refused = admin.request_text(request).await.unwrap_err();
    assert_eq!(code(&refused), 503);
    assert!(
        refused.to_string().contains(
            "error trying to reach service: dial tcp 127.0.0.1:1: connect: connection refused"
        ),
        "{refused}"
    );
}

#[tokio::test]
async fn logs_come_from_the_kubelet_with_what_was_asked_for() {
    let (_server, admin) = cluster().await;
    let pods: Api<Pod> = Api::namespaced(admin, "default");
    let asked = LogParams {
        tail_lines: Some(3),
        timestamps: true,
        ..LogParams::default()
    };
    assert_eq!(
        pods.logs("web", &asked).await.unwrap(),
        "/containerLogs/default/web/main?timestamps=true&tailLines=3"
    );
    let wrong = LogParams {
        container: Some("other".into()),
        ..LogParams::default()
    };
    let refused = pods.logs("web", &wrong).await.unwrap_err().to_string();
    assert!(
        refused.contains("container other is not valid for pod web"),
        "{refused}"
    );
    let refused = pods
        .logs("broken", &LogParams::default())
        .await
        .unwrap_err();
    assert_eq!(code(&refused), 400);
}

#[tokio::test]
async fn streams_are_passed_through_in_both_directions() {
    let (server, _admin) = cluster().await;
    let address = server.url.trim_start_matches("https://").to_owned();
    let mut roots = tokio_rustls::rustls::RootCertStore::empty();
    let der = base64_der(&server.ca);
    roots.add(der.into()).unwrap();
    let config = tokio_rustls::rustls::ClientConfig::builder_with_provider(Arc::new(
        crypto::ring::default_provider(),
    ))
    .with_safe_default_protocol_versions()
    .unwrap()
    .with_root_certificates(roots)
    .with_no_client_auth();
    let stream = tokio::net::TcpStream::connect(&address).await.unwrap();
    let mut stream = tokio_rustls::TlsConnector::from(Arc::new(config))
        .connect("127.0.0.1".try_into().unwrap(), stream)
        .await
        .unwrap();
    let request = format!(
        "POST /api/v1/namespaces/default/pods/web/exec?command=cat&stdin=true HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {}\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n",
        server.admin_token
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    assert!(head.starts_with(b"HTTP/1.1 101"));
    stream.write_all(b"ping").await.unwrap();
    let mut word = [0; 4];
    stream.read_exact(&mut word).await.unwrap();
    assert_eq!(&word, b"ping");
}

fn base64_der(pem: &str) -> Vec<u8> {
    use base64::Engine as _;
    let text: String = pem.lines().filter(|line| !line.starts_with('-')).collect();
    base64::engine::general_purpose::STANDARD
        .decode(text)
        .unwrap()
}
