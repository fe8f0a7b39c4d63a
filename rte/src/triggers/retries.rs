//! When to try again after a failed cycle: after growing pauses, which differ between nodes.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBackoff, ExponentialBuilder};
use tokio::time::{Instant, sleep_until};

use super::Trigger;

/// Pause after the first failed cycle.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// Maximum pause between two attempts, without the jitter, which may double each pause.
const LAST_PAUSE: Duration = Duration::from_secs(15);

/// The next attempt after one or more failures in a row.
pub(super) struct Retries {
    trigger: Trigger,
    pauses: ExponentialBackoff,
    at: Instant,
}

impl Retries {
    /// Plans the attempt after a failed cycle of this trigger; `before` is what was planned after the failure before it. A retry of a
    /// reactive cycle stays one.
    pub(super) fn plan(before: Option<Self>, trigger: Trigger, node: &str) -> Self {
        let mut retries = before.unwrap_or_else(|| Self {
            trigger,
            pauses: pauses(node),
            at: Instant::now(),
        });
        let pause = retries.pauses.next().unwrap_or(LAST_PAUSE);
        retries.at = Instant::now() + pause;
        if trigger == Trigger::Reactive {
            retries.trigger = trigger;
        }
        retries
    }

    /// Waits until the attempt is due. Returns its trigger.
    pub(super) async fn due(&self) -> Trigger {
        sleep_until(self.at).await;
        self.trigger
    }
}

/// Returns growing pauses. The jitter differs between nodes, so that they do not all retry at once after an outage.
fn pauses(node: &str) -> ExponentialBackoff {
    let mut hasher = DefaultHasher::new();
    node.hash(&mut hasher);
    ExponentialBuilder::default()
        .with_min_delay(FIRST_PAUSE)
        .with_max_delay(LAST_PAUSE)
        .with_jitter()
        .with_jitter_seed(hasher.finish())
        .without_max_times()
        .build()
}
