//! Limits how often events may cause scans.

use std::time::Duration;

use daemon::rate::Bucket;

/// How many events may pass at once after a quiet time; the same as upstream (rte.md 3).
const BURST: u32 = 11;

/// Creates a limit of `events` per `unit`. `None` (no limit) if either is not positive.
///
/// Unlike upstream, no event is dropped: the caller waits, and events that arrive meanwhile are merged into one.
pub(crate) fn limiter(events: i64, unit: Duration) -> Option<Bucket> {
    let events = u32::try_from(events).ok().filter(|events| *events > 0)?;
    let interval = unit
        .checked_div(events)
        .filter(|interval| !interval.is_zero())?;
    Some(Bucket::every(interval, BURST))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use tokio::time::Instant;

    use super::*;

    #[rstest]
    #[case::zero_events(0, Duration::from_secs(1))]
    #[case::negative(-1, Duration::from_secs(1))]
    #[case::zero_unit(1, Duration::ZERO)]
    fn limit_can_be_switched_off(#[case] events: i64, #[case] unit: Duration) {
        assert!(limiter(events, unit).is_none());
    }

    #[test]
    fn burst_passes_and_what_follows_is_spread() {
        let start = Instant::now();
        let mut limiter = limiter(2, Duration::from_secs(1)).unwrap();
        let delays: Vec<Duration> = (0..14).map(|_| limiter.take(start) - start).collect();
        assert!(delays[..=10].iter().all(Duration::is_zero), "{delays:?}");
        let expected = [500, 1000, 1500].map(Duration::from_millis);
        assert_eq!(delays[11..], expected);
    }

    #[test]
    fn quiet_time_makes_room_again() {
        let start = Instant::now();
        let mut limiter = limiter(1, Duration::from_secs(1)).unwrap();
        for _ in 0..12 {
            limiter.take(start);
        }
        let later = start + Duration::from_mins(1);
        assert_eq!(limiter.take(later), later);
    }
}
