//! `pause` holds namespaces and reaps orphans until a signal stops it.

use std::process::ExitCode;

use nix::errno::Errno;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};

use crate::stop;

/// Waits for `SIGTERM` or `SIGINT` and reaps children meanwhile; the exit code is 0.
///
/// The signals are blocked and waited for, not handled: a blocked signal also reaches the first process of a PID namespace, for which the
/// kernel drops signals with their default action.
pub fn run() -> Result<ExitCode, Errno> {
    let mut signals = stop::signals();
    signals.add(Signal::SIGCHLD);
    signals.thread_block()?;
    loop {
        if signals.wait()? != Signal::SIGCHLD {
            return Ok(ExitCode::SUCCESS);
        }
        while waitpid(None, Some(WaitPidFlag::WNOHANG))
            .is_ok_and(|status| status != WaitStatus::StillAlive)
        {}
    }
}
