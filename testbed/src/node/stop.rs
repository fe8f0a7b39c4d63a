//! The signals that end a server.

use std::future::Future;
use std::io;

use tokio::signal::unix::{SignalKind, signal};

/// Completes on `SIGTERM` or `SIGINT`; both are caught from this call on. Needs a runtime.
pub fn signalled() -> io::Result<impl Future<Output = ()> + Send + use<>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}
