//! When to look at the kubelet after the API server reported a change.
//!
//! The API server may report a change of a pod before, while, or after the kubelet acts on it. So a change does not cause a publication. It
//! causes several cheap probes of the kubelet, at growing intervals, and only a probe that finds a change causes a cycle. Pure.

use std::time::Duration;

use tokio::time::Instant;

/// Times of the probes after a reported change, in milliseconds. The kubelet admits a pod within milliseconds, and releases a pod's
/// resources up to a second or two before or after it reports so.
pub(super) const TIMES_MS: [u64; 10] = [0, 15, 30, 50, 80, 150, 300, 600, 1200, 2400];
/// Minimum time between two probes: uses a quarter of the calls that the kubelet allows on its socket.
const SPACING: Duration = Duration::from_millis(15);

/// The probes after the last change.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Probes {
    change: Option<Change>,
    /// When the last probe was.
    last: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
struct Change {
    /// When the change was reported.
    since: Instant,
    /// Number of probes done.
    done: usize,
}

impl Probes {
    /// Plans all probes anew: a change was reported.
    pub(super) fn changed(&mut self, now: Instant) {
        self.change = Some(Change {
            since: now,
            done: 0,
        });
    }

    /// Returns when the next probe is due; `None` if none is planned.
    pub(super) fn next_at(&self) -> Option<Instant> {
        let change = self.change?;
        let at = change.since + Duration::from_millis(*TIMES_MS.get(change.done)?);
        let earliest = self.last.map(|last| last + SPACING);
        Some(earliest.map_or(at, |earliest| earliest.max(at)))
    }

    /// Notes that a probe takes place.
    pub(super) fn probed(&mut self, now: Instant) {
        self.last = Some(now);
        if let Some(change) = &mut self.change {
            // probes that were due at the same time count as one
            let since = (now - change.since).as_millis();
            let due = TIMES_MS
                .iter()
                .filter(|after| u128::from(**after) <= since)
                .count();
            change.done = due.max(change.done + 1);
        }
    }
}
