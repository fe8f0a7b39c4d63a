//! Writes whose answers were lost. The client of the products never sends such a write again by itself (`daemon::client`): only its caller knows
//! whether that does harm.

use std::time::Duration;

use backon::{ExponentialBuilder, Retryable as _};

/// Pauses between attempts: 0.2 s, 0.8 s and 3.2 s.
const PAUSES: ExponentialBuilder = ExponentialBuilder::new()
    .with_min_delay(Duration::from_millis(200))
    .with_factor(4.0)
    .with_max_times(3);

/// Makes a call that may be made again, up to three times more, where no answer tells whether it was carried out. The next answer may so be about
/// what the one before has done: that the object is there already, or is gone.
pub async fn again<T, E, F: Future<Output = Result<T, E>>>(
    call: impl FnMut() -> F,
    is_unanswered: impl FnMut(&E) -> bool,
) -> Result<T, E> {
    call.retry(PAUSES).when(is_unanswered).await
}

/// Returns whether no answer of the API server tells that a request was refused: there was none, or one of what is between.
pub fn is_unanswered(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => matches!(status.code, 502..=504),
        kube::Error::HyperError(_) | kube::Error::Service(_) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use kube::core::Status;
    use rstest::rstest;

    use super::*;

    fn status(code: u16) -> kube::Error {
        kube::Error::Api(Box::new(Status::failure("no", "").with_code(code)))
    }

    #[rstest]
    #[case::time_out_of_a_proxy(status(504), 4)]
    #[case::broken_connection(kube::Error::Service("reset".into()), 4)]
    #[case::refused(status(403), 1)]
    #[case::there_already(status(409), 1)]
    #[case::failed_inside(status(500), 1)]
    #[tokio::test(start_paused = true)]
    async fn a_call_is_made_again_only_while_nothing_answers(
        #[case] error: kube::Error,
        #[case] expected: u32,
    ) {
        let calls = Cell::new(0);
        let error = &error;
        let call = || async {
            calls.set(calls.get() + 1);
            Err::<(), _>(error)
        };
        assert!(again(call, |error| is_unanswered(error)).await.is_err());
        assert_eq!(calls.get(), expected);
    }
}
