//! State that the controllers share.

use std::collections::HashMap;
use std::time::Duration;

use apply::Applier;
use backon::{BackoffBuilder as _, ExponentialBackoff, ExponentialBuilder};
use daemon::admin::Watchdog;
use kube::Client;
use manifests::rte::config_map::KubeletSettings;
use parking_lot::Mutex;

use crate::installation::Installation;
use crate::metrics::Metrics;

/// Wait after the first failure; it doubles with every further one.
const FIRST_RETRY: Duration = Duration::from_millis(100);
/// Maximum wait after a failure.
const LONGEST_RETRY: Duration = Duration::from_mins(1);

pub(crate) struct Context {
    pub(crate) client: Client,
    pub(crate) applier: Applier,
    pub(crate) installation: Installation,
    pub(crate) metrics: Metrics,
    /// Notices a reconciliation that hangs.
    pub(crate) watchdog: Watchdog,
    /// Name of this process in Events.
    pub(crate) instance: String,
    /// The waits of what fails, by controller and object.
    failures: Mutex<HashMap<(&'static str, String), ExponentialBackoff>>,
    /// The last known settings of each node's kubelet.
    kubelets: Mutex<HashMap<String, KubeletSettings>>,
}

impl Context {
    pub(crate) fn new(
        client: Client,
        installation: Installation,
        metrics: Metrics,
        watchdog: Watchdog,
        instance: String,
    ) -> Self {
        Self {
            applier: Applier::new(client.clone()),
            client,
            installation,
            metrics,
            watchdog,
            instance,
            failures: Mutex::default(),
            kubelets: Mutex::default(),
        }
    }

    /// Returns the settings of a node's kubelet: those it reported now, or the last known ones if it did not answer.
    pub(crate) fn kubelet(
        &self,
        node: &str,
        answer: Option<KubeletSettings>,
    ) -> Option<KubeletSettings> {
        let mut kubelets = self.kubelets.lock();
        if let Some(answer) = answer {
            kubelets.insert(node.to_owned(), answer);
        }
        kubelets.get(node).cloned()
    }

    /// Forgets the kubelet settings of nodes that no longer exist.
    pub(crate) fn retain_kubelets(&self, exists: impl Fn(&str) -> bool) {
        let mut kubelets = self.kubelets.lock();
        kubelets.retain(|node, _| exists(node));
    }

    /// Resets the wait after failures.
    pub(crate) fn succeeded(&self, controller: &'static str, object: &str) {
        self.failures
            .lock()
            .remove(&(controller, object.to_owned()));
    }

    /// Returns whether the last reconciliation failed.
    pub(crate) fn is_failing(&self, controller: &'static str, object: &str) -> bool {
        self.failures
            .lock()
            .contains_key(&(controller, object.to_owned()))
    }

    /// Counts a failure. Returns the wait until the next attempt.
    pub(crate) fn failed(&self, controller: &'static str, object: &str) -> Duration {
        let mut failures = self.failures.lock();
        let upcoming = failures
            .entry((controller, object.to_owned()))
            .or_insert_with(waits);
        upcoming.next().unwrap_or(LONGEST_RETRY)
    }
}

/// Returns the waits between the attempts of a reconciliation that fails.
fn waits() -> ExponentialBackoff {
    ExponentialBuilder::new()
        .with_min_delay(FIRST_RETRY)
        .with_max_delay(LONGEST_RETRY)
        .without_max_times()
        .build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_minute_and_never_end() {
        let rounded: Vec<u128> = waits()
            .take(12)
            .map(|wait| (wait.as_micros() + 500) / 1000)
            .collect();
        assert_eq!(
            rounded,
            [
                100, 200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 51_200, 60_000, 60_000
            ]
        );
        assert_eq!(waits().nth(1000), Some(LONGEST_RETRY));
    }
}
