//! `clientConnection.qps` and `.burst`: the rate limit of requests to the API server, as in client-go.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use kube::client::ClientBuilder;
use parking_lot::Mutex;
use scheduler_config::configuration::ClientConnection;
use tokio::time::Instant;
use tower::util::MapFutureLayer;

/// Why no client can be created.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no usable kubeconfig.
    #[error("cannot read the client configuration")]
    Config(#[from] daemon::client::Error),
    /// The kubeconfig does not yield a client.
    #[error("cannot build a Kubernetes client")]
    Build(#[source] Box<kube::Error>),
}

/// Creates a client with its own rate limit. It uses JSON, whatever content type is configured.
///
/// # Errors
/// When there is no usable kubeconfig, or it does not yield a client.
pub async fn client(
    kubeconfig: Option<&Path>,
    connection: &ClientConnection,
) -> Result<Client, Error> {
    let Some(qps) = connection.qps else {
        return Ok(daemon::client::client(kubeconfig).await?);
    };
    let config = daemon::client::config(kubeconfig).await?;
    let bucket = Arc::new(Mutex::new(Bucket::new(qps, connection.burst)));
    let builder =
        ClientBuilder::try_from(config).map_err(|source| Error::Build(Box::new(source)))?;
    let layer = MapFutureLayer::new(move |answer| {
        let bucket = Arc::clone(&bucket);
        async move {
            let at = bucket.lock().take(Instant::now());
            tokio::time::sleep_until(at).await;
            // the request is sent only when this is polled
            answer.await
        }
    });
    Ok(builder.with_layer(&layer).build())
}

/// Longest interval between two requests. Lower rates, whose intervals may not be representable, use this one.
const MAX_INTERVAL: Duration = Duration::from_hours(24);

/// A token bucket that fills at a constant rate.
#[derive(Debug)]
struct Bucket {
    /// Time in which one token is produced.
    interval: Duration,
    /// Time to fill an empty bucket, minus one interval for the token that is taken.
    depth: Duration,
    /// When it will be full again.
    full: Option<Instant>,
}

impl Bucket {
    fn new(qps: f64, burst: u32) -> Self {
        let interval = Duration::try_from_secs_f64(1.0 / qps).unwrap_or(MAX_INTERVAL);
        let interval = interval.min(MAX_INTERVAL);
        Self {
            interval,
            depth: interval.saturating_mul(burst.saturating_sub(1)),
            full: None,
        }
    }

    /// Takes a token. Returns when it becomes available.
    fn take(&mut self, now: Instant) -> Instant {
        let full = self.full.map_or(now, |full| full.max(now));
        self.full = Some(full + self.interval);
        (full.checked_sub(self.depth)).map_or(now, |at| at.max(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns when `count` requests that all arrive at `start` may go, in milliseconds.
    fn waits(bucket: &mut Bucket, start: Instant, count: usize) -> Vec<u128> {
        (0..count)
            .map(|_| (bucket.take(start) - start).as_millis())
            .collect()
    }

    #[test]
    fn a_burst_goes_at_once_and_the_rest_at_the_rate() {
        let start = Instant::now() + Duration::from_secs(1000);
        let mut bucket = Bucket::new(10.0, 3);
        assert_eq!(waits(&mut bucket, start, 5), [0, 0, 0, 100, 200]);
        // after 300 ms the two delayed requests are sent and one token is back
        let later = start + Duration::from_millis(300);
        assert_eq!(waits(&mut bucket, later, 3), [0, 100, 200]);
        let much_later = later + Duration::from_secs(10);
        assert_eq!(waits(&mut bucket, much_later, 4), [0, 0, 0, 100]);
    }

    #[test]
    fn rates_near_zero_and_huge_bursts_are_taken() {
        let start = Instant::now();
        for qps in [f64::MIN_POSITIVE, 1e-12, 1e300] {
            assert_eq!(waits(&mut Bucket::new(qps, u32::MAX), start, 2), [0, 0]);
        }
    }

    #[test]
    fn a_bucket_for_one_gives_one_at_a_time() {
        let start = Instant::now() + Duration::from_secs(1000);
        assert_eq!(waits(&mut Bucket::new(2.0, 1), start, 3), [0, 500, 1000]);
    }
}
