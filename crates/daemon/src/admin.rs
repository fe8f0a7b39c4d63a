//! Liveness and readiness endpoints over named checks.
//!
//! `/livez` and `/healthz` run the live checks, `/readyz` runs both kinds. The answer has the form of the Kubernetes components: 200 and
//! `ok` when all checks pass, otherwise 500 with one line `[+]name ok` or `[-]name failed: reason` for each check. `?verbose` lists the
//! checks also when all pass.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::routing::get;
use parking_lot::Mutex;
use tokio::time::Instant;

type Probe = Box<dyn Fn() -> Result<(), String> + Send + Sync>;

/// The checks of one daemon, registered at start.
#[derive(Default)]
pub struct Checks {
    live: Vec<(&'static str, Probe)>,
    ready: Vec<(&'static str, Probe)>,
}

/// A readiness check that the daemon opens and may close again.
#[derive(Clone, Debug, Default)]
pub struct Gate(Arc<AtomicBool>);

impl Gate {
    /// Makes the check pass from now on.
    pub fn open(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Makes the check fail from now on.
    pub fn close(&self) {
        self.0.store(false, Ordering::Release);
    }

    /// Returns whether the check passes.
    pub fn is_open(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// A liveness check of one or more loops: it fails while one turn of a loop takes longer than it may. A loop that waits for events is not in a
/// turn.
#[derive(Clone, Debug, Default)]
pub struct Watchdog(Arc<Mutex<Turns>>);

/// When the turns that have not ended began, in this order.
#[derive(Debug, Default)]
struct Turns {
    begun: BTreeMap<u64, Instant>,
    next: u64,
}

/// One turn of a loop. It ends when this is dropped.
#[derive(Debug)]
#[must_use = "the turn ends when this is dropped"]
pub struct Turn {
    watchdog: Watchdog,
    number: u64,
}

impl Watchdog {
    /// Begins a turn.
    pub fn turn(&self) -> Turn {
        let mut turns = self.0.lock();
        let number = turns.next;
        turns.next += 1;
        turns.begun.insert(number, Instant::now());
        Turn {
            watchdog: self.clone(),
            number,
        }
    }

    fn check(&self, limit: Duration) -> Result<(), String> {
        let oldest = self.0.lock().begun.values().next().copied();
        match oldest.map(|begun| begun.elapsed()) {
            Some(taken) if taken > limit => Err(format!(
                "busy for {} s, longer than {} s",
                taken.as_secs(),
                limit.as_secs()
            )),
            _ => Ok(()),
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.watchdog.0.lock().begun.remove(&self.number);
    }
}

impl Checks {
    /// Creates an empty set: live and ready as long as the process answers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a liveness check. The error is the reason that the endpoint shows.
    pub fn live(
        &mut self,
        name: &'static str,
        probe: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) {
        self.live.push((name, Box::new(probe)));
    }

    /// Adds a liveness check of loops, none of whose turns may take longer than `limit`.
    pub fn watch(&mut self, name: &'static str, limit: Duration) -> Watchdog {
        let watchdog = Watchdog::default();
        let seen = watchdog.clone();
        self.live(name, move || seen.check(limit));
        watchdog
    }

    /// Adds a readiness check that fails until the returned gate is opened.
    pub fn ready(&mut self, name: &'static str) -> Gate {
        let gate = Gate::default();
        let seen = gate.clone();
        self.ready.push((
            name,
            Box::new(move || {
                if seen.is_open() {
                    Ok(())
                } else {
                    Err("not ready".to_owned())
                }
            }),
        ));
        gate
    }

    /// Returns a router with the three endpoints.
    pub fn router(self) -> Router {
        let checks = Arc::new(self);
        Router::new()
            .route("/healthz", get(live))
            .route("/livez", get(live))
            .route("/readyz", get(ready))
            .with_state(checks)
    }
}

async fn live(
    State(checks): State<Arc<Checks>>,
    RawQuery(query): RawQuery,
) -> (StatusCode, String) {
    answer(checks.live.iter(), query.as_deref())
}

async fn ready(
    State(checks): State<Arc<Checks>>,
    RawQuery(query): RawQuery,
) -> (StatusCode, String) {
    answer(checks.live.iter().chain(&checks.ready), query.as_deref())
}

fn answer<'a>(
    checks: impl Iterator<Item = &'a (&'static str, Probe)>,
    query: Option<&str>,
) -> (StatusCode, String) {
    let mut lines = String::new();
    let mut healthy = true;
    for (name, probe) in checks {
        let written = match probe() {
            Ok(()) => writeln!(lines, "[+]{name} ok"),
            Err(reason) => {
                healthy = false;
                writeln!(lines, "[-]{name} failed: {reason}")
            }
        };
        written.expect("writing to a string cannot fail");
    }
    if !healthy {
        return (StatusCode::INTERNAL_SERVER_ERROR, lines);
    }
    let verbose = query.is_some_and(|query| {
        query
            .split('&')
            .any(|item| item == "verbose" || item.starts_with("verbose="))
    });
    let body = if verbose {
        lines + "ok\n"
    } else {
        "ok".to_owned()
    };
    (StatusCode::OK, body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::{Body, to_bytes};
    use axum::http::Request;
    use tower::ServiceExt as _;

    async fn ask(router: &Router, path: &str) -> (u16, String) {
        let request = Request::builder()
            .uri(path)
            .body(Body::empty())
            .expect("request");
        let response = router.clone().oneshot(request).await.expect("answer");
        let status = response.status().as_u16();
        let body = to_bytes(response.into_body(), 4096).await.expect("body");
        (status, String::from_utf8_lossy(&body).into_owned())
    }

    #[tokio::test]
    async fn readiness_follows_its_gate_and_liveness_does_not() {
        let mut checks = Checks::new();
        let gate = checks.ready("sync");
        let router = checks.router();
        assert_eq!(ask(&router, "/healthz").await, (200, "ok".to_owned()));
        assert_eq!(
            ask(&router, "/readyz").await,
            (500, "[-]sync failed: not ready\n".to_owned())
        );
        gate.open();
        assert_eq!(ask(&router, "/readyz").await, (200, "ok".to_owned()));
        assert_eq!(
            ask(&router, "/readyz?verbose").await,
            (200, "[+]sync ok\nok\n".to_owned())
        );
        gate.close();
        assert_eq!(ask(&router, "/readyz").await.0, 500);
    }

    #[tokio::test]
    async fn a_failed_live_check_fails_all_three() {
        let mut checks = Checks::new();
        checks.live("leader", || Err("lease not renewed".to_owned()));
        let router = checks.router();
        for path in ["/healthz", "/livez", "/readyz"] {
            assert_eq!(
                ask(&router, path).await,
                (500, "[-]leader failed: lease not renewed\n".to_owned())
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_turn_that_hangs_fails_liveness_and_a_wait_does_not() {
        let mut checks = Checks::new();
        let watchdog = checks.watch("loop", Duration::from_mins(1));
        let router = checks.router();
        tokio::time::advance(Duration::from_hours(1)).await;
        assert_eq!(ask(&router, "/livez").await.0, 200);
        let turn = watchdog.turn();
        drop(watchdog.turn());
        tokio::time::advance(Duration::from_mins(1)).await;
        assert_eq!(ask(&router, "/livez").await.0, 200);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(
            ask(&router, "/livez").await,
            (
                500,
                "[-]loop failed: busy for 61 s, longer than 60 s\n".to_owned()
            )
        );
        drop(turn);
        assert_eq!(ask(&router, "/livez").await.0, 200);
    }
}
