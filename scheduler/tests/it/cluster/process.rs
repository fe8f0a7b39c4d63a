//! The processes that run on the API server.

use std::path::PathBuf;
use std::process::Child;

use fs_err as fs;
use kube::Client;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sim::node::addresses::Block;
use wait_timeout::ChildExt as _;

use super::{PORT, WITHIN};

/// A scheduler process; killed when dropped.
pub(crate) struct Scheduler {
    pub(super) process: Child,
    /// A block of addresses that no other process uses, so the port is certainly free.
    pub(super) addresses: Block,
    pub(super) log: PathBuf,
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        // both fail only if the process has already ended
        let _ = self.process.kill();
        let _ = self.process.wait();
        if std::thread::panicking() {
            let text = self.log();
            let lines: Vec<&str> = text.lines().collect();
            println!(
                "--- end of {}\n{}",
                self.log.display(),
                lines[lines.len().saturating_sub(40)..].join("\n")
            );
        }
    }
}

impl Scheduler {
    /// Asks the process to stop and returns its exit code.
    pub(crate) fn stop(&mut self) -> Option<i32> {
        kill(
            Pid::from_raw(self.process.id().cast_signed()),
            Signal::SIGTERM,
        )
        .unwrap();
        self.ended()
    }

    /// Waits until the process has ended and returns its exit code.
    pub(crate) fn ended(&mut self) -> Option<i32> {
        let status = self.process.wait_timeout(WITHIN).unwrap();
        assert!(status.is_some(), "it goes on: {}", self.log());
        status.and_then(|status| status.code())
    }

    /// Creates a client of its endpoint, with this token or anonymous.
    pub(crate) fn endpoint(&self, token: Option<&str>) -> Client {
        let address = format!("https://{}:{PORT}", self.addresses.control_plane());
        let mut config = kube::Config::new(address.parse().unwrap());
        config.accept_invalid_certs = true;
        config.auth_info.token = token.map(|token| token.to_owned().into());
        Client::try_from(config).unwrap()
    }

    /// Returns the log so far.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }
}

/// A real kube-controller-manager that only binds volumes and claims; killed when dropped.
pub(crate) struct VolumeController(pub(super) Child);

impl Drop for VolumeController {
    fn drop(&mut self) {
        // both fail only if the process has already ended
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
