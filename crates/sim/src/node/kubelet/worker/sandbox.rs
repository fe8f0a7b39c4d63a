//! What a pod needs before its first container starts: volumes and an address.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::slot::FIRST_BACKOFF;
use super::{Worker, refresh};
use crate::node::events::Kind;
use crate::node::volumes::{self, References};

/// First and longest delay after volumes could not be made.
pub(super) const FIRST_MOUNT_RETRY: Duration = Duration::from_millis(500);
const LONGEST_MOUNT_RETRY: Duration = Duration::from_mins(2);

impl Worker {
    /// Makes volumes and network ready; returns a time if something has to be repeated.
    pub(super) async fn make_ready(&mut self) -> Option<Instant> {
        if self.volumes.is_none() {
            if let Some(again) = self.mount_again
                && again > Instant::now()
            {
                return Some(again);
            }
            let context = self.kubelet.volume_context();
            match volumes::mount(&context, &self.pod, &mut self.tokens).await {
                Ok(directories) => {
                    self.volumes = Some(directories);
                    self.refresh();
                }
                Err(error) => {
                    let events = &self.kubelet.events;
                    events.pod(&self.pod, Kind::Warning, "FailedMount", error.to_string());
                    let again = Instant::now() + self.mount_delay;
                    self.mount_delay = (self.mount_delay * 2).min(LONGEST_MOUNT_RETRY);
                    self.mount_again = Some(again);
                    return Some(again);
                }
            }
        }
        if !self.has_sandbox {
            let on_host = self.spec().and_then(|spec| spec.host_network) == Some(true);
            let address = if on_host {
                Some(self.kubelet.addresses.node())
            } else {
                self.kubelet.addresses.take()
            };
            let Some(address) = address else {
                let text = "Failed to create pod sandbox: no address is free";
                let events = &self.kubelet.events;
                events.pod(&self.pod, Kind::Warning, "FailedCreatePodSandBox", text);
                return Some(Instant::now() + FIRST_BACKOFF);
            };
            self.address = Some(address);
            self.has_sandbox = true;
        }
        None
    }

    /// Starts the task that keeps the volumes up to date while the pod lives.
    fn refresh(&mut self) {
        let references = References::of(&self.pod);
        let tokens = std::mem::take(&mut self.tokens);
        if references == References::default() && tokens.renewal().is_none() {
            return;
        }
        let (kubelet, pod) = (Arc::clone(&self.kubelet), self.pod.clone());
        self.refresher = Some(tokio::spawn(refresh::run(kubelet, pod, references, tokens)));
    }
}
