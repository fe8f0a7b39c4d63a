//! How busy the machine is.

use procfs::{CurrentSI as _, KernelStats};

/// Share of its processors that an idle machine leaves unused.
const IDLE: f64 = 0.6;
/// Number of looks in a row that must find the machine idle: a pause between two bursts is short.
const LOOKS: u32 = 4;

/// Looks at the processors of the machine from time to time.
#[derive(Debug, Default)]
pub(super) struct Processors {
    last: Option<Ticks>,
    idle: u32,
}

/// Time of all processors since the start of the machine, in ticks.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Ticks {
    idle: u64,
    all: u64,
}

impl Ticks {
    /// Returns the share of the time since `earlier` in which the processors had nothing to do, between 0 and 1.
    fn idle_since(self, earlier: Self) -> Option<f64> {
        let (idle, all) = (
            self.idle.saturating_sub(earlier.idle),
            self.all.saturating_sub(earlier.all),
        );
        (all > 0).then(|| idle as f64 / all as f64)
    }
}

/// A moment from which the processors are watched.
#[derive(Debug)]
pub(super) struct Since(Option<Ticks>);

impl Since {
    pub(super) fn now() -> Self {
        Self(ticks())
    }

    /// Returns the share of the time since then in which the processors had nothing to do, between 0 and 1. A machine that does not tell
    /// has none.
    pub(super) fn idle(&self) -> Option<f64> {
        ticks()?.idle_since(self.0?)
    }
}

impl Processors {
    /// Looks once more. Returns whether the machine has been idle since some looks ago. A machine that does not tell counts as busy.
    pub(super) fn are_idle(&mut self) -> bool {
        self.note(ticks());
        self.idle >= LOOKS
    }

    fn note(&mut self, now: Option<Ticks>) {
        let share = self
            .last
            .zip(now)
            .and_then(|(last, now)| now.idle_since(last));
        let is_idle = share.is_some_and(|share| share >= IDLE);
        self.last = now;
        self.idle = if is_idle { self.idle + 1 } else { 0 };
    }
}

fn ticks() -> Option<Ticks> {
    let total = KernelStats::current().ok()?.total;
    // what runs with low priority gives way to tests
    let idle = total.idle + total.iowait.unwrap_or(0) + total.nice;
    let steal = total.steal.unwrap_or(0) + total.irq.unwrap_or(0) + total.softirq.unwrap_or(0);
    Some(Ticks {
        idle,
        all: idle + total.user + total.system + steal,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_idle_after_some_looks_in_a_row_and_busy_at_once() {
        let mut processors = Processors::default();
        let mut now = Ticks { idle: 0, all: 0 };
        let mut look = |idle: u64| {
            now = Ticks {
                idle: now.idle + idle,
                all: now.all + 100,
            };
            processors.note(Some(now));
            processors.idle >= LOOKS
        };
        assert_eq!([90; 5].map(&mut look), [false, false, false, false, true]);
        assert_eq!(
            [10, 90, 90, 90, 90].map(&mut look),
            [false, false, false, false, true]
        );
        processors.note(None);
        assert_eq!(processors.idle, 0);
    }
}
