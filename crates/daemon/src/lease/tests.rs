//! Elections on an API server that stores one Lease, in virtual time.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::http::{Method, Request, Response};
use k8s_openapi::api::coordination::v1::Lease;
use kube::client::Body;
use tower::service_fn;

use super::*;

/// An API server that stores one Lease and checks resource versions.
#[derive(Clone, Default)]
struct Store(Arc<Mutex<(Option<Lease>, u64, Health)>>);

/// How the server answers requests.
#[derive(Clone, Copy, Default, PartialEq)]
enum Health {
    #[default]
    Healthy,
    /// All requests fail.
    Broken,
    /// The next write is refused as a conflict.
    Conflicting,
    /// The next request gets no answer, ever.
    SilentOnce,
    /// No request gets an answer.
    Silent,
}

impl Store {
    fn client(&self) -> Client {
        let store = self.clone();
        let service = service_fn(move |request: Request<Body>| {
            let store = store.clone();
            async move {
                let (head, body) = request.into_parts();
                let body = body.collect_bytes().await.expect("body");
                if store.is_silent() {
                    std::future::pending::<()>().await;
                }
                Ok::<_, std::convert::Infallible>(store.answer(&head.method, &body))
            }
        });
        Client::new(service, "default")
    }

    fn answer(&self, method: &Method, body: &[u8]) -> Response<Body> {
        let mut inner = self.0.lock().expect("lock");
        if inner.2 == Health::Broken {
            return failure(500);
        }
        if inner.2 == Health::Conflicting && method != Method::GET {
            inner.2 = Health::Healthy;
            return failure(409);
        }
        let found = inner.0.clone();
        let answer = match (method.as_str(), found) {
            ("GET", None) => return failure(404),
            ("GET", Some(lease)) => lease,
            ("POST", Some(_)) => return failure(409),
            (_, found) => {
                let mut lease: Lease = serde_json::from_slice(body).expect("lease");
                if found.is_some_and(|found| {
                    found.metadata.resource_version != lease.metadata.resource_version
                }) {
                    return failure(409);
                }
                inner.1 += 1;
                lease.metadata.resource_version = Some(inner.1.to_string());
                inner.0 = Some(lease.clone());
                lease
            }
        };
        Response::new(Body::from(serde_json::to_vec(&answer).expect("json")))
    }

    fn holder(&self) -> Option<String> {
        self.0
            .lock()
            .expect("lock")
            .0
            .clone()?
            .spec?
            .holder_identity
    }

    fn transitions(&self) -> Option<i32> {
        self.0
            .lock()
            .expect("lock")
            .0
            .clone()?
            .spec?
            .lease_transitions
    }

    fn set_health(&self, health: Health) {
        self.0.lock().expect("lock").2 = health;
    }

    /// Returns whether the next request gets no answer.
    fn is_silent(&self) -> bool {
        let mut inner = self.0.lock().expect("lock");
        match inner.2 {
            Health::SilentOnce => {
                inner.2 = Health::Healthy;
                true
            }
            Health::Silent => true,
            Health::Healthy | Health::Broken | Health::Conflicting => false,
        }
    }

    fn is_healthy(&self) -> bool {
        self.0.lock().expect("lock").2 == Health::Healthy
    }
}

fn failure(code: u16) -> Response<Body> {
    let reason = match code {
        404 => "NotFound",
        409 => "Conflict",
        _ => "InternalError",
    };
    let status = serde_json::json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "no", "reason": reason, "code": code,
    });
    let mut response = Response::new(Body::from(status.to_string().into_bytes()));
    *response.status_mut() = axum::http::StatusCode::from_u16(code).expect("code");
    response
}

fn params(identity: &str) -> Params {
    Params {
        namespace: "ns".to_owned(),
        name: "leader".to_owned(),
        identity: identity.to_owned(),
        lease_duration: Duration::from_secs(15),
        renew_deadline: Duration::from_secs(10),
        retry_period: Duration::from_secs(2),
    }
}

/// Returns what the metric shows of the lease.
fn shown(status: &Status) -> i64 {
    status.of(&params("any").name)
}

