//! The events that cause scans: the timer, the notification file, changes that the API server reports, and retries; and the limit on
//! notifications (rte.md 3).

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use daemon::log::chain;
use daemon::rate::Bucket;
use goflags::GoDuration;
use tokio::sync::Notify;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at, sleep_until};

use super::Trigger;
use super::notify::{self, Watcher};
use super::probes::Probes;
use super::retries::Retries;

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// Scan and publish.
    Cycle(Trigger),
    /// Check the kubelet for changes.
    Probe,
}

/// Why a wait ended.
enum Wake {
    Event(Event),
    /// The API server reported a change.
    Change,
    /// The notification file was written or touched.
    Notification,
}

/// The sources of events.
pub(crate) struct Events {
    notifications: Option<PathBuf>,
    watcher: Option<Watcher>,
    timer: Option<Interval>,
    limiter: Option<Bucket>,
    /// When the limit lets the pending notification pass.
    held_until: Option<Instant>,
    retries: Option<Retries>,
    changes: Arc<Notify>,
    probes: Probes,
    node: String,
}

/// Sleeps until the given time; forever if there is none.
async fn sleep_until_or_forever(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

impl Events {
    /// Creates the sources of events: a timer if `period` is above zero, a file if one is given, and `changes`. The file must be
    /// [prepared](notify::prepare). The limit, if any, applies only to the file, which anyone on the host may write at any rate. Changes of
    /// pods need no limit: each of them is preceded by several writes to the API server.
    pub(crate) fn new(
        period: GoDuration,
        notifications: Option<PathBuf>,
        changes: Arc<Notify>,
        limiter: Option<Bucket>,
        node: String,
    ) -> Self {
        Self {
            watcher: notifications.as_deref().and_then(watch),
            notifications,
            timer: timer(period),
            limiter,
            held_until: None,
            retries: None,
            changes,
            probes: Probes::default(),
            node,
        }
    }

    /// Returns whether the last cycle failed.
    pub(crate) fn is_retrying(&self) -> bool {
        self.retries.is_some()
    }

    /// Waits for the next event.
    pub(crate) async fn next(&mut self) -> Event {
        loop {
            match self.wait().await {
                Wake::Event(event) => return event,
                Wake::Change => self.probes.changed(Instant::now()),
                Wake::Notification => self.throttle(),
            }
        }
    }

    async fn wait(&mut self) -> Wake {
        let passed = sleep_until_or_forever(self.held_until);
        let probe = sleep_until_or_forever(self.probes.next_at());
        let tick = async {
            match &mut self.timer {
                Some(timer) => drop(timer.tick().await),
                None => std::future::pending().await,
            }
        };
        let notification = async {
            match &mut self.watcher {
                Some(watcher) => watcher.next().await,
                None => std::future::pending().await,
            }
        };
        let retry = async {
            match &self.retries {
                Some(retries) => retries.due().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            outcome = notification => {
                self.notified(outcome);
                Wake::Notification
            }
            () = passed => {
                tracing::debug!("fsnotify update trigger");
                self.held_until = None;
                Wake::Event(Event::Cycle(Trigger::Reactive))
            }
            () = tick => {
                tracing::debug!("timer update trigger");
                Wake::Event(Event::Cycle(Trigger::Periodic))
            }
            trigger = retry => Wake::Event(Event::Cycle(trigger)),
            () = self.changes.notified() => Wake::Change,
            () = probe => {
                self.probes.probed(Instant::now());
                Wake::Event(Event::Probe)
            }
        }
    }

    /// Replaces the watch after an error, because the old one no longer works.
    fn notified(&mut self, outcome: Result<(), notify::Error>) {
        let Err(error) = outcome else { return };
        tracing::error!(error = %chain(&error), "Notifications stopped");
        self.watcher = self.notifications.as_deref().and_then(|path| {
            notify::prepare(path)
                .inspect_err(|error| tracing::error!(error = %chain(error), "Cannot create the notification file again"))
                .ok()?;
            watch(path)
        });
    }

    /// Asks the limit when the notification may pass. While one notification is held, further ones are merged into it.
    fn throttle(&mut self) {
        let now = Instant::now();
        let limiter = &mut self.limiter;
        self.held_until
            .get_or_insert_with(|| limiter.as_mut().map_or(now, |limiter| limiter.take(now)));
    }

    /// Plans the next retry, or none after a success.
    pub(crate) fn plan_retry(&mut self, trigger: Trigger, succeeded: bool) {
        let before = self.retries.take();
        self.retries = (!succeeded).then(|| Retries::plan(before, trigger, &self.node));
    }
}

fn timer(period: GoDuration) -> Option<Interval> {
    let period = Duration::from_nanos(u64::try_from(period.as_nanos()).unwrap_or(0));
    if period.is_zero() {
        return None;
    }
    let mut timer = interval_at(Instant::now() + period, period);
    timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
    Some(timer)
}

fn watch(path: &Path) -> Option<Watcher> {
    match Watcher::new(path) {
        Ok(watcher) => {
            tracing::info!(path = %path.display(), "Added watch");
            Some(watcher)
        }
        Err(error) => {
            tracing::error!(error = %chain(&error), "Cannot watch the notification file");
            None
        }
    }
}

#[cfg(test)]
mod tests;
