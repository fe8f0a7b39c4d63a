//! Asks webhooks over HTTPS. Errors are told in the words of Go's client, which users search for.

use std::io::ErrorKind;
use std::sync::Arc;

use http::{Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{
    CertificateError, ClientConfig, Error as TlsError, RootCertStore, crypto,
};

use super::requests::LARGEST_BODY;
use crate::admission::webhooks::{Call, Endpoint};
use crate::values::go::not_an_object;

/// Why a webhook gave no review.
#[derive(Debug, thiserror::Error)]
enum Unanswered {
    /// The service behind which it stands has no endpoint.
    #[error("{0}")]
    NoEndpoint(String),
    /// It took too long.
    #[error("context deadline exceeded")]
    Late,
    /// The connection could not be opened.
    #[error("dial tcp {address}: {why}")]
    Dial { address: String, why: String },
    /// Its certificate was refused.
    #[error("tls: failed to verify certificate: {0}")]
    Certificate(String),
    /// TLS failed in another way.
    #[error("tls: {0}")]
    Tls(#[from] TlsError),
    /// The connection ended before the answer.
    #[error("EOF")]
    Ended,
    /// The URL cannot be requested.
    #[error("{0}")]
    Url(String),
    /// It answered with a status that is no success.
    #[error("{0}")]
    Status(String),
    /// Its answer is no review.
    #[error("{0}")]
    Unreadable(String),
}

impl Unanswered {
    /// Returns whether the error comes from the transport, which names the URL.
    fn is_of_transport(&self) -> bool {
        !matches!(self, Self::Status(_) | Self::Unreadable(_))
    }
}

/// Sends a webhook its review and returns the one that comes back; the error says why none did.
pub(super) async fn ask(call: &Call) -> Result<Value, String> {
    let answered = match tokio::time::timeout(call.timeout, exchange(call)).await {
        Ok(answered) => answered,
        Err(_) => Err(Unanswered::Late),
    };
    answered.map_err(|error| {
        if error.is_of_transport() {
            format!("Post {:?}: {error}", call.url)
        } else {
            error.to_string()
        }
    })
}

async fn exchange(call: &Call) -> Result<Value, Unanswered> {
    let endpoint = call.endpoint.as_ref();
    let endpoint = endpoint.map_err(|why| Unanswered::NoEndpoint(why.clone()))?;
    let stream = connect(endpoint).await?;
    let stream = encrypt(endpoint, &call.authorities, stream).await?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|_| Unanswered::Ended)?;
    // the connection ends with its sender
    tokio::spawn(connection);
    let uri: http::Uri = call
        .url
        .parse()
        .map_err(|_| Unanswered::Url("the URL is not valid".into()))?;
    let path = uri
        .path_and_query()
        .map_or("/", http::uri::PathAndQuery::as_str);
    let authority = uri.authority().map_or("", http::uri::Authority::as_str);
    let request = Request::post(path)
        .header(header::HOST, authority)
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::ACCEPT, "application/json, */*")
        .header(header::USER_AGENT, "kube-apiserver-admission")
        .body(Full::new(Bytes::from(call.body.to_string())))
        .map_err(|error| Unanswered::Url(error.to_string()))?;
    let response = sender
        .send_request(request)
        .await
        .map_err(|_| Unanswered::Ended)?;
    let status = response.status();
    let content_type = response.headers().get(header::CONTENT_TYPE);
    let content_type = content_type.and_then(|given| given.to_str().ok());
    let content_type = content_type.unwrap_or("application/json").to_owned();
    let body = Limited::new(response.into_body(), LARGEST_BODY)
        .collect()
        .await
        .map_err(|_| Unanswered::Unreadable("unexpected EOF".into()))?
        .to_bytes();
    if !status.is_success() {
        return Err(Unanswered::Status(of_status(status, &body)));
    }
    if body.is_empty() {
        return Err(Unanswered::Unreadable(format!(
            "0-length response with status code: {} and content type: {content_type}",
            status.as_u16()
        )));
    }
    // what is no JSON is read as YAML, as by Go's client
    let read: Option<Value> = serde_json::from_slice(&body)
        .ok()
        .or_else(|| serde_yaml::from_slice(&body).ok());
    match read {
        Some(review) if review.is_object() => Ok(review),
        other => Err(Unanswered::Unreadable(not_an_object(
            &other.unwrap_or_default(),
        ))),
    }
}

