//! One attempt to take or renew the lease: read it, decide whether it may be taken, write the claim.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{Api, ObjectMeta, PostParams};
use tokio::time::Instant;

use super::Params;

/// Why an attempt to take or renew the lease failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("cannot read the lease")]
    Read(#[source] kube::Error),
    #[error("cannot write the lease")]
    Write(#[source] kube::Error),
    #[error("the API server did not answer within {} ms", .0.as_millis())]
    Unanswered(Duration),
}

/// One candidate of the election, and what it has seen.
pub(super) struct Candidate {
    api: Api<Lease>,
    pub(super) params: Params,
    /// The last content seen, and when this process first saw it.
    seen: Option<(LeaseSpec, Instant)>,
}

impl Candidate {
    /// Creates a candidate that has not seen the lease yet.
    pub(super) fn new(api: Api<Lease>, params: Params) -> Self {
        Self {
            api,
            params,
            seen: None,
        }
    }

    /// Returns the answer to a request, which may take half of the renew deadline: so a second attempt is left when one answer gets lost. As in
    /// client-go.
    async fn answer<T>(
        &self,
        request: impl Future<Output = kube::Result<T>>,
    ) -> Result<kube::Result<T>, Error> {
        let limit = self.params.renew_deadline / 2;
        let answer = tokio::time::timeout(limit, request).await;
        answer.map_err(|_| Error::Unanswered(limit))
    }

    /// Makes one attempt. Returns whether this candidate holds the lease afterwards.
    pub(super) async fn try_acquire_or_renew(&mut self) -> Result<bool, Error> {
        let found = self.answer(self.api.get_opt(&self.params.name)).await?;
        let Some(found) = found.map_err(Error::Read)? else {
            let lease = Lease {
                metadata: ObjectMeta {
                    name: Some(self.params.name.clone()),
                    namespace: Some(self.params.namespace.clone()),
                    ..ObjectMeta::default()
                },
                spec: Some(self.claim(None)),
            };
            let params = PostParams::default();
            let created = self.answer(self.api.create(&params, &lease)).await?;
            return self.written(created);
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
        let params = PostParams::default();
        let request = self.api.replace(&self.params.name, &params, &lease);
        let replaced = self.answer(request).await?;
        self.written(replaced)
    }

    /// Returns whether this candidate was the holder when the lease was last seen.
    pub(super) fn is_seen_as_holder(&self) -> bool {
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

    /// Clears the holder, if this candidate is it.
    pub(super) async fn release(&self) {
        match self.try_release().await {
            Ok(true) => tracing::info!(lease = %self.params.name, "Lease released"),
            Ok(false) => {}
            Err(error) => {
                tracing::warn!(error = %crate::log::chain(&error), "Lease not released: others wait until it runs out");
            }
        }
    }

    /// Returns whether this candidate was the holder.
    async fn try_release(&self) -> Result<bool, Error> {
        let found = self.answer(self.api.get_opt(&self.params.name)).await?;
        let Some(mut lease) = found.map_err(Error::Read)? else {
            return Ok(false);
        };
        let spec = lease.spec.get_or_insert_default();
        if spec.holder_identity.as_deref() != Some(&self.params.identity) {
            return Ok(false);
        }
        spec.holder_identity = Some(String::new());
        spec.lease_duration_seconds = Some(1);
        spec.renew_time = Some(MicroTime(k8s_openapi::jiff::Timestamp::now()));
        let params = PostParams::default();
        let request = self.api.replace(&self.params.name, &params, &lease);
        self.answer(request).await?.map_err(Error::Write)?;
        Ok(true)
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
