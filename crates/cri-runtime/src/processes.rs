//! The processes of containers, read from `/proc`.

use std::ffi::OsStr;
use std::path::Path;
use std::time::Duration;

use nix::unistd::Pid;
use procfs::process::{Process, Stat};

/// Resource usage of processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// CPU time, including that of children that were waited for.
    pub cpu: Duration,
    /// Resident memory, in bytes.
    pub resident: u64,
    /// Minor and major page faults.
    pub faults: u64,
    /// Major page faults.
    pub major_faults: u64,
    /// Number of processes in the sum.
    pub processes: u64,
}

impl From<&Stat> for Usage {
    fn from(stat: &Stat) -> Self {
        let of_children = stat.cutime.unsigned_abs() + stat.cstime.unsigned_abs();
        let ticks = stat.utime + stat.stime + of_children;
        let major_faults = stat.majflt + stat.cmajflt;
        Self {
            cpu: Duration::from_nanos(ticks * (1_000_000_000 / procfs::ticks_per_second())),
            resident: stat.rss * procfs::page_size(),
            faults: stat.minflt + stat.cminflt + major_faults,
            major_faults,
            processes: 1,
        }
    }
}

impl Usage {
    fn add(self, other: Self) -> Self {
        Self {
            cpu: self.cpu + other.cpu,
            resident: self.resident + other.resident,
            faults: self.faults + other.faults,
            major_faults: self.major_faults + other.major_faults,
            processes: self.processes + other.processes,
        }
    }
}

/// Returns every process in the PID namespace of `pid`, `pid` first. Returns only `pid` if `shares_namespace` is set, because then other
/// containers are in its namespace, too.
pub fn members(pid: Pid, shares_namespace: bool) -> Vec<Pid> {
    let mut members = vec![pid];
    if shares_namespace {
        return members;
    }
    let Some(namespace) = namespace_of(&pid.to_string()) else {
        return members;
    };
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return members;
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        if let Some(other) = number(&name)
            && other != pid
            && namespace_of(other.to_string().as_str()).as_ref() == Some(&namespace)
        {
            members.push(other);
        }
    }
    members
}

fn number(name: &OsStr) -> Option<Pid> {
    name.to_str()?.parse().ok().map(Pid::from_raw)
}

fn namespace_of(pid: &str) -> Option<std::path::PathBuf> {
    std::fs::read_link(Path::new("/proc").join(pid).join("ns/pid")).ok()
}

/// Returns the total usage of these processes; those that have ended count nothing.
pub fn usage(pids: &[Pid]) -> Usage {
    pids.iter()
        .filter_map(|pid| Process::new(pid.as_raw()).ok()?.stat().ok())
        .map(|stat| Usage::from(&stat))
        .fold(Usage::default(), Usage::add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_process_uses_memory() {
        let usage = usage(&[Pid::this()]);
        assert_eq!(usage.processes, 1);
        assert!(usage.resident > 0);
    }

    #[test]
    fn own_process_is_a_member_of_its_namespace() {
        assert!(members(Pid::this(), false).contains(&Pid::this()));
        assert_eq!(members(Pid::this(), true), [Pid::this()]);
    }
}