#[tokio::test(start_paused = true)]
async fn a_second_candidate_waits_until_the_first_releases() {
    let (store, stop) = (Store::default(), CancellationToken::new());
    let (mine, theirs) = (Status::default(), Status::default());
    let first = acquire(store.client(), params("a"), &mine, &stop)
        .await
        .expect("free lease");
    assert_eq!(store.holder().as_deref(), Some("a"));
    let second = tokio::spawn({
        let (client, stop, status) = (store.client(), stop.clone(), theirs.clone());
        async move { acquire(client, params("b"), &status, &stop).await }
    });
    sleep(Duration::from_mins(1)).await;
    assert_eq!(
        store.holder().as_deref(),
        Some("a"),
        "a renewed lease is not taken"
    );
    assert_eq!((shown(&mine), shown(&theirs)), (1, 0));
    first.release().await;
    let second = second.await.expect("joined").expect("acquired");
    assert_eq!((shown(&mine), shown(&theirs)), (0, 1));
    assert_eq!(store.holder().as_deref(), Some("b"));
    assert!(!second.lost().is_cancelled());
}

#[tokio::test(start_paused = true)]
async fn a_dead_holders_lease_is_taken_when_it_runs_out() {
    let (store, stop) = (Store::default(), CancellationToken::new());
    let dead = acquire(store.client(), params("dead"), &Status::default(), &stop)
        .await
        .expect("free lease");
    dead.renewing.abort();
    let before = Instant::now();
    acquire(store.client(), params("b"), &Status::default(), &stop)
        .await
        .expect("acquired");
    assert!(before.elapsed() > Duration::from_secs(15));
    assert_eq!(
        (store.holder().as_deref(), store.transitions()),
        (Some("b"), Some(1))
    );
}

#[tokio::test(start_paused = true)]
async fn a_holder_that_cannot_renew_loses_within_the_deadline() {
    let (store, stop) = (Store::default(), CancellationToken::new());
    let status = Status::default();
    let held = acquire(store.client(), params("a"), &status, &stop)
        .await
        .expect("free lease");
    store.set_health(Health::Broken);
    let before = Instant::now();
    held.lost().cancelled().await;
    assert_eq!(shown(&status), 0);
    assert!(
        before.elapsed() <= Duration::from_secs(14),
        "{:?}",
        before.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn a_conflict_does_not_take_the_lease_from_its_holder() {
    let (store, stop) = (Store::default(), CancellationToken::new());
    let held = acquire(store.client(), params("a"), &Status::default(), &stop)
        .await
        .expect("free lease");
    store.set_health(Health::Conflicting);
    sleep(Duration::from_mins(1)).await;
    assert!(store.is_healthy(), "no renewal was refused");
    assert!(!held.lost().is_cancelled());
    assert_eq!(store.transitions(), Some(0));
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_candidate_gives_up() {
    let (store, stop) = (Store::default(), CancellationToken::new());
    store.set_health(Health::Broken);
    stop.cancel();
    assert!(
        acquire(store.client(), params("a"), &Status::default(), &stop)
            .await
            .is_none()
    );
}

#[tokio::test(start_paused = true)]
async fn one_lost_answer_costs_a_candidate_neither_its_turn_nor_its_lease() {
    let (store, stop) = (Store::default(), CancellationToken::new());
    store.set_health(Health::SilentOnce);
    let held = acquire(store.client(), params("a"), &Status::default(), &stop)
        .await
        .expect("acquired by the second attempt");
    store.set_health(Health::SilentOnce);
    sleep(Duration::from_mins(1)).await;
    assert!(store.is_healthy(), "no renewal was left without an answer");
    assert!(!held.lost().is_cancelled());
}

#[tokio::test(start_paused = true)]
async fn a_silent_server_cannot_hold_up_the_release() {
    let (store, stop) = (Store::default(), CancellationToken::new());
    let held = acquire(store.client(), params("a"), &Status::default(), &stop)
        .await
        .expect("free lease");
    store.set_health(Health::Silent);
    let before = Instant::now();
    held.release().await;
    assert!(before.elapsed() <= Duration::from_secs(10));
}
