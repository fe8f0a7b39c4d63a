//! Stopping a run from outside: the first request asks for an orderly end, the second one for an immediate end.

use tokio::sync::watch;

/// Whether the run was asked to stop; clones share the request.
#[derive(Clone, Debug)]
pub struct Interrupt {
    asked: watch::Receiver<bool>,
    ask: watch::Sender<bool>,
}

impl Default for Interrupt {
    fn default() -> Self {
        let (ask, asked) = watch::channel(false);
        Self { asked, ask }
    }
}

impl Interrupt {
    /// Asks the run to stop.
    pub fn ask(&self) {
        self.ask.send_replace(true);
    }

    /// Returns whether the run was asked to stop.
    pub fn asked(&self) -> bool {
        *self.asked.borrow()
    }

    /// Waits until the run is asked to stop.
    pub async fn wait(&self) {
        let mut asked = self.asked.clone();
        // the sender lives in self, so this ends only with the request
        let _ = asked.wait_for(|asked| *asked).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn every_clone_learns_of_the_wish() {
        let interrupt = Interrupt::default();
        let clone = interrupt.clone();
        assert!(!clone.asked());
        interrupt.ask();
        clone.wait().await;
        assert!(clone.asked());
    }
}
