//! Kubelets that only serve their configuration, for nodes that exist only as objects.

use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::sync::Arc;

use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rcgen::{CertificateParams, KeyPair};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::rustls::{self, ServerConfig};

/// Why the kubelet could not be started.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A certificate could not be made.
    #[error("cannot make a certificate")]
    Certificate(#[from] rcgen::Error),
    /// TLS could not be set up.
    #[error("cannot set up TLS")]
    Tls(#[from] rustls::Error),
    /// There is no port to listen on.
    #[error("cannot listen")]
    Listen(#[from] std::io::Error),
}

/// Serves `/configz` for any number of nodes, with the same answer for all of them, until it is dropped.
#[derive(Debug)]
pub struct ConfigzKubelet {
    port: u16,
    settings: Arc<Mutex<Value>>,
    _serving: JoinSet<()>,
}

impl ConfigzKubelet {
    /// Listens on a free loopback port. `settings` are fields of a `KubeletConfiguration`.
    pub async fn start(settings: Value) -> Result<Self, Error> {
        let key = KeyPair::generate()?;
        let name = Ipv4Addr::LOCALHOST.to_string();
        let certificate = CertificateParams::new(vec![name])?.self_signed(&key)?;
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(
                vec![certificate.der().clone()],
                PrivateKeyDer::Pkcs8(key.serialize_der().into()),
            )?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let port = listener.local_addr()?.port();
        let settings = Arc::new(Mutex::new(settings));
        let mut serving = JoinSet::new();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        serving.spawn(serve(listener, acceptor, Arc::clone(&settings)));
        Ok(Self {
            port,
            settings,
            _serving: serving,
        })
    }

    /// Changes the configuration that is served from now on.
    pub fn set(&self, settings: Value) {
        *self.settings.lock() = settings;
    }

    /// Returns the fields of a node's status that point to this kubelet.
    pub fn node_status(&self) -> Value {
        json!({
            "addresses": [{"type": "InternalIP", "address": Ipv4Addr::LOCALHOST}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self.port}},
        })
    }
}

async fn serve(listener: TcpListener, acceptor: TlsAcceptor, settings: Arc<Mutex<Value>>) {
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
        };
        // a connection that cannot be accepted is not served: the client notices
        let Ok((stream, _peer)) = accepted else {
            continue;
        };
        let (acceptor, settings) = (acceptor.clone(), Arc::clone(&settings));
        connections.spawn(async move {
            let Ok(stream) = acceptor.accept(stream).await else {
                return;
            };
            let service = service_fn(|request| {
                std::future::ready(Ok::<_, Infallible>(answer(&request, &settings)))
            });
            let connection = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service);
            // a client that hangs up is not an error
            let _ = connection.await;
        });
    }
}

fn answer(request: &Request<Incoming>, settings: &Mutex<Value>) -> Response<Full<Bytes>> {
    if request.uri().path() != "/configz" {
        let mut missing = Response::new(Full::from("404 page not found"));
        *missing.status_mut() = StatusCode::NOT_FOUND;
        return missing;
    }
    let settings = settings.lock().clone();
    Response::new(Full::from(json!({"kubeletconfig": settings}).to_string()))
}
