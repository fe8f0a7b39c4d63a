//! Being stopped from outside: once is a wish to come to a proper end, twice is a wish to end now.

use tokio::sync::watch;

/// Whether the run was asked to stop; clones are the same wish.
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

    /// Whether it was asked.
    pub fn asked(&self) -> bool {
        *self.asked.borrow()
    }

    /// Returns once it is asked.
    pub async fn wait(&self) {
        let mut asked = self.asked.clone();
        // the sender lives in self, so this ends only with the wish
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
