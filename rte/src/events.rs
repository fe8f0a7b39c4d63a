//! The events that cause scans: the timer, the notification file, changes that the API server reports, and retries; and the limit on
//! notifications (rte.md 3).
//!
//! The API server may report a change of a pod before, while, or after the kubelet acts on it. So a change does not cause a publication. It
//! causes several cheap probes of the kubelet, at growing intervals, and only a probe that finds a change causes a cycle.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use api::duration::GoDuration;
use backon::{BackoffBuilder as _, ExponentialBackoff, ExponentialBuilder};
use daemon::log::distinct_chain;
use tokio::sync::Notify;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at, sleep_until};

use crate::limiter::Limiter;
use crate::notify::{self, Watcher};
use crate::publish::Trigger;

/// Pause after the first failed cycle.
const FIRST_RETRY: Duration = Duration::from_secs(1);
/// Maximum pause between two attempts, without the jitter, which may double each pause.
const LAST_RETRY: Duration = Duration::from_secs(15);

/// Times of the probes after a reported change, in milliseconds. The kubelet admits a pod within milliseconds, and releases a pod's
/// resources up to a second or two before or after it reports so.
const PROBE_TIMES_MS: [u64; 10] = [0, 15, 30, 50, 80, 150, 300, 600, 1200, 2400];
/// Minimum time between two probes: uses a quarter of the calls that the kubelet allows on its socket.
const PROBE_SPACING: Duration = Duration::from_millis(15);

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

/// The remaining probes after a change.
#[derive(Clone, Copy, Debug)]
struct Probes {
    /// When the change was reported.
    since: Instant,
    /// Number of probes done.
    done: usize,
}

/// The sources of events.
pub(crate) struct Events {
    notifications: Option<PathBuf>,
    watcher: Option<Watcher>,
    timer: Option<Interval>,
    limiter: Option<Limiter>,
    /// When the limit lets the pending notification pass.
    held_until: Option<Instant>,
    retries: Option<Retries>,
    changes: Arc<Notify>,
    probes: Option<Probes>,
    last_probe: Option<Instant>,
    node: String,
}

/// Sleeps until the given time; forever if there is none.
async fn sleep_until_or_forever(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Retries after a failure.
struct Retries {
    trigger: Trigger,
    pauses: ExponentialBackoff,
    at: Instant,
}

impl Events {
    /// Creates the sources of events: a timer if `period` is above zero, a file if one is given, and `changes`. The file must be
    /// [prepared](notify::prepare). The limit, if any, applies only to the file, which anyone on the host may write at any rate. Changes of
    /// pods need no limit: each of them is preceded by several writes to the API server.
    pub(crate) fn new(
        period: GoDuration,
        notifications: Option<PathBuf>,
        changes: Arc<Notify>,
        limiter: Option<Limiter>,
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
            probes: None,
            last_probe: None,
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
                Wake::Change => {
                    let since = Instant::now();
                    self.probes = Some(Probes { since, done: 0 });
                }
                Wake::Notification => self.throttle(),
            }
        }
    }

    async fn wait(&mut self) -> Wake {
        let passed = sleep_until_or_forever(self.held_until);
        let probe = sleep_until_or_forever(self.next_probe_at());
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
                Some(retries) => {
                    sleep_until(retries.at).await;
                    retries.trigger
                }
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
                self.probed();
                Wake::Event(Event::Probe)
            }
        }
    }

    fn next_probe_at(&self) -> Option<Instant> {
        let probes = self.probes?;
        let at = probes.since + Duration::from_millis(*PROBE_TIMES_MS.get(probes.done)?);
        let earliest = self.last_probe.map(|last| last + PROBE_SPACING);
        Some(earliest.map_or(at, |earliest| earliest.max(at)))
    }

    fn probed(&mut self) {
        let now = Instant::now();
        self.last_probe = Some(now);
        if let Some(probes) = &mut self.probes {
            // probes that were due at the same time count as one
            let since = (now - probes.since).as_millis();
            let due = PROBE_TIMES_MS
                .iter()
                .filter(|after| u128::from(**after) <= since)
                .count();
            probes.done = due.max(probes.done + 1);
        }
    }

    /// Replaces the watch after an error, because the old one no longer works.
    fn notified(&mut self, outcome: Result<(), notify::Error>) {
        let Err(error) = outcome else { return };
        tracing::error!(error = %distinct_chain(&error), "Notifications stopped");
        self.watcher = self.notifications.as_deref().and_then(|path| {
            notify::prepare(path)
                .inspect_err(|error| tracing::error!(error = %distinct_chain(error), "Cannot create the notification file again"))
                .ok()?;
            watch(path)
        });
    }

    /// Asks the limit when the notification may pass. While one notification is held, further ones are merged into it.
    fn throttle(&mut self) {
        let now = Instant::now();
        let limiter = &mut self.limiter;
        self.held_until
            .get_or_insert_with(|| limiter.as_mut().map_or(now, |limiter| limiter.admit(now)));
    }

    /// Plans the next retry, or none after a success.
    pub(crate) fn plan_retry(&mut self, trigger: Trigger, succeeded: bool) {
        if succeeded {
            self.retries = None;
            return;
        }
        let node = &self.node;
        let mut retries = self.retries.take().unwrap_or_else(|| Retries {
            trigger,
            pauses: pauses(node),
            at: Instant::now(),
        });
        let pause = retries.pauses.next().unwrap_or(LAST_RETRY);
        retries.at = Instant::now() + pause;
        if trigger == Trigger::Reactive {
            retries.trigger = trigger;
        }
        self.retries = Some(retries);
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
            tracing::error!(error = %distinct_chain(&error), "Cannot watch the notification file");
            None
        }
    }
}

