//! Leader election on a `coordination.k8s.io` Lease, like client-go: it never trusts the clock of another machine.
//!
//! A candidate records by its own clock when it *saw* the lease change. It may take the lease when the last change is longer ago than the
//! duration that the holder wrote. The holder renews every retry period and gives up when it could not renew for the renew deadline. The
//! deadline is shorter than the duration, so the holder has stopped before another candidate starts.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::Client;
use kube::api::{Api, ObjectMeta, PostParams};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::log::chain;

/// The lease, the candidate and the times of the election.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Params {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of the Lease.
    pub name: String,
    /// This candidate, unique among all candidates; by convention `<hostname>_<uuid>`.
    pub identity: String,
    /// How long other candidates wait after the last renewal that they saw.
    pub lease_duration: Duration,
    /// How long the holder tries to renew before it gives up. Shorter than the lease duration.
    pub renew_deadline: Duration,
    /// Time between two attempts.
    pub retry_period: Duration,
}

/// Why an attempt to take or renew the lease failed.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("cannot read the lease")]
    Read(#[source] kube::Error),
    #[error("cannot write the lease")]
    Write(#[source] kube::Error),
}

/// The held lease. It is held until [`Leadership::lost`] is cancelled.
#[derive(Debug)]
pub struct Leadership {
    lost: CancellationToken,
    stop: CancellationToken,
    renewing: JoinHandle<()>,
}

impl Leadership {
    /// Returns a token that is cancelled when the lease could not be renewed in time or another candidate holds it. The daemon must then
    /// stop acting at once.
    pub fn lost(&self) -> CancellationToken {
        self.lost.clone()
    }

    /// Stops renewing and releases the lease, so that another candidate need not wait until it expires.
    pub async fn release(self) {
        self.stop.cancel();
        if let Err(error) = self.renewing.await {
            tracing::warn!(%error, "Lease task failed");
        }
    }
}

/// Waits until this candidate holds the lease. Returns `None` if `stop` is cancelled first.
pub async fn acquire(
    client: Client,
    params: Params,
    stop: &CancellationToken,
) -> Option<Leadership> {
    let api = Api::namespaced(client, &params.namespace);
    let mut candidate = Candidate {
        api,
        params,
        seen: None,
    };
    tracing::info!(lease = %candidate.params.name, identity = %candidate.params.identity, "Attempting to acquire leader lease");
    loop {
        match candidate.try_acquire_or_renew().await {
            Ok(true) => break,
            Ok(false) => {}
            Err(error) => {
                tracing::warn!(error = %chain(&error), "Lease not acquired");
            }
        }
        tokio::select! {
            () = stop.cancelled() => return None,
            () = sleep(candidate.params.retry_period) => {}
        }
    }
    tracing::info!(lease = %candidate.params.name, identity = %candidate.params.identity, "Successfully acquired lease");
    let (lost, stop) = (CancellationToken::new(), CancellationToken::new());
    let renewing = tokio::spawn(renew(candidate, lost.clone(), stop.clone()));
    Some(Leadership {
        lost,
        stop,
        renewing,
    })
}

async fn renew(mut candidate: Candidate, lost: CancellationToken, stop: CancellationToken) {
    let mut deadline = Instant::now() + candidate.params.renew_deadline;
    loop {
        tokio::select! {
            () = stop.cancelled() => {
                candidate.release().await;
                return;
            }
            () = sleep(candidate.params.retry_period) => {}
        }
        match timeout_at(deadline, candidate.try_acquire_or_renew()).await {
            Ok(Ok(true)) => deadline = Instant::now() + candidate.params.renew_deadline,
            // if a write succeeded but its answer got lost, the next write conflicts although the lease is still ours
            Ok(Ok(false)) if candidate.is_seen_as_holder() && Instant::now() < deadline => {}
            Ok(Ok(false)) | Err(_) => break,
            Ok(Err(error)) => {
                tracing::warn!(error = %chain(&error), "Lease not renewed");
                if Instant::now() >= deadline {
                    break;
                }
            }
        }
    }
    tracing::error!(lease = %candidate.params.name, "Leaderelection lost");
    lost.cancel();
}

struct Candidate {
    api: Api<Lease>,
    params: Params,
    /// The last content seen, and when this process first saw it.
    seen: Option<(LeaseSpec, Instant)>,
}

impl Candidate {
    /// Makes one attempt. Returns whether this candidate holds the lease afterwards.
    async fn try_acquire_or_renew(&mut self) -> Result<bool, Error> {
        let Some(found) = self
            .api
            .get_opt(&self.params.name)
            .await
            .map_err(Error::Read)?
        else {
            let lease = Lease {
                metadata: ObjectMeta {
                    name: Some(self.params.name.clone()),
                    namespace: Some(self.params.namespace.clone()),
                    ..ObjectMeta::default()
                },
                spec: Some(self.claim(None)),
            };
            return self.written(self.api.create(&PostParams::default(), &lease).await);
        };
        let spec = found.spec.clone().unwrap_or_default();
        let now = Instant::now();
        let changed = self.seen.as_ref().is_none_or(|(seen, _)| *seen != spec);
        if changed {
            self.seen = Some((spec.clone(), now));
        }
        let since = self
            .seen
            .as_ref()
            .map_or(Duration::ZERO, |(_, at)| now - *at);
        if !may_acquire(&spec, &self.params.identity, since) {
            return Ok(false);
        }
        let lease = Lease {
            metadata: found.metadata,
            spec: Some(self.claim(Some(&spec))),
        };
        self.written(
            self.api
                .replace(&self.params.name, &PostParams::default(), &lease)
                .await,
        )
    }

    /// Returns whether this candidate was the holder when the lease was last seen.
    fn is_seen_as_holder(&self) -> bool {
        let seen = self.seen.as_ref();
        let holder = seen.and_then(|(spec, _)| spec.holder_identity.as_deref());
        holder == Some(&self.params.identity)
    }

    fn written(&mut self, result: kube::Result<Lease>) -> Result<bool, Error> {
        match result {
            Ok(lease) => {
                self.seen = Some((lease.spec.unwrap_or_default(), Instant::now()));
                Ok(true)
            }
            // Another candidate wrote first.
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
            Err(error) => Err(Error::Write(error)),
        }
    }

    /// Returns the content that makes this candidate the holder, based on the previous content.
    fn claim(&self, before: Option<&LeaseSpec>) -> LeaseSpec {
        let now = MicroTime(k8s_openapi::jiff::Timestamp::now());
        let before = before.cloned().unwrap_or_default();
        let renewal = before.holder_identity.as_deref() == Some(&self.params.identity);
        LeaseSpec {
            holder_identity: Some(self.params.identity.clone()),
            lease_duration_seconds: Some(seconds(self.params.lease_duration)),
            acquire_time: if renewal {
                before.acquire_time
            } else {
                Some(now.clone())
            },
            renew_time: Some(now),
            lease_transitions: Some(match (renewal, before.holder_identity.as_deref()) {
                (true, _) | (false, None) => before.lease_transitions.unwrap_or(0),
                (false, Some(_)) => before.lease_transitions.unwrap_or(0) + 1,
            }),
            ..LeaseSpec::default()
        }
    }

    async fn release(&self) {
        let Ok(Some(mut lease)) = self.api.get_opt(&self.params.name).await else {
            return;
        };
        let spec = lease.spec.get_or_insert_default();
        if spec.holder_identity.as_deref() != Some(&self.params.identity) {
            return;
        }
        spec.holder_identity = Some(String::new());
        spec.lease_duration_seconds = Some(1);
        spec.renew_time = Some(MicroTime(k8s_openapi::jiff::Timestamp::now()));
        match self
            .api
            .replace(&self.params.name, &PostParams::default(), &lease)
            .await
        {
            Ok(_) => tracing::info!(lease = %self.params.name, "Lease released"),
            Err(error) => {
                tracing::warn!(%error, "Lease not released: others wait until it runs out");
            }
        }
    }
}

/// Returns whether `identity` may take or renew a lease that has not changed for `since`.
fn may_acquire(spec: &LeaseSpec, identity: &str, since: Duration) -> bool {
    let holder = spec.holder_identity.as_deref().unwrap_or_default();
    let duration =
        Duration::from_secs(u64::try_from(spec.lease_duration_seconds.unwrap_or(0)).unwrap_or(0));
    holder.is_empty() || holder == identity || since > duration
}

/// Converts to the seconds of the wire form, which are at least one.
fn seconds(duration: Duration) -> i32 {
    i32::try_from(duration.as_secs().max(1)).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::{Method, Request, Response};
    use kube::client::Body;
    use std::sync::{Arc, Mutex};
    use tower::service_fn;

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
    }

    impl Store {
        fn client(&self) -> Client {
            let store = self.clone();
            let service = service_fn(move |request: Request<Body>| {
                let store = store.clone();
                async move {
                    let (head, body) = request.into_parts();
                    let body = body.collect_bytes().await.expect("body");
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

    #[tokio::test(start_paused = true)]
    async fn a_second_candidate_waits_until_the_first_releases() {
        let (store, stop) = (Store::default(), CancellationToken::new());
        let first = acquire(store.client(), params("a"), &stop)
            .await
            .expect("free lease");
        assert_eq!(store.holder().as_deref(), Some("a"));
        let second = tokio::spawn({
            let (client, stop) = (store.client(), stop.clone());
            async move { acquire(client, params("b"), &stop).await }
        });
        sleep(Duration::from_mins(1)).await;
        assert_eq!(
            store.holder().as_deref(),
            Some("a"),
            "a renewed lease is not taken"
        );
        first.release().await;
        let second = second.await.expect("joined").expect("acquired");
        assert_eq!(store.holder().as_deref(), Some("b"));
        assert!(!second.lost().is_cancelled());
    }

    #[tokio::test(start_paused = true)]
    async fn a_dead_holders_lease_is_taken_when_it_runs_out() {
        let (store, stop) = (Store::default(), CancellationToken::new());
        let dead = acquire(store.client(), params("dead"), &stop)
            .await
            .expect("free lease");
        dead.renewing.abort();
        let before = Instant::now();
        acquire(store.client(), params("b"), &stop)
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
        let held = acquire(store.client(), params("a"), &stop)
            .await
            .expect("free lease");
        store.set_health(Health::Broken);
        let before = Instant::now();
        held.lost().cancelled().await;
        assert!(
            before.elapsed() <= Duration::from_secs(14),
            "{:?}",
            before.elapsed()
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_conflict_does_not_take_the_lease_from_its_holder() {
        let (store, stop) = (Store::default(), CancellationToken::new());
        let held = acquire(store.client(), params("a"), &stop)
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
        assert!(acquire(store.client(), params("a"), &stop).await.is_none());
    }
}
