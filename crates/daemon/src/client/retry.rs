//! Which requests are sent again, and when: the only place that does so below the callers' own loops.
//!
//! What the API server refused unread (429 and 503 that name a time) is sent again whatever it is. Reads are also sent again after answers that
//! a proxy gives and after broken connections. A write that may have been committed is never sent again here: only its caller knows whether
//! that does harm.

use std::time::Duration;

use http::{Method, Request, Response, StatusCode, header};
use kube::client::Body;
use prometheus_client::metrics::counter::Counter;
use tokio::time::Sleep;
use tower::BoxError;
use tower::retry::backoff::{Backoff, ExponentialBackoff, ExponentialBackoffMaker, MakeBackoff};
use tower::util::rng::HasherRng;

use super::deadline::{Overdue, is_watch};

/// Number of times that a request is sent again. With the pauses that is for three seconds.
const REPETITIONS: u32 = 5;
/// First pause; each further one is twice as long.
const PAUSE: Duration = Duration::from_millis(100);
/// Longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Part of a pause by which it is made shorter or longer by chance, so that many clients do not come back at once.
const JITTER: f64 = 0.5;
/// Longest wait that the API server may ask for. The caller decides about longer ones.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// Decides after each answer.
#[derive(Clone)]
pub(super) struct Policy {
    left: u32,
    pauses: ExponentialBackoff,
    repetitions: Counter,
}

impl Policy {
    /// Creates the policy of one client. `repetitions` counts what is sent again.
    pub(super) fn new(repetitions: Counter) -> Self {
        let pauses = ExponentialBackoffMaker::new(PAUSE, LONGEST_PAUSE, JITTER, HasherRng::new());
        Self {
            left: REPETITIONS,
            pauses: pauses.expect("valid pauses").make_backoff(),
            repetitions,
        }
    }
}

impl<B> tower::retry::Policy<Request<Body>, Response<B>, BoxError> for Policy {
    type Future = Sleep;

    fn retry(
        &mut self,
        request: &mut Request<Body>,
        result: &mut Result<Response<B>, BoxError>,
    ) -> Option<Sleep> {
        let wait = match result {
            Ok(answer) => wait_after_answer(request, answer)?,
            Err(error) => (is_read(request) && !error.is::<Overdue>()).then_some(Duration::ZERO)?,
        };
        self.left = self.left.checked_sub(1)?;
        self.repetitions.inc();
        let pause = self.pauses.next_backoff();
        if wait.is_zero() {
            Some(pause)
        } else {
            Some(tokio::time::sleep(wait))
        }
    }

    fn clone_request(&mut self, request: &Request<Body>) -> Option<Request<Body>> {
        let mut copy = Request::new(request.body().try_clone()?);
        *copy.method_mut() = request.method().clone();
        *copy.uri_mut() = request.uri().clone();
        *copy.version_mut() = request.version();
        *copy.headers_mut() = request.headers().clone();
        *copy.extensions_mut() = request.extensions().clone();
        Some(copy)
    }
}

/// Returns how long the API server asks to wait, zero if it names no time; `None` if the request is not sent again.
fn wait_after_answer<B>(request: &Request<Body>, answer: &Response<B>) -> Option<Duration> {
    let status = answer.status();
    let is_refused = matches!(
        status,
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE
    );
    if is_refused && let Some(wait) = retry_after(answer) {
        // 429 to an eviction is the word of a PodDisruptionBudget
        return (wait <= LONGEST_WAIT && !is_eviction(request)).then_some(wait);
    }
    let is_passing = is_refused
        || matches!(
            status,
            StatusCode::BAD_GATEWAY | StatusCode::GATEWAY_TIMEOUT
        );
    (is_passing && is_read(request)).then_some(Duration::ZERO)
}

fn retry_after<B>(answer: &Response<B>) -> Option<Duration> {
    let seconds = answer.headers().get(header::RETRY_AFTER)?.to_str().ok()?;
    seconds.parse().ok().map(Duration::from_secs)
}

/// Returns whether a request only reads, and to the end: a watch begins again by itself.
fn is_read(request: &Request<Body>) -> bool {
    request.method() == Method::GET && !is_watch(request)
}

fn is_eviction(request: &Request<Body>) -> bool {
    request.method() == Method::POST && request.uri().path().ends_with("/eviction")
}
