//! A proxy without TLS before a server: it adds a user's token to every request and keeps what was asked and answered.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::header::{
    ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONNECTION, CONTENT_LENGTH, HOST, TRANSFER_ENCODING,
};
use http::{HeaderValue, Request, Response};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use super::client::{Client, Error};
use super::{Endpoint, USERS};

/// A request, and its answer as far as it has come.
#[derive(Clone, Debug)]
pub struct Exchange {
    /// The method.
    pub method: String,
    /// Path and query.
    pub path: String,
    /// Headers of the request, in their order.
    pub headers: Vec<(String, String)>,
    /// Body of the request.
    pub body: Vec<u8>,
    /// Status of the answer, 0 before it comes.
    pub status: u16,
    /// The answer, if it is JSON and no watch.
    pub answer: Value,
    /// Whether it is a watch.
    pub watch: bool,
    /// How many events of a watch came.
    pub events: usize,
}

struct State {
    client: Client,
    token: Mutex<HeaderValue>,
    exchanges: Mutex<Vec<Exchange>>,
}

impl State {
    fn exchanges(&self) -> MutexGuard<'_, Vec<Exchange>> {
        self.exchanges
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes a kept exchange. One that was taken meanwhile needs no change.
    fn change(&self, number: usize, change: impl FnOnce(&mut Exchange)) {
        if let Some(exchange) = self.exchanges().get_mut(number) {
            change(exchange);
        }
    }
}

/// The running proxy; it ends when this is dropped.
pub struct Proxy {
    address: SocketAddr,
    state: Arc<State>,
    accepting: JoinHandle<()>,
}

impl std::fmt::Debug for Proxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Proxy").finish_non_exhaustive()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// Why a request was not passed on.
#[derive(Debug, thiserror::Error)]
enum PassError {
    #[error(transparent)]
    Server(#[from] Error),
    #[error("the client's request broke off")]
    Client(#[from] hyper::Error),
}

impl Proxy {
    /// Starts it on a free port of the loopback address.
    pub async fn start(endpoint: &Endpoint) -> Result<Self, Error> {
        let failed = |source| Error::Connect {
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            source,
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let state = Arc::new(State {
            client: Client::new(endpoint.address, &endpoint.ca)?,
            token: Mutex::new(HeaderValue::from_static("")),
            exchanges: Mutex::default(),
        });
        let accepting = tokio::spawn(accept(listener, Arc::clone(&state)));
        Ok(Self {
            address,
            state,
            accepting,
        })
    }

    /// Returns its address and port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Makes all further requests those of a user of the corpus; returns whether there is such a user.
    pub fn speak_as(&self, user: &str) -> bool {
        let found = USERS.iter().find(|(name, ..)| *name == user);
        let token = found.and_then(|(_, token, ..)| format!("Bearer {token}").parse().ok());
        let known = token.is_some();
        if let Some(token) = token {
            *self
                .state
                .token
                .lock()
                .unwrap_or_else(PoisonError::into_inner) = token;
        }
        known
    }

    /// Returns what was asked since the last time, in its order.
    pub fn take(&self) -> Vec<Exchange> {
        std::mem::take(&mut *self.state.exchanges())
    }
}

async fn accept(listener: TcpListener, state: Arc<State>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            continue;
        };
        tokio::spawn(serve(stream, Arc::clone(&state)));
    }
}

async fn serve(stream: TcpStream, state: Arc<State>) {
    let service = service_fn(|request| pass(&state, request));
    // an error is one of the client's, which has gone, or one of the server's, which the client sees as a connection that breaks off
    let _ = hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

/// Returns what a client accepts besides protobuf, in which nobody can look for what a later request refers to.
fn readable(accept: &HeaderValue) -> Option<HeaderValue> {
    let clauses = accept.to_str().ok()?.split(',');
    let left: Vec<&str> = clauses
        .filter(|clause| !clause.contains("protobuf"))
        .collect();
    if left.is_empty() {
        return None;
    }
    left.join(",").parse().ok()
}

async fn pass(
    state: &Arc<State>,
    request: Request<Incoming>,
) -> Result<Response<BoxBody<Bytes, hyper::Error>>, PassError> {
    let (mut parts, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    // the body has to stay readable, and the connection is this proxy's own
    for name in [
        ACCEPT_ENCODING,
        CONNECTION,
        CONTENT_LENGTH,
        HOST,
        TRANSFER_ENCODING,
    ] {
        parts.headers.remove(name);
    }
    if let Some(accept) = parts.headers.get(ACCEPT).and_then(readable) {
        parts.headers.insert(ACCEPT, accept);
    }
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    let query = parts.uri.query().unwrap_or_default();
    let exchange = Exchange {
        method: parts.method.to_string(),
        path: path.to_owned(),
        headers: parts
            .headers
            .iter()
            .filter_map(|(name, value)| Some((name.to_string(), value.to_str().ok()?.to_owned())))
            .collect(),
        body: body.to_vec(),
        status: 0,
        answer: Value::Null,
        watch: query
            .split('&')
            .any(|one| matches!(one, "watch=true" | "watch=1")),
        events: 0,
    };
    let watch = exchange.watch;
    let number = {
        let mut exchanges = state.exchanges();
        exchanges.push(exchange);
        exchanges.len() - 1
    };
    let token = {
        let token = state.token.lock();
        token.unwrap_or_else(PoisonError::into_inner).clone()
    };
    parts.headers.insert(AUTHORIZATION, token);
    let mut sender = state.client.connect().await?;
    let request = Request::from_parts(parts, Full::new(body));
    let answer = state.client.send(&mut sender, request).await?;
    state.change(number, |exchange| exchange.status = answer.status);
    let body = if watch && answer.status == 200 {
        let state = Arc::clone(state);
        let count = move |frame: hyper::body::Frame<Bytes>| {
            let lines = frame
                .data_ref()
                .map_or(0, |data| data.split(|byte| *byte == b'\n').count() - 1);
            state.change(number, |exchange| exchange.events += lines);
            frame
        };
        answer.body.map_frame(count).boxed()
    } else {
        let body = answer.body.collect().await?.to_bytes();
        let value = serde_json::from_slice(&body).unwrap_or_default();
        state.change(number, |exchange| exchange.answer = value);
        Full::new(body).map_err(|never| match never {}).boxed()
    };
    let mut response = Response::new(body);
    if let Ok(status) = http::StatusCode::from_u16(answer.status) {
        *response.status_mut() = status;
    }
    *response.headers_mut() = answer.headers;
    for name in [CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING] {
        response.headers_mut().remove(name);
    }
    Ok(response)
}
