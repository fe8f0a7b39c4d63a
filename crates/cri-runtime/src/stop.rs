//! The signals that end a server.

use std::future::Future;
use std::io;

use nix::sys::signal::{SigSet, Signal};
use tokio::signal::unix::{SignalKind, signal};

/// Returns the signals that ask a program to end.
///
/// They are blocked in our programs from before their execution until they can handle them: the first process of a container would
/// otherwise lose signals that arrive earlier.
pub fn signals() -> SigSet {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGTERM);
    signals.add(Signal::SIGINT);
    signals
}

/// Returns a future that completes on `SIGTERM` or `SIGINT`. Both are caught from this call on, and unblocked in the calling thread. Needs
/// a tokio runtime.
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
