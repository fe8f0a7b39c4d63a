//! A plain HTTP client over TLS. It sends requests unchanged and hides nothing of the answers.

use std::net::SocketAddr;
use std::sync::Arc;

use http::{HeaderMap, Request};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore};

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The certificate of the server's authority could not be read.
    #[error("cannot read the certificate of the server's authority")]
    Authority(#[source] rustls::pki_types::pem::Error),
    /// TLS could not be set up.
    #[error("cannot set up TLS")]
    Tls(#[from] rustls::Error),
    /// The server could not be reached.
    #[error("cannot connect to {address}")]
    Connect {
        /// Its address.
        address: SocketAddr,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The request is not valid.
    #[error("the request is not valid")]
    Request(#[from] http::Error),
    /// The server did not answer.
    #[error("no answer")]
    Answer(#[from] hyper::Error),
}

/// A server and its authority.
#[derive(Clone)]
pub(super) struct Client {
    address: SocketAddr,
    connector: TlsConnector,
}

/// An answer whose headers have arrived.
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) headers: HeaderMap,
    pub(super) body: Incoming,
}

impl Client {
    pub(super) fn new(address: SocketAddr, authority: &str) -> Result<Self, Error> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(authority.as_bytes()) {
            roots.add(certificate.map_err(Error::Authority)?)?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self {
            address,
            connector: TlsConnector::from(Arc::new(config)),
        })
    }

    /// Opens a connection.
    pub(super) async fn connect(&self) -> Result<SendRequest<Full<Bytes>>, Error> {
        let failed = |source| Error::Connect {
            address: self.address,
            source,
        };
        let stream = TcpStream::connect(self.address).await.map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        let name = ServerName::IpAddress(self.address.ip().into());
        let stream = self.connector.connect(name, stream).await.map_err(failed)?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        // the task ends with the last handle on the connection; the request sees its errors
        tokio::spawn(connection);
        Ok(sender)
    }

    /// Sends a request over a connection.
    pub(super) async fn send(
        &self,
        sender: &mut SendRequest<Full<Bytes>>,
        mut request: Request<Full<Bytes>>,
    ) -> Result<Answer, Error> {
        let host =
            http::HeaderValue::from_str(&self.address.to_string()).map_err(http::Error::from)?;
        request.headers_mut().insert(http::header::HOST, host);
        sender.ready().await?;
        let (parts, body) = sender.send_request(request).await?.into_parts();
        Ok(Answer {
            status: parts.status.as_u16(),
            headers: parts.headers,
            body,
        })
    }
}

/// The lines of an answer, as they arrive.
pub(super) struct Lines {
    body: Incoming,
    buffer: Vec<u8>,
}

impl Lines {
    pub(super) fn new(body: Incoming) -> Self {
        Self {
            body,
            buffer: Vec::new(),
        }
    }

    /// Returns the next line; `None` after the last.
    pub(super) async fn next(&mut self) -> Result<Option<Vec<u8>>, Error> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let rest = self.buffer.split_off(end + 1);
                let mut line = std::mem::replace(&mut self.buffer, rest);
                line.pop();
                return Ok(Some(line));
            }
            match self.body.frame().await {
                None => {
                    let line = std::mem::take(&mut self.buffer);
                    return Ok((!line.is_empty()).then_some(line));
                }
                Some(frame) => {
                    if let Ok(data) = frame?.into_data() {
                        self.buffer.extend_from_slice(&data);
                    }
                }
            }
        }
    }
}
