//! Leader election on a `coordination.k8s.io` Lease, like client-go: it never trusts the clock of another machine.
//!
//! A candidate records by its own clock when it *saw* the lease change. It may take the lease when the last change is longer ago than the
//! duration that the holder wrote. The holder renews every retry period and gives up when it could not renew for the renew deadline. The
//! deadline is shorter than the duration, so the holder has stopped before another candidate starts.

//!
//! Here is the election; `candidate` has one attempt, and what it writes into the Lease.

use std::time::Duration;

use kube::Client;
use kube::api::Api;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::sync::CancellationToken;

use self::candidate::Candidate;
use crate::log::chain;
use crate::metrics::Leadership as Status;

mod candidate;
#[cfg(test)]
mod tests;

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

/// Waits until this candidate holds the lease. Returns `None` if `stop` is cancelled first. `status` says whether it is held.
pub async fn acquire(
    client: Client,
    params: Params,
    status: &Status,
    stop: &CancellationToken,
) -> Option<Leadership> {
    let api = Api::namespaced(client, &params.namespace);
    let mut candidate = Candidate::new(api, params);
    tracing::info!(lease = %candidate.params.name, identity = %candidate.params.identity, "Attempting to acquire leader lease");
    status.set(&candidate.params.name, false);
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
    status.set(&candidate.params.name, true);
    let (name, status) = (candidate.params.name.clone(), status.clone());
    let held = renew(candidate, lost.clone(), stop.clone());
    let renewing = tokio::spawn(async move {
        held.await;
        status.set(&name, false);
    });
    Some(Leadership {
        lost,
        stop,
        renewing,
    })
}

/// Renews the lease until `stop` is cancelled, which releases it, or until it is lost.
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
