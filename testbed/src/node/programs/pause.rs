//! `pause`: holds namespaces and reaps orphans until it is told to stop.

use std::process::ExitCode;

use nix::errno::Errno;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};

use crate::node::stop;

/// Waits for `SIGTERM` or `SIGINT`, reaping children meanwhile; the exit code is then 0.
///
/// The signals are blocked and waited for, not handled: a blocked signal reaches even the first process of a PID namespace,
/// for which the kernel drops signals that are left at their default.
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
