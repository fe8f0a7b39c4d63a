//! Requests that may be repeated.

use std::time::Duration;

use backon::{ExponentialBuilder, Retryable as _};
use futures::FutureExt as _;

/// Number of attempts of one request. Their pauses add up to 12.6 s or more, which outlasts a restart of the API server.
const TRIES: usize = 7;
/// Pause after the first attempt; each further pause is twice as long, and by chance up to twice that: otherwise all that failed at once would
/// come back at once.
const PAUSE: Duration = Duration::from_millis(200);
/// Timeout of one attempt.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(10);

/// Sends a request that may be repeated. A permanent refusal of the API server is not retried.
pub async fn retried<T, F: Future<Output = kube::Result<T>>>(
    request: impl Fn() -> F,
) -> kube::Result<T> {
    let pauses = ExponentialBuilder::default()
        .with_min_delay(PAUSE)
        .with_factor(2.0)
        .with_max_times(TRIES - 1)
        .with_jitter();
    let attempt = move || {
        let answer = tokio::time::timeout(ATTEMPT_TIMEOUT, request());
        answer.map(|answer| {
            answer.unwrap_or_else(|elapsed| Err(kube::Error::Service(elapsed.into())))
        })
    };
    attempt.retry(pauses).when(is_transient).await
}

/// Returns whether the same request may succeed later. The failed request may have taken effect.
pub fn is_transient(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => status.code >= 500 || status.code == 429,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use kube::core::Status;

    use super::*;

    fn failure(code: u16) -> kube::Error {
        kube::Error::Api(Box::new(Status::failure("no", "").with_code(code)))
    }

    #[tokio::test(start_paused = true)]
    async fn what_passes_is_tried_again_until_it_works() {
        let left = Cell::new(5);
        let answer = retried(async || {
            left.set(left.get() - 1);
            match left.get() {
                4 => Err(failure(500)),
                3 => Err(failure(429)),
                // no answer
                2 => std::future::pending().await,
                _ => Ok(left.get()),
            }
        })
        .await;
        assert_eq!(answer.unwrap(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_refused_for_good_is_not_tried_again_and_nothing_is_tried_forever() {
        for (code, expected) in [(403, 1), (404, 1), (409, 1), (503, TRIES)] {
            let tries = Cell::new(0);
            let answer: kube::Result<()> = retried(async || {
                tries.set(tries.get() + 1);
                Err(failure(code))
            })
            .await;
            assert!(answer.is_err());
            assert_eq!(tries.get(), expected, "{code}");
        }
    }
}
