//! Stopping a run from outside: the first request asks for an orderly end, the second one for an immediate end.

use futures::future::select_all;
use tokio::signal::unix::{Signal, SignalKind, signal};
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

/// The signals that ask a program to end: those of a terminal that is interrupted or closed, and of whoever manages processes.
#[derive(Debug)]
pub struct Signals(Vec<(SignalKind, Signal)>);

impl Signals {
    /// Listens from now on. What the program was started to ignore, as with `nohup` or in the background of a script, stays ignored.
    pub fn listen() -> std::io::Result<Self> {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let ignored = ignored(&status);
        let kinds = [
            SignalKind::hangup(),
            SignalKind::interrupt(),
            SignalKind::terminate(),
        ];
        let heard = kinds
            .into_iter()
            .filter(|kind| !is_in(ignored, kind.as_raw_value()));
        let heard = heard.map(|kind| Ok((kind, signal(kind)?)));
        Ok(Self(heard.collect::<std::io::Result<_>>()?))
    }

    /// Waits for a signal.
    pub async fn first(&mut self) {
        self.next().await;
    }

    /// Waits for a signal after the first one. A terminal that is closed sends its signal more than once, so that one does not count.
    pub async fn second(&mut self) {
        while self.next().await == SignalKind::hangup() {}
    }

    async fn next(&mut self) -> SignalKind {
        if self.0.is_empty() {
            return std::future::pending().await;
        }
        let signals = self.0.iter_mut().map(|(kind, signal)| {
            Box::pin(async move {
                signal.recv().await;
                *kind
            })
        });
        select_all(signals).await.0
    }
}

/// Returns the set of ignored signals from the status of a process.
fn ignored(status: &str) -> u64 {
    let set = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok())
        .unwrap_or_default()
}

fn is_in(set: u64, signal: i32) -> bool {
    // bit 0 is signal 1
    let bit = u32::try_from(signal - 1).ok();
    bit.and_then(|bit| set.checked_shr(bit))
        .is_some_and(|rest| rest & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_ignored_is_read_from_the_status() {
        let set = ignored("Name:\tx\nSigBlk:\t0000000000000002\nSigIgn:\t0000000000001003\n");
        assert_eq!(
            [1, 2, 13, 15].map(|signal| is_in(set, signal)),
            [true, true, true, false]
        );
        assert_eq!(ignored(""), 0);
    }

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
