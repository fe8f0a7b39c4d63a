//! Stopping a run from outside: the first request asks for an orderly end, the second one for an immediate end.

use tokio::sync::watch;

/// Whether the run was asked to stop; clones share the request.
#[derive(Clone, Debug)]
pub struct Interrupt {
    requested: watch::Receiver<bool>,
    request: watch::Sender<bool>,
}

impl Default for Interrupt {
    fn default() -> Self {
        let (request, requested) = watch::channel(false);
        Self { requested, request }
    }
}

impl Interrupt {
    /// Asks the run to stop.
    pub fn request_stop(&self) {
        self.request.send_replace(true);
    }

    /// Returns whether the run was asked to stop.
    pub fn is_stop_requested(&self) -> bool {
        *self.requested.borrow()
    }

    /// Waits until the run is asked to stop.
    pub async fn wait(&self) {
        let mut requested = self.requested.clone();
        // the sender lives in self, so this ends only with the request
        let _ = requested.wait_for(|requested| *requested).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn every_clone_learns_of_the_wish() {
        let interrupt = Interrupt::default();
        let clone = interrupt.clone();
        assert!(!clone.is_stop_requested());
        interrupt.request_stop();
        clone.wait().await;
        assert!(clone.is_stop_requested());
    }
}
