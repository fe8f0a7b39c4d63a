//! Gives each answer a deadline, its body included.
//!
//! A watch is an answer that goes on: the server ends it after the time that the request names, and the deadline is somewhat later.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::{Method, Request, Response};
use http_body::{Body as HttpBody, Frame, SizeHint};
use kube::client::Body;
use tokio::time::{Instant, Sleep, sleep_until, timeout_at};
use tower::{BoxError, Service};

/// How long an answer may take. The API server itself gives up after a minute.
pub(super) const ANSWER: Duration = Duration::from_secs(65);
/// How long after its own time a watch may go on.
const GRACE: Duration = Duration::from_secs(30);
/// How long a watch may go on that names no time: the API server ends it after one hour at most.
const LONGEST_WATCH: Duration = Duration::from_secs(60 * 60 + 30);

/// An answer did not come in time.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the API server did not answer {method} {path} within {} s", limit.as_secs())]
pub(super) struct Overdue {
    method: Method,
    path: String,
    limit: Duration,
}

impl Overdue {
    fn of(request: &Request<Body>, limit: Duration) -> Self {
        Self {
            method: request.method().clone(),
            path: request.uri().path().to_owned(),
            limit,
        }
    }
}

/// Returns whether a request watches.
pub(super) fn is_watch(request: &Request<Body>) -> bool {
    parameter(request, "watch").is_some_and(|value| matches!(value.as_ref(), "true" | "1"))
}

fn parameter<'a>(request: &'a Request<Body>, name: &str) -> Option<std::borrow::Cow<'a, str>> {
    let query = request.uri().query()?.as_bytes();
    form_urlencoded::parse(query)
        .find(|(key, _)| key == name)
        .map(|(_, value)| value)
}

/// Returns how long the whole answer may take.
fn limit(request: &Request<Body>) -> Duration {
    if !is_watch(request) {
        return ANSWER;
    }
    parameter(request, "timeoutSeconds")
        .and_then(|seconds| seconds.parse::<u32>().ok())
        .map_or(LONGEST_WATCH, |seconds| {
            Duration::from_secs(seconds.into()) + GRACE
        })
}

/// A service whose answers have a deadline.
#[derive(Clone, Debug)]
pub(super) struct Deadline<S>(S);

impl<S> Deadline<S> {
    pub(super) fn new(inner: S) -> Self {
        Self(inner)
    }
}

impl<S, B> Service<Request<Body>> for Deadline<S>
where
    S: Service<Request<Body>, Response = Response<B>, Error = BoxError>,
    S::Future: Send + 'static,
    B: 'static,
{
    type Response = Response<Limited<B>>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (now, limit) = (Instant::now(), limit(&request));
        let headers_overdue = Overdue::of(&request, ANSWER);
        let overdue = Overdue::of(&request, limit);
        let answer = self.0.call(request);
        Box::pin(async move {
            match timeout_at(now + ANSWER, answer).await {
                Ok(answer) => Ok(answer?.map(|body| Limited::new(body, now + limit, overdue))),
                Err(_) => Err(headers_overdue.into()),
            }
        })
    }
}

/// The body of an answer with a deadline.
#[derive(Debug)]
pub(super) struct Limited<B> {
    inner: Pin<Box<B>>,
    end: Pin<Box<Sleep>>,
    /// The error at the deadline; `None` once it was reported.
    overdue: Option<Overdue>,
}

impl<B> Limited<B> {
    fn new(inner: B, end: Instant, overdue: Overdue) -> Self {
        Self {
            inner: Box::pin(inner),
            end: Box::pin(sleep_until(end)),
            overdue: Some(overdue),
        }
    }
}

impl<B: HttpBody<Error: Into<BoxError>>> HttpBody for Limited<B> {
    type Data = B::Data;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, BoxError>>> {
        if self.overdue.is_none() {
            return Poll::Ready(None);
        }
        if let Poll::Ready(frame) = self.inner.as_mut().poll_frame(context) {
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        ready!(self.end.as_mut().poll(context));
        Poll::Ready(self.overdue.take().map(|overdue| Err(overdue.into())))
    }

    fn is_end_stream(&self) -> bool {
        self.overdue.is_none() || self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
