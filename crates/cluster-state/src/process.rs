//! Identity of a process: a process ID is unique only together with the start time.

use procfs::process::Process;
use serde::{Deserialize, Serialize};

/// A process that can be recognised later, even if another process has got its ID.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct ProcessRef {
    /// Process ID in the namespace of the harness.
    pub pid: i32,
    /// Start time in clock ticks since boot (field 22 of `/proc/PID/stat`).
    pub start_ticks: u64,
    /// `boot_id` of the kernel: start times of different boots cannot be compared.
    pub boot_id: String,
}

impl ProcessRef {
    /// Returns the process that has this ID now; none if there is none or only a zombie.
    pub fn of(pid: i32) -> Option<Self> {
        let stat = Process::new(pid).and_then(|process| process.stat()).ok()?;
        if matches!(stat.state, 'Z' | 'X') {
            return None;
        }
        Some(Self {
            pid,
            start_ticks: stat.starttime,
            boot_id: procfs::sys::kernel::random::boot_id().unwrap_or_default(),
        })
    }

    /// Returns the calling process.
    pub fn current() -> Option<Self> {
        Self::of(i32::try_from(std::process::id()).ok()?)
    }

    /// Returns whether exactly this process still runs; a zombie does not.
    pub fn is_alive(&self) -> bool {
        Self::of(self.pid).as_ref() == Some(self)
    }
}

#[cfg(test)]
mod tests {
    use nix::sys::wait::{Id, WaitPidFlag, waitid};
    use nix::unistd::Pid;

    use super::*;

    #[test]
    fn same_id_with_another_start_time_is_another_process() {
        let mut other = ProcessRef::current().unwrap();
        assert!(other.is_alive());
        other.start_ticks += 1;
        assert!(!other.is_alive());
    }

    #[test]
    fn process_that_ended_is_none_even_before_its_parent_waits_for_it() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap());
        waitid(Id::Pid(pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT).unwrap();
        assert_eq!(ProcessRef::of(pid.as_raw()), None);
        child.wait().unwrap();
        assert_eq!(ProcessRef::of(pid.as_raw()), None);
    }
}
