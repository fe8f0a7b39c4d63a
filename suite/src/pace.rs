//! How often a wait polls the cluster.

use std::time::Duration;

use tokio::time::Instant;

/// Shortest pause between two polls, at the beginning of a wait.
const MIN_PAUSE: Duration = Duration::from_millis(10);
/// Longest pause between two polls.
const MAX_PAUSE: Duration = Duration::from_millis(200);
/// A pause is this fraction of the time waited so far, so that a wait takes only slightly longer than what it waits for.
const PAUSE_DIVISOR: u32 = 8;

/// The pauses of one wait. They are short at first, because most conditions hold soon, and become longer with time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    began: Instant,
}

impl Pace {
    /// Starts a wait.
    pub(crate) fn begin() -> Self {
        Self {
            began: Instant::now(),
        }
    }

    /// Returns the time since the wait began.
    pub(crate) fn waited(self) -> Duration {
        self.began.elapsed()
    }

    /// Waits until it is time for the next poll.
    pub(crate) async fn pause(self) {
        tokio::time::sleep(pause_after(self.waited())).await;
    }
}

fn pause_after(waited: Duration) -> Duration {
    (waited / PAUSE_DIVISOR).clamp(MIN_PAUSE, MAX_PAUSE)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::at_once(0, 10)]
    #[case::soon(80, 10)]
    #[case::an_eighth(800, 100)]
    #[case::long(1600, 200)]
    #[case::no_longer(60_000, 200)]
    fn pauses_grow_with_the_wait(#[case] waited: u64, #[case] expected: u64) {
        let waited = Duration::from_millis(waited);
        assert_eq!(pause_after(waited), Duration::from_millis(expected));
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_comes_at_most_an_eighth_too_late() {
        for event_at in [30, 250, 999].map(Duration::from_millis) {
            let pace = Pace::begin();
            while pace.waited() < event_at {
                pace.pause().await;
            }
            assert!(pace.waited() <= event_at + event_at / PAUSE_DIVISOR + MIN_PAUSE);
        }
    }
}
