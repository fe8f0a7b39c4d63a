//! Requests that may be repeated.

use std::time::Duration;

/// Number of attempts of one request. Their pauses add up to 12.6 s, which outlasts a restart of the API server.
const TRIES: u32 = 7;
/// Pause after the first attempt; each further pause is twice as long.
const PAUSE: Duration = Duration::from_millis(200);
/// Timeout of one attempt.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(10);

/// Sends a request that may be repeated. A permanent refusal of the API server is not retried.
pub async fn retried<T, F: Future<Output = kube::Result<T>>>(
    request: impl Fn() -> F,
) -> kube::Result<T> {
    let mut pause = PAUSE;
    let mut tries = 1;
    loop {
        let answer = tokio::time::timeout(ATTEMPT_TIMEOUT, request())
            .await
            .unwrap_or_else(|elapsed| Err(kube::Error::Service(elapsed.into())));
        match answer {
            Err(error) if tries < TRIES && is_transient(&error) => {
                tokio::time::sleep(pause).await;
                pause *= 2;
                tries += 1;
            }
            answer => return answer,
        }
    }
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
