//! A rate limit for work that waits instead of being refused.

use std::time::Duration;

use tokio::time::Instant;

/// Longest interval between two tokens of a rate per second. Lower rates, whose intervals may not be representable, use this one.
const MAX_INTERVAL: Duration = Duration::from_hours(24);

/// A token bucket that fills at a constant rate. Whoever takes a token learns when it may be used, and has its place from then on.
#[derive(Clone, Debug)]
pub struct Bucket {
    /// Time in which one token is produced.
    interval: Duration,
    /// Time to fill an empty bucket, minus one interval for the token that is taken.
    depth: Duration,
    /// When it will be full again.
    full: Option<Instant>,
}

impl Bucket {
    /// Creates a full bucket that gets this number of tokens per second and holds at most `burst`, at least one.
    pub fn new(per_second: f64, burst: u32) -> Self {
        let interval = Duration::try_from_secs_f64(1.0 / per_second).unwrap_or(MAX_INTERVAL);
        Self::every(interval.min(MAX_INTERVAL), burst)
    }

    /// Creates a full bucket that gets one token in each interval and holds at most `burst`, at least one.
    pub fn every(interval: Duration, burst: u32) -> Self {
        Self {
            interval,
            depth: interval.saturating_mul(burst.saturating_sub(1)),
            full: None,
        }
    }

    /// Takes a token. Returns when it becomes available.
    pub fn take(&mut self, now: Instant) -> Instant {
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
        for per_second in [f64::MIN_POSITIVE, 1e-12, 1e300] {
            let mut bucket = Bucket::new(per_second, u32::MAX);
            assert_eq!(waits(&mut bucket, start, 2), [0, 0]);
        }
    }

    #[test]
    fn a_bucket_for_one_gives_one_at_a_time() {
        let start = Instant::now() + Duration::from_secs(1000);
        assert_eq!(waits(&mut Bucket::new(2.0, 1), start, 3), [0, 500, 1000]);
    }
}
