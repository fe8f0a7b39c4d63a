//! Evicts a pod in favour of another one (scheduler.md 7.8).

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod as WirePod;
use kube::Client;
use kube::api::{Api, DeleteParams, Patch, PatchParams, Preconditions};
use serde_json::json;

use crate::framework::default_preemption::Victim;
use crate::state::pod::{PREEMPTION_BY_SCHEDULER, PodKey};

/// Timeout of an eviction; the preemption is tried again later.
const LIMIT: Duration = Duration::from_secs(15);

/// Why a pod was not evicted.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server refused or could not be reached.
    #[error("cannot evict pod {pod}")]
    Refused {
        /// The pod.
        pod: PodKey,
        /// The reason.
        #[source]
        source: Box<kube::Error>,
    },
    /// The API server did not answer in time.
    #[error("evicting pod {0} took too long")]
    Timeout(PodKey),
}

/// Writes the reason into the victim's conditions, then deletes the victim. Does nothing if the pod is gone or replaced by one of the
/// same name. `scheduler` is the name of the profile.
///
/// # Errors
/// When the API server refuses or does not answer in time.
pub async fn evict(client: Client, victim: &Victim, scheduler: &str) -> Result<(), Error> {
    let refused = |source| Error::Refused {
        pod: victim.key.clone(),
        source: Box::new(source),
    };
    match tokio::time::timeout(LIMIT, call(client, victim, scheduler)).await {
        Ok(Err(error)) if !is_gone(&error) => Err(refused(error)),
        Ok(_) => Ok(()),
        Err(_) => Err(Error::Timeout(victim.key.clone())),
    }
}

async fn call(client: Client, victim: &Victim, scheduler: &str) -> kube::Result<()> {
    let api: Api<WirePod> = Api::namespaced(client, &victim.key.namespace);
    // The uid makes the API server refuse another pod of the same name.
    let condition = Patch::Strategic(json!({
        "metadata": {"uid": victim.uid},
        "status": {"conditions": [{
            "type": "DisruptionTarget",
            "status": "True",
            "reason": PREEMPTION_BY_SCHEDULER,
            "message": format!("{scheduler}: preempting to accommodate a higher priority pod"),
            "lastTransitionTime": k8s_openapi::jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        }]},
    }));
    let name = &victim.key.name;
    api.patch_status(name, &PatchParams::default(), &condition)
        .await?;
    let params = DeleteParams::default().preconditions(Preconditions {
        uid: Some(victim.uid.clone()),
        ..Preconditions::default()
    });
    api.delete(name, &params).await.map(drop)
}

/// Returns whether the pod is gone or replaced by one of the same name.
fn is_gone(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404 || status.code == 409)
}
