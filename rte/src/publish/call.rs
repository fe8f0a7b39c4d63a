//! One call to the API server, with a time limit.

use std::time::Duration;

/// Time limit of one call.
const TIMEOUT: Duration = Duration::from_secs(20);
/// How many conflicts one write resolves by reading and writing again.
pub(super) const MAX_CONFLICTS: usize = 4;

/// A call failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The API server refused it, or it did not get there.
    #[error(transparent)]
    Client(#[from] Box<kube::Error>),
    /// The API server did not answer.
    #[error("no answer within {} s", TIMEOUT.as_secs())]
    Timeout,
}

impl Error {
    /// Returns the status code with which the API server refused the call.
    pub(super) fn code(&self) -> Option<u16> {
        match self {
            Self::Client(error) => match error.as_ref() {
                kube::Error::Api(status) => Some(status.code),
                _ => None,
            },
            Self::Timeout => None,
        }
    }
}

/// Waits for the answer to a call, at most [`TIMEOUT`].
pub(super) async fn bounded<T>(call: impl Future<Output = kube::Result<T>>) -> Result<T, Error> {
    match tokio::time::timeout(TIMEOUT, call).await {
        Ok(answer) => answer.map_err(|error| Error::Client(Box::new(error))),
        Err(_elapsed) => Err(Error::Timeout),
    }
}
