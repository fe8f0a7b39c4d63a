use futures::FutureExt as _;

use super::*;
use crate::triggers::limiter::limiter;
use crate::triggers::probes::TIMES_MS;

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
    events.limiter = limiter(1, Duration::from_secs(1));
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
    for _ in TIMES_MS {
        assert_eq!(events.next().await, Event::Probe);
        probes.push(start.elapsed());
    }
    assert_eq!(probes, TIMES_MS.map(Duration::from_millis));
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
    events.limiter = limiter(1, Duration::from_hours(1));
    let start = Instant::now();
    for _ in 0..100 {
        assert_eq!(events.next().await, PERIODIC);
    }
    assert_eq!(start.elapsed(), Duration::from_secs(100));
    std::fs::write(&path, "").unwrap();
    assert_eq!(events.next().await, REACTIVE);
    assert_eq!(start.elapsed(), Duration::from_secs(100));
}
