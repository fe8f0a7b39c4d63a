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

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_was_created_is_removed_also_when_the_time_for_everything_is_over() {
        let second = Duration::from_secs(1);
        let limits = Limits::new(second, second, 1);
        tokio::time::advance(2 * second).await;
        let work = || async { Ok::<_, Infallible>(()) };
        assert!(matches!(limits.request(work()).await, Err(Error::Over)));
        assert!(limits.cleanup(work()).await.is_ok());
        let hangs = std::future::pending::<Result<(), Infallible>>();
        assert!(matches!(limits.cleanup(hangs).await, Err(Error::Slow(_))));
    }
}
