//! The image of a container, with the events of its pull.

use std::time::Instant;

use cluster_spec::images::Resolved;
use k8s_openapi::api::core::v1::Container;

use crate::node::events::Kind;
use crate::node::kubelet::worker::Worker;
use crate::node::kubelet::worker::slot::{FIRST_BACKOFF, LONGEST_BACKOFF};
use crate::node::status::facts::Run;

impl Worker {
    /// Returns the image, or when to try again.
    pub(super) fn pull(
        &mut self,
        index: usize,
        container: &Container,
    ) -> Result<Resolved, Instant> {
        let name = container.image.clone().unwrap_or_default();
        let is_latest = !name.contains('@')
            && cluster_spec::images::Reference::parse(&name)
                .tag
                .is_none_or(|tag| tag == "latest");
        let policy = container.image_pull_policy.as_deref();
        let policy = policy.unwrap_or(if is_latest { "Always" } else { "IfNotPresent" });
        match (self.kubelet.images.resolve(&name), policy) {
            (Ok(image), "Always") => {
                self.record_event(
                    index,
                    Kind::Normal,
                    "Pulling",
                    format!("Pulling image {name:?}"),
                );
                let text = format!(
                    "Successfully pulled image {name:?} in 1ms (1ms including waiting). Image size: {} bytes.",
                    image.size()
                );
                self.record_event(index, Kind::Normal, "Pulled", text);
                Ok(image)
            }
            (Ok(image), _) => {
                let text = format!(
                    "Container image {name:?} already present on machine and can be accessed by the pod"
                );
                self.record_event(index, Kind::Normal, "Pulled", text);
                Ok(image)
            }
            (Err(_), "Never") => {
                let text =
                    format!("Container image {name:?} is not present with pull policy of Never");
                self.record_event(index, Kind::Warning, "ErrImageNeverPull", text.clone());
                self.record_event(index, Kind::Warning, "Failed", "Error: ErrImageNeverPull");
                self.set_waiting(index, "ErrImageNeverPull", &text);
                Err(Instant::now() + FIRST_BACKOFF)
            }
            (Err(error), _) => {
                let problem = format!("rpc error: code = NotFound desc = {error}");
                let again = Instant::now() + self.slots[index].pull_delay;
                let is_first = !matches!(&self.slots[index].facts.run, Run::Waiting { reason, .. } if reason == "ImagePullBackOff");
                self.record_event(
                    index,
                    Kind::Normal,
                    "Pulling",
                    format!("Pulling image {name:?}"),
                );
                let text = format!("Failed to pull image {name:?}: {problem}");
                self.record_event(index, Kind::Warning, "Failed", text);
                self.record_event(index, Kind::Warning, "Failed", "Error: ErrImagePull");
                if is_first {
                    self.set_waiting(index, "ErrImagePull", &problem);
                }
                let text = format!("Back-off pulling image {name:?}");
                self.record_event(index, Kind::Normal, "BackOff", text.clone());
                self.record_event(index, Kind::Warning, "Failed", "Error: ImagePullBackOff");
                self.set_waiting(
                    index,
                    "ImagePullBackOff",
                    &format!("{text}: ErrImagePull: {problem}"),
                );
                let slot = &mut self.slots[index];
                slot.pull_delay = (slot.pull_delay * 2).min(LONGEST_BACKOFF);
                slot.not_before = Some(again);
                Err(again)
            }
        }
    }
}