async fn connect(endpoint: &Endpoint) -> Result<TcpStream, Unanswered> {
    let Endpoint { host, port, .. } = endpoint;
    TcpStream::connect((host.as_str(), *port))
        .await
        .map_err(|error| {
            let why = if error.kind() == ErrorKind::ConnectionRefused {
                "connect: connection refused".to_owned()
            } else {
                error.to_string()
            };
            let address = format!("{host}:{port}");
            Unanswered::Dial { address, why }
        })
}

/// Opens TLS. Only authorities of the configuration count; without any no certificate is good enough.
async fn encrypt(
    endpoint: &Endpoint,
    authorities: &[u8],
    stream: TcpStream,
) -> Result<tokio_rustls::client::TlsStream<TcpStream>, Unanswered> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(authorities).flatten() {
        // one that cannot be used helps nobody, and the others may do
        let _ = roots.add(certificate);
    }
    let provider = Arc::new(crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from(endpoint.server_name.clone())
        .map_err(|error| Unanswered::Url(error.to_string()))?;
    let connected = TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await;
    connected.map_err(|error| {
        let refused = error
            .get_ref()
            .and_then(|inner| inner.downcast_ref::<TlsError>());
        match refused {
            Some(TlsError::InvalidCertificate(why)) => {
                Unanswered::Certificate(of_certificate(why, &endpoint.server_name))
            }
            Some(other) => Unanswered::Tls(other.clone()),
            None if error.kind() == ErrorKind::UnexpectedEof => Unanswered::Ended,
            None => Unanswered::Dial {
                address: format!("{}:{}", endpoint.host, endpoint.port),
                why: error.to_string(),
            },
        }
    })
}

/// Returns why a certificate is refused.
fn of_certificate(error: &CertificateError, name: &str) -> String {
    match error {
        CertificateError::UnknownIssuer => "x509: certificate signed by unknown authority".into(),
        CertificateError::NotValidForNameContext { presented, .. } => format!(
            "x509: certificate is valid for {}, not {name}",
            presented.join(", ")
        ),
        CertificateError::NotValidForName => format!("x509: certificate is not valid for {name}"),
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "x509: certificate has expired or is not yet valid".into()
        }
        other => format!("x509: {other}"),
    }
}

/// Returns what a status means that is no success. A status object in the body says it itself.
fn of_status(status: StatusCode, body: &[u8]) -> String {
    let told: Value = serde_json::from_slice(body).unwrap_or_default();
    if told["kind"] == "Status"
        && let Some(message) = told["message"].as_str()
    {
        return message.to_owned();
    }
    let text = String::from_utf8_lossy(body);
    let text = text.trim();
    match status.as_u16() {
        400 => "the server rejected our request for an unknown reason".into(),
        401 => "the server has asked for the client to provide credentials".into(),
        403 | 406 if !text.is_empty() => text.to_owned(),
        404 => "the server could not find the requested resource".into(),
        405 => "the server does not allow this method on the requested resource".into(),
        409 => "the server reported a conflict".into(),
        410 => "the resource has expired".into(),
        429 => "the server has received too many requests and has asked us to try again later".into(),
        503 => "the server is currently unable to handle the request".into(),
        504 => "the server was unable to return a response in the time allotted, but may still be processing the request".into(),
        500.. => format!("an error on the server ({text:?}) has prevented the request from succeeding"),
        code => format!("the server responded with the status code {code} but did not return more information"),
    }
}
