//! The signals that end a server.

use std::future::Future;
use std::io;

use nix::sys::signal::{SigSet, Signal};
use tokio::signal::unix::{SignalKind, signal};

/// The signals that ask a program to end.
///
/// They are blocked for a program of ours from before it is executed until it can take them: as the first process of a
/// container it would otherwise never hear of one that comes before that.
pub fn signals() -> SigSet {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGTERM);
    signals.add(Signal::SIGINT);
    signals
}

/// Completes on `SIGTERM` or `SIGINT`; both are caught from this call on, in the calling thread. Needs a runtime.
pub fn signalled() -> io::Result<impl Future<Output = ()> + Send + use<>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    signals().thread_unblock()?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}
