//! How long a collection may take, and how much it may hold.

use std::time::Duration;

use tokio::time::Instant;

/// The limits of a collection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    request: Duration,
    deadline: Instant,
    /// Largest part of a log, in bytes.
    pub(super) log_bytes: u64,
}

/// A request failed, or took too long.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error<E: std::error::Error + 'static> {
    /// It failed.
    #[error(transparent)]
    Failed(E),
    /// It took longer than a request may.
    #[error("no answer within {} s", .0.as_secs())]
    Slow(Duration),
    /// The time for everything is over.
    #[error("not asked for: the time of the whole collection is over")]
    Over,
}

impl Limits {
    /// Creates limits for a collection that begins now.
    pub(super) fn new(request: Duration, total: Duration, log_bytes: u64) -> Self {
        Self {
            request,
            deadline: Instant::now() + total,
            log_bytes,
        }
    }

    /// Waits for a request within the limits.
    pub(super) async fn request<T, E: std::error::Error + 'static>(
        &self,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, Error<E>> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Error::Over);
        }
        match tokio::time::timeout(left.min(self.request), work).await {
            Ok(outcome) => outcome.map_err(Error::Failed),
            Err(_) if left < self.request => Err(Error::Over),
            Err(_) => Err(Error::Slow(self.request)),
        }
    }

    /// Waits for a request that cleans up, also when the time for everything is over.
    pub(super) async fn cleanup<T, E: std::error::Error + 'static>(
        &self,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, Error<E>> {
        match tokio::time::timeout(self.request, work).await {
            Ok(outcome) => outcome.map_err(Error::Failed),
            Err(_) => Err(Error::Slow(self.request)),
        }
    }
}
