//! Limits how often events may cause scans.

use std::time::Duration;

use tokio::time::Instant;

/// How many events may pass at once after a quiet time, in addition to the first; the same as upstream (rte.md 3).
const SLACK: u32 = 10;

/// A leaky bucket: one event per interval on average, and a burst after a quiet time.
///
/// Unlike upstream, no event is dropped: the caller waits, and events that arrive meanwhile are merged into one.
#[derive(Clone, Debug)]
pub(crate) struct Limiter {
    interval: Duration,
    /// When the bucket becomes empty if no further event arrives.
    empty_at: Option<Instant>,
}

impl Limiter {
    /// Creates a limit of `events` per `unit`. `None` (no limit) if either is not positive.
    pub(crate) fn new(events: i64, unit: Duration) -> Option<Self> {
        let events = u32::try_from(events).ok().filter(|events| *events > 0)?;
        let interval = unit
            .checked_div(events)
            .filter(|interval| !interval.is_zero())?;
        Some(Self {
            interval,
            empty_at: None,
        })
    }

    /// Counts an event that arrives at `now` and returns when it may pass.
    pub(crate) fn admit(&mut self, now: Instant) -> Instant {
        let empty_at = self.empty_at.map_or(now, |at| at.max(now));
        self.empty_at = Some(empty_at + self.interval);
        let full = self.interval * SLACK;
        empty_at.checked_sub(full).map_or(now, |at| at.max(now))
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::zero_events(0, Duration::from_secs(1))]
    #[case::negative(-1, Duration::from_secs(1))]
    #[case::zero_unit(1, Duration::ZERO)]
    fn limit_can_be_switched_off(#[case] events: i64, #[case] unit: Duration) {
        assert!(Limiter::new(events, unit).is_none());
    }

    #[test]
    fn burst_passes_and_what_follows_is_spread() {
        let start = Instant::now();
        let mut limiter = Limiter::new(2, Duration::from_secs(1)).unwrap();
        let delays: Vec<Duration> = (0..14).map(|_| limiter.admit(start) - start).collect();
        assert!(delays[..=10].iter().all(Duration::is_zero), "{delays:?}");
        let expected = [500, 1000, 1500].map(Duration::from_millis);
        assert_eq!(delays[11..], expected);
    }

    #[test]
    fn quiet_time_makes_room_again() {
        let start = Instant::now();
        let mut limiter = Limiter::new(1, Duration::from_secs(1)).unwrap();
        for _ in 0..12 {
            limiter.admit(start);
        }
        let later = start + Duration::from_mins(1);
        assert_eq!(limiter.admit(later), later);
    }
}
