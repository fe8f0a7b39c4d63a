//! Admission of pods, and the end of pods that the kubelet refuses or evicts.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kubelet_model::node::Refusal;
use kubelet_model::preemption;

use super::worker::publish;
use super::worker::signals::Signal;
use super::{Kubelet, qos};
use crate::node::events::Kind;
use crate::node::status;

/// Prefix of every refusal's message; the event has the rest.
const REJECTED: &str = "Pod was rejected: ";
/// Attempts to write a refusal; the next constant is the time between them.
const MAX_ATTEMPTS: u32 = 30;
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

impl Kubelet {
    /// Admits all living pods again, like a kubelet that starts without the state of its managers.
    pub(crate) async fn readmit_pods(&self) {
        let mut living: Vec<Pod> = self
            .snapshots()
            .into_iter()
            .filter(|snapshot| !snapshot.is_over)
            .map(|snapshot| snapshot.pod)
            .collect();
        living.sort_by_key(|pod| {
            let time = pod.metadata.creation_timestamp.as_ref();
            time.map_or(Timestamp::MIN, |time| time.0)
        });
        for pod in living {
            if let Err(refusal) = self.admit(&pod).await {
                let uid = pod.metadata.uid.as_deref().unwrap_or_default();
                self.evict(uid, &refusal.reason, &refusal.message);
            }
        }
    }

    pub(super) async fn admit(&self, pod: &Pod) -> Result<(), Refusal> {
        let outcome = self.managers.admit(pod).await;
        for uid in self.managers.take_preempted() {
            self.evict(&uid, preemption::REASON, preemption::MESSAGE);
        }
        outcome
    }

    /// Ends a pod for a reason of the kubelet.
    fn evict(&self, uid: &str, reason: &str, message: &str) {
        if let Some(known) = self.lock().get(uid) {
            let end = Signal::Evicted(reason.to_owned(), message.to_owned());
            // A worker that has ended needs no signal.
            let _ = known.sender.send(end);
        }
    }

    /// Lets the managers decide again about resizes that found no room, after something has left the node.
    pub(super) fn retry_resizes(&self) {
        for uid in self.managers.retry_resizes() {
            if let Some(known) = self.lock().get(&uid) {
                // A worker that has ended needs no signal.
                let _ = known.sender.send(Signal::ResizeDecided);
            }
        }
    }

    /// Restores the living pods after a restart with the same settings.
    pub(crate) fn restore_pods(&self) {
        self.evict_all(self.managers.restart());
    }

    /// Ends the pods that are refused after a restart.
    pub(crate) fn evict_all(&self, refused: BTreeMap<String, Refusal>) {
        for (uid, refusal) in refused {
            self.evict(&uid, &refusal.reason, &refusal.message);
        }
    }

    /// Publishes a refusal: an event and the final status of the pod.
    pub(super) fn refuse(self: &Arc<Self>, pod: Pod, refusal: Refusal) {
        let text = event_text(&refusal);
        let events = &self.events;
        events.pod(&pod, Kind::Warning, &refusal.reason, text);
        let kubelet = Arc::clone(self);
        tokio::spawn(async move {
            let (reason, message) = (&refusal.reason, &refusal.message);
            let status = status::refused(&pod, reason, message, qos(&pod), Timestamp::now());
            for _ in 0..MAX_ATTEMPTS {
                match publish::write(&kubelet.client, &pod, &status).await {
                    Ok(_) => return,
                    Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => return,
                    Err(error) => {
                        tracing::debug!(%error, "Refusal is not written yet; trying again");
                        tokio::time::sleep(RETRY_INTERVAL).await;
                    }
                }
            }
        });
    }
}

/// Returns the text of a refusal's event.
pub(super) fn event_text(refusal: &Refusal) -> String {
    let text = refusal.message.strip_prefix(REJECTED);
    text.unwrap_or(&refusal.message).to_owned()
}
