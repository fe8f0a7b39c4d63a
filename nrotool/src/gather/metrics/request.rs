//! One question for the metrics of a pod, over a forwarded port.

use std::sync::Arc;

use apply::Cause;
use http::{HeaderValue, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Empty, LengthLimitError, Limited};
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::Pod;
use kube::client::ConfigExt as _;
use kube::{Api, Client, Config};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

use super::endpoint::{Endpoint, Served};

/// Largest answer, in bytes.
const MAX_ANSWER: usize = 16 << 20;
/// Largest part of a refusal that is told, in characters.
const MAX_REASON: usize = 200;
/// Name of the server in the request. The connection is forwarded to this address of the pod.
const HOST: &str = "localhost";

/// There are no metrics.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// The API server forwards no port.
    #[error("cannot forward port {port}")]
    Forward {
        /// The TCP port.
        port: u16,
        /// The cause.
        #[source]
        source: Cause,
    },
    /// The node could not reach the port.
    #[error("cannot reach port {port}: {told}")]
    Unreached {
        /// The TCP port.
        port: u16,
        /// What the node says.
        told: String,
    },
    /// The request cannot be made.
    #[error("cannot make a request")]
    Request(#[source] http::Error),
    /// There is no client for TLS.
    #[error("cannot make a client for TLS")]
    Client(#[source] Cause),
    /// There is no TLS.
    #[error("cannot begin TLS")]
    Tls(#[source] std::io::Error),
    /// There is no answer.
    #[error("no answer")]
    Exchange(#[source] hyper::Error),
    /// The answer broke off.
    #[error("the answer broke off")]
    Broken(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The answer is too large.
    #[error("the answer is larger than {MAX_ANSWER} bytes")]
    TooLarge,
    /// The pod does not know the sender, or does not let it read.
    #[error("{code}: {reason}")]
    Refused {
        /// The HTTP status.
        code: StatusCode,
        /// What the pod says.
        reason: String,
    },
    /// The pod answers something else.
    #[error("{0} in place of metrics")]
    Unexpected(StatusCode),
}

/// Returns the metrics of a pod. Who the pod is is not asked: what it gets to see is a token that reads metrics, at most.
pub(super) async fn metrics(
    client: &Client,
    endpoint: &Endpoint,
    token: Option<&str>,
) -> Result<String, Error> {
    let (Served::Http(port) | Served::Https(port)) = endpoint.served;
    let pods: Api<Pod> = Api::namespaced(client.clone(), &endpoint.namespace);
    let unforwarded = |error: kube::Error| Error::Forward {
        port,
        source: error.into(),
    };
    let unreached = |told: &str| Error::Unreached {
        port,
        told: told.to_owned(),
    };
    let forwarder = pods.portforward(&endpoint.pod, &[port]).await;
    let mut forwarder = forwarder.map_err(unforwarded)?;
    let told = forwarder.take_error(port);
    let stream = forwarder.take_stream(port);
    let stream = stream.ok_or_else(|| unreached("there is no connection"))?;
    let answer = async {
        match endpoint.served {
            Served::Http(_) => ask(stream, token).await,
            Served::Https(_) => ask(encrypted(stream).await?, token).await,
        }
    };
    let told = async {
        match told {
            Some(told) => told.await,
            None => None,
        }
    };
    tokio::select! {
        biased;
        // why a connection ends is told before it ends
        Some(told) = told => Err(unreached(told.trim())),
        answer = answer => answer,
    }
}

async fn encrypted<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
) -> Result<tokio_rustls::client::TlsStream<S>, Error> {
    let mut config = Config::new(http::Uri::from_static("https://localhost"));
    config.accept_invalid_certs = true;
    let config = config.rustls_client_config();
    let config = config.map_err(|error| Error::Client(error.into()))?;
    let connector = TlsConnector::from(Arc::new(config));
    let name = ServerName::try_from(HOST);
    let name = name.map_err(|error| Error::Tls(std::io::Error::other(error)))?;
    connector.connect(name, stream).await.map_err(Error::Tls)
}

async fn ask(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    token: Option<&str>,
) -> Result<String, Error> {
    let mut request = Request::get("/metrics").header(header::HOST, HOST);
    if let Some(token) = token {
        let bearer = HeaderValue::try_from(format!("Bearer {token}"));
        let mut bearer = bearer.map_err(|error| Error::Request(error.into()))?;
        bearer.set_sensitive(true);
        request = request.header(header::AUTHORIZATION, bearer);
    }
    let request = request.body(Empty::<Bytes>::new());
    let request = request.map_err(Error::Request)?;
    let exchange = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = exchange.map_err(Error::Exchange)?;
    // ends with this function
    let mut tasks = JoinSet::new();
    tasks.spawn(connection);
    let answer = sender.send_request(request).await;
    let (head, body) = answer.map_err(Error::Exchange)?.into_parts();
    let body = Limited::new(body, MAX_ANSWER).collect().await;
    let body = body.map_err(|error| {
        if error.is::<LengthLimitError>() {
            Error::TooLarge
        } else {
            Error::Broken(error)
        }
    })?;
    let text = String::from_utf8_lossy(&body.to_bytes()).into_owned();
    match head.status {
        StatusCode::OK => Ok(text),
        code @ (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => Err(Error::Refused {
            code,
            reason: text.trim().chars().take(MAX_REASON).collect(),
        }),
        code => Err(Error::Unexpected(code)),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    /// Answers one request. Returns what `ask` makes of it, and the request.
    async fn answered(answer: String, token: Option<&str>) -> (Result<String, Error>, String) {
        let (client, mut server) = tokio::io::duplex(1 << 20);
        let serve = async move {
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                request.push(server.read_u8().await.expect("a request"));
            }
            // the reader may have gone before the end
            drop(server.write_all(answer.as_bytes()).await);
            String::from_utf8(request).expect("text")
        };
        tokio::join!(ask(client, token), serve)
    }

    fn answer(status: &str, body: &str) -> String {
        let length = body.len();
        format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\n\r\n{body}")
    }

    #[tokio::test]
    async fn the_token_is_sent_if_there_is_one() {
        let (text, request) = answered(answer("200 OK", "up 1\n"), Some("abc")).await;
        assert_eq!(text.expect("metrics"), "up 1\n");
        assert!(
            request.starts_with("GET /metrics HTTP/1.1\r\n"),
            "{request}"
        );
        assert!(
            request.contains("authorization: Bearer abc\r\n"),
            "{request}"
        );
        let (_, request) = answered(answer("200 OK", ""), None).await;
        assert!(!request.contains("authorization"), "{request}");
    }

    #[rstest]
    #[case::unknown("401 Unauthorized", "Unauthorized\n", "401 Unauthorized: Unauthorized")]
    #[case::forbidden("403 Forbidden", "no", "403 Forbidden: no")]
    #[case::broken(
        "500 Internal Server Error",
        "x",
        "500 Internal Server Error in place of metrics"
    )]
    #[tokio::test]
    async fn what_is_refused_is_told(
        #[case] status: &str,
        #[case] body: &str,
        #[case] expected: &str,
    ) {
        let (refused, _) = answered(answer(status, body), None).await;
        assert_eq!(refused.expect_err("no metrics").to_string(), expected);
    }

    #[tokio::test]
    async fn an_answer_without_end_is_given_up() {
        let (refused, _) = answered(answer("200 OK", &"x".repeat(MAX_ANSWER + 1)), None).await;
        assert!(matches!(refused, Err(Error::TooLarge)), "{refused:?}");
    }
}