/// Returns growing pauses. The jitter differs between nodes, so that they do not all retry at once after an outage.
fn pauses(node: &str) -> ExponentialBackoff {
    let mut hasher = DefaultHasher::new();
    node.hash(&mut hasher);
    ExponentialBuilder::default()
        .with_min_delay(FIRST_RETRY)
        .with_max_delay(LAST_RETRY)
        .with_jitter()
        .with_jitter_seed(hasher.finish())
        .without_max_times()
        .build()
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    fn events(period_seconds: i64, notifications: Option<PathBuf>) -> Events {
        let period = GoDuration::from_seconds(period_seconds);
        Events::new(
            period,
            notifications,
            Arc::default(),
            None,
            "worker-0".to_owned(),
        )
    }

    const PERIODIC: Event = Event::Cycle(Trigger::Periodic);
    const REACTIVE: Event = Event::Cycle(Trigger::Reactive);

    #[tokio::test(start_paused = true)]
    async fn timer_ticks_after_its_period_and_not_before() {
        let start = Instant::now();
        let mut events = events(10, None);
        for tick in 1..=3 {
            assert_eq!(events.next().await, PERIODIC);
            assert_eq!(start.elapsed(), Duration::from_secs(10) * tick);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn failures_are_retried_ever_less_often_until_a_success() {
        let mut events = events(0, None);
        for seconds in [1, 2, 4, 8, 15, 15] {
            events.plan_retry(Trigger::Reactive, false);
            let start = Instant::now();
            assert_eq!(events.next().await, REACTIVE);
            let (pause, least) = (start.elapsed(), Duration::from_secs(seconds));
            assert!(
                pause >= least && pause <= least * 2,
                "{pause:?} for {least:?}"
            );
        }

        events.plan_retry(Trigger::Reactive, true);
        assert!(events.next().now_or_never().is_none());
        assert!(!events.is_retrying());
    }

    #[tokio::test(start_paused = true)]
    async fn retry_of_a_notification_stays_one() {
        let mut events = events(0, None);
        events.plan_retry(Trigger::Reactive, false);
        events.plan_retry(Trigger::Periodic, false);
        assert_eq!(events.next().await, REACTIVE);
    }

    #[tokio::test]
    async fn lost_watch_is_an_event_and_made_anew() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run/notify");
        notify::prepare(&path).unwrap();
        let mut events = events(0, Some(path.clone()));
        std::fs::remove_dir_all(dir.path().join("run")).unwrap();
        assert_eq!(events.next().await, REACTIVE);
        std::fs::write(&path, "").unwrap();
        assert_eq!(events.next().await, REACTIVE);
    }

    /// Creates events of a file whose limit, one per second, is used up.
    async fn used_up() -> (tempfile::TempDir, PathBuf, Events) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        notify::prepare(&path).unwrap();
        let mut events = events(0, Some(path.clone()));
        events.limiter = Limiter::new(1, Duration::from_secs(1));
        for _ in 0..11 {
            std::fs::write(&path, "").unwrap();
            assert_eq!(events.next().await, REACTIVE);
        }
        (dir, path, events)
    }

    #[tokio::test(start_paused = true)]
    async fn notifications_while_the_limit_holds_are_one_event() {
        let (_dir, path, mut events) = used_up().await;
        let start = Instant::now();
        for _ in 0..3 {
            std::fs::write(&path, "").unwrap();
            assert!(events.next().now_or_never().is_none(), "the limit holds it");
        }
        assert_eq!(events.next().await, REACTIVE);
        assert_eq!(start.elapsed(), Duration::from_secs(1));
        assert!(
            events.next().now_or_never().is_none(),
            "it was reported while the limit held"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn changes_of_pods_are_looked_at_while_the_limit_holds() {
        let (_dir, path, mut events) = used_up().await;
        let start = Instant::now();
        std::fs::write(&path, "").unwrap();
        events.changes.notify_one();
        assert_eq!(events.next().await, Event::Probe);
        assert_eq!(start.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn change_is_looked_for_soon_and_then_ever_later() {
        let mut events = events(0, None);
        let start = Instant::now();
        events.changes.notify_one();
        let mut probes = Vec::new();
        for _ in PROBE_TIMES_MS {
            assert_eq!(events.next().await, Event::Probe);
            probes.push(start.elapsed());
        }
        assert_eq!(probes, PROBE_TIMES_MS.map(Duration::from_millis));
        assert!(events.next().now_or_never().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn many_changes_are_few_looks() {
        let mut events = events(0, None);
        let changes = Arc::clone(&events.changes);
        tokio::spawn(async move {
            for _ in 0..1000 {
                changes.notify_one();
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        });
        let start = Instant::now();
        let mut probes = 0;
        while start.elapsed() < Duration::from_secs(1) {
            assert_eq!(events.next().await, Event::Probe);
            probes += 1;
        }
        assert!((20..=70).contains(&probes), "{probes} probes in a second");
        let mut last = Duration::ZERO;
        while let Ok(event) = tokio::time::timeout(Duration::from_mins(1), events.next()).await {
            assert_eq!(event, Event::Probe);
            last = start.elapsed();
        }
        assert!(
            last >= Duration::from_secs(3),
            "the last change had all its probes"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn timer_neither_waits_for_the_limit_nor_uses_it_up() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        notify::prepare(&path).unwrap();
        let mut events = events(1, Some(path.clone()));
        events.limiter = Limiter::new(1, Duration::from_hours(1));
        let start = Instant::now();
        for _ in 0..100 {
            assert_eq!(events.next().await, PERIODIC);
        }
        assert_eq!(start.elapsed(), Duration::from_secs(100));
        std::fs::write(&path, "").unwrap();
        assert_eq!(events.next().await, REACTIVE);
        assert_eq!(start.elapsed(), Duration::from_secs(100));
    }
}
