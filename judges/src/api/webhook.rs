//! A webhook that conversations configure: it answers as a file says and keeps what it was asked.
//!
//! The path of its URL is the name of the asker, such as the conversation's namespace, and the name of the answer: `/policies-a/deny`.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::rustls::{self, ServerConfig};

/// Why there is no webhook.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file with its answers could not be read.
    #[error("cannot read the answers of the webhook")]
    Read(#[from] std::io::Error),
    /// The file with its answers does not have the right format.
    #[error("cannot parse the answers of the webhook")]
    Parse(#[from] serde_yaml::Error),
    /// Its certificate could not be made.
    #[error("cannot make a certificate for the webhook")]
    Certificate(#[from] rcgen::Error),
    /// TLS could not be set up.
    #[error("cannot set up TLS for the webhook")]
    Tls(#[from] rustls::Error),
}

/// An answer of the webhook.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Reply {
    /// The response of the review. It gets the unique id of the request unless it has one.
    response: Value,
    /// A JSON patch, which the response gets with its type.
    patch: Value,
    /// Fields that replace those of the review.
    review: serde_json::Map<String, Value>,
    /// The body, in place of a review.
    text: Option<String>,
    /// HTTP status, 200 by default.
    status: Option<u16>,
    /// Whether the connection is closed without an answer.
    closes: bool,
    /// Whether there is never an answer.
    hangs: bool,
}

#[derive(Debug)]
struct State {
    replies: BTreeMap<String, Reply>,
    asked: Mutex<BTreeMap<String, Vec<Value>>>,
}

/// The running webhook; it ends when this is dropped.
#[derive(Debug)]
pub struct Webhook {
    address: SocketAddr,
    authority: String,
    state: Arc<State>,
    accepting: JoinHandle<()>,
}

impl Drop for Webhook {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Webhook {
    /// Starts it on a free port of the loopback address, with the answers of a file. Its certificate is also one for the service `webhook` of
    /// the namespace `default`.
    pub async fn start(answers: &Path) -> Result<Self, Error> {
        let replies = serde_yaml::from_str(&std::fs::read_to_string(answers)?)?;
        let state = Arc::new(State {
            replies,
            asked: Mutex::default(),
        });
        let key = KeyPair::generate()?;
        let mut authority = CertificateParams::default();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let pem = authority.self_signed(&key)?.pem();
        let issuer = Issuer::new(authority, key);
        let key = KeyPair::generate()?;
        let names = ["127.0.0.1", "webhook.default.svc"];
        let certificate =
            CertificateParams::new(names.map(str::to_owned))?.signed_by(&key, &issuer)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(
                vec![certificate.der().clone()],
                PrivateKeyDer::Pkcs8(key.serialize_der().into()),
            )?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let accepting = tokio::spawn(accept(listener, acceptor, Arc::clone(&state)));
        Ok(Self {
            address,
            authority: STANDARD.encode(pem),
            state,
            accepting,
        })
    }

    /// Returns its address and port.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the certificate of its authority as configurations name it: PEM in base 64.
    pub(super) fn authority(&self) -> &str {
        &self.authority
    }

    /// Returns what an asker has asked since the last time, in the order of the answers' names.
    pub(super) fn take(&self, asker: &str) -> Vec<Value> {
        let mut asked = self
            .state
            .asked
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let mut asked = asked.remove(asker).unwrap_or_default();
        // validating webhooks are asked at the same time
        asked.sort_by_key(|one| one["answer"].to_string());
        asked
    }
}

async fn accept(listener: TcpListener, acceptor: TlsAcceptor, state: Arc<State>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            continue;
        };
        let (acceptor, state) = (acceptor.clone(), Arc::clone(&state));
        tokio::spawn(serve(acceptor, stream, state));
    }
}

async fn serve(acceptor: TlsAcceptor, stream: TcpStream, state: Arc<State>) {
    let Ok(stream) = acceptor.accept(stream).await else {
        // a client that does not know the authority
        return;
    };
    let service = service_fn(|request| answer(&state, request));
    // an error is one of the client's, or the end that a reply asks for
    let _ = hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

/// The connection ends without an answer.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the answer is to close the connection")]
struct Closed;

impl From<Infallible> for Closed {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

async fn answer(
    state: &State,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Closed> {
    let path = request.uri().path().trim_matches('/').to_owned();
    let query = request.uri().query().unwrap_or_default().to_owned();
    let (asker, name) = path.split_once('/').unwrap_or(("", &path));
    let body = request.into_body().collect().await.map_err(|_| Closed)?;
    let review: Value = serde_json::from_slice(&body.to_bytes()).unwrap_or_default();
    let made = |status: StatusCode, text: String| {
        let mut response = Response::new(Full::new(Bytes::from(text)));
        *response.status_mut() = status;
        Ok(response)
    };
    let Some(reply) = state.replies.get(name) else {
        return made(StatusCode::NOT_FOUND, String::new());
    };
    {
        let mut asked = state.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let asked = asked.entry(asker.to_owned()).or_default();
        asked.push(json!({"answer": name, "parameters": query, "review": review}));
    }
    if reply.hangs {
        std::future::pending::<()>().await;
    }
    if reply.closes {
        return Err(Closed);
    }
    let status = reply
        .status
        .and_then(|code| StatusCode::from_u16(code).ok());
    let text = reply.text.clone();
    made(
        status.unwrap_or(StatusCode::OK),
        text.unwrap_or_else(|| review_of(reply, &review).to_string()),
    )
}

fn review_of(reply: &Reply, asked: &Value) -> Value {
    let mut review = json!({"apiVersion": asked["apiVersion"], "kind": asked["kind"]});
    if reply.response.is_object() {
        let mut response = reply.response.clone();
        if response["uid"].is_null() {
            response["uid"] = asked["request"]["uid"].clone();
        }
        if !reply.patch.is_null() {
            response["patch"] = json!(STANDARD.encode(reply.patch.to_string()));
            response["patchType"] = json!("JSONPatch");
        }
        review["response"] = response;
    }
    for (field, value) in &reply.review {
        review[field] = value.clone();
    }
    review
}
