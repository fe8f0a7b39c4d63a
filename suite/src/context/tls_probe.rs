//! TLS as a client without credentials sees it: sends one `ClientHello` to a server in a pod and reads the answer.
//!
//! No library offers the versions and suites that servers must refuse, so the `ClientHello` is built here (RFC 5246, 7.4.1.2). Connections
//! that should succeed use rustls.

use std::sync::Arc;

use apiserver::AnyCertificate;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::Api;
use rustls::crypto::ring;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::context::Context;
use crate::step::StepError;

const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const SERVER_HELLO: u8 = 2;
/// Length of a record's header in bytes.
const RECORD_HEADER_LENGTH: usize = 5;

/// What a server answered to a `ClientHello`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// An alert, by its number (RFC 5246, 7.2).
    Alert(u8),
    /// The connection was closed without an answer.
    Closed,
    /// The server continues the handshake.
    Accepted,
    /// Something that is not TLS.
    NotTls(u8),
}

impl Answer {
    /// Returns whether the server refused.
    pub fn is_rejection(self) -> bool {
        matches!(self, Self::Alert(_) | Self::Closed)
    }
}

impl Context {
    /// Opens a connection to a port of a pod, through the API server.
    pub async fn connect(
        &self,
        pod: &Pod,
        port: u16,
    ) -> Result<impl AsyncRead + AsyncWrite + Unpin + use<>, StepError> {
        let pods: Api<Pod> = Api::namespaced(self.client(), &pod.namespace().unwrap_or_default());
        let forwarder = pods.portforward(&pod.name_any(), &[port]).await;
        let mut forwarder = forwarder.map_err(|error| {
            // the gRPC code that a container runtime returns in this case
            if error.to_string().contains("Unimplemented") {
                return StepError::Skip(
                    "the nodes' container runtime forwards no ports".to_owned(),
                );
            }
            error.into()
        })?;
        forwarder.take_stream(port).ok_or_else(|| {
            StepError::fail(format!(
                "no connection to port {port} of {}",
                pod.name_any()
            ))
        })
    }

    /// Sends a `ClientHello` with one version and one cipher suite, both as on the wire, and returns the answer.
    pub async fn send_client_hello(
        &self,
        pod: &Pod,
        port: u16,
        version: u16,
        suite: u16,
    ) -> Result<Answer, StepError> {
        let mut stream = self.connect(pod, port).await?;
        let failed = |error| {
            StepError::fail(format!(
                "ClientHello to port {port} of {}: {error}",
                pod.name_any()
            ))
        };
        stream
            .write_all(&client_hello(version, suite))
            .await
            .map_err(failed)?;
        let mut answer = Vec::new();
        let mut part = [0; 256];
        while answer.len() <= RECORD_HEADER_LENGTH {
            match stream.read(&mut part).await {
                Ok(0) | Err(_) => break,
                Ok(count) => answer.extend_from_slice(&part[..count]),
            }
        }
        Ok(parse_answer(&answer))
    }

    /// Opens a TLS connection with rustls' default versions and suites. Any server certificate is accepted: the identity of the server is
    /// not under test.
    pub async fn connect_tls(
        &self,
        pod: &Pod,
        port: u16,
    ) -> Result<TlsStream<impl AsyncRead + AsyncWrite + Unpin + use<>>, StepError> {
        let stream = self.connect(pod, port).await?;
        let what = format!("TLS with port {port} of {}", pod.name_any());
        let failed = |error: &dyn std::fmt::Display| StepError::fail(format!("{what}: {error}"));
        let provider = Arc::new(ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| failed(&error))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyCertificate::new(provider)))
            .with_no_client_auth();
        let name = ServerName::try_from("localhost").map_err(|error| failed(&error))?;
        let connector = TlsConnector::from(Arc::new(config));
        connector
            .connect(name, stream)
            .await
            .map_err(|error| failed(&error))
    }
}

/// Builds a `ClientHello` in its record.
fn client_hello(version: u16, suite: u16) -> Vec<u8> {
    let numbers = |list: &[u16]| -> Vec<u8> {
        list.iter()
            .flat_map(|number| number.to_be_bytes())
            .collect()
    };
    let with_length = |bytes: Vec<u8>| -> Vec<u8> {
        let length = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
        [length.to_be_bytes().to_vec(), bytes].concat()
    };
    let extension =
        |kind: u16, bytes: Vec<u8>| [kind.to_be_bytes().to_vec(), with_length(bytes)].concat();
    // x25519, P-256 and P-384, uncompressed points, and common signature algorithms
    let groups = extension(10, with_length(numbers(&[0x001d, 0x0017, 0x0018])));
    let points = extension(11, vec![1, 0]);
    let signatures = extension(
        13,
        with_length(numbers(&[0x0403, 0x0804, 0x0401, 0x0503, 0x0805, 0x0501])),
    );
    let body = [
        version.to_be_bytes().to_vec(),
        // real clients use random bytes here; nothing is kept secret in this connection
        vec![7; 32],
        vec![0],
        with_length(numbers(&[suite])),
        vec![1, 0],
        with_length([groups, points, signatures].concat()),
    ]
    .concat();
    let message = [vec![CLIENT_HELLO, 0], with_length(body)].concat();
    [vec![HANDSHAKE, 3, 1], with_length(message)].concat()
}

fn parse_answer(answer: &[u8]) -> Answer {
    match answer {
        [] => Answer::Closed,
        [ALERT, _, _, _, _, rest @ ..] => Answer::Alert(rest.get(1).copied().unwrap_or_default()),
        [HANDSHAKE, _, _, _, _, SERVER_HELLO, ..] => Answer::Accepted,
        [other, ..] => Answer::NotTls(*other),
    }
}

#[cfg(test)]
mod tests {
    use rustls::server::Acceptor;

    use super::*;

    #[test]
    fn greetings_are_understood_by_a_server() {
        let mut acceptor = Acceptor::default();
        acceptor
            .read_tls(&mut client_hello(0x0303, 0xc02b).as_slice())
            .expect("it is read");
        let accepted = acceptor
            .accept()
            .expect("it is a ClientHello")
            .expect("it is a whole one");
        let received = accepted.client_hello();
        assert_eq!(
            received.cipher_suites(),
            [rustls::CipherSuite::from(0xc02b)]
        );
        assert_eq!(received.signature_schemes().len(), 6);
    }

    #[test]
    fn answers_are_told_apart() {
        assert_eq!(parse_answer(&[]), Answer::Closed);
        assert_eq!(parse_answer(&[21, 3, 3, 0, 2, 2, 70]), Answer::Alert(70));
        assert_eq!(parse_answer(&[22, 3, 3, 0, 80, 2, 0]), Answer::Accepted);
        assert_eq!(parse_answer(b"HTTP/1.1 400"), Answer::NotTls(b'H'));
        assert!(!parse_answer(b"HTTP/1.1 400").is_rejection());
    }
}
