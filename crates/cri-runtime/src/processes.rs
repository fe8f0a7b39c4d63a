//! The processes of containers, read from `/proc`.

use std::ffi::OsStr;
use std::path::Path;
use std::time::Duration;

use nix::unistd::{Pid, SysconfVar, sysconf};

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
    let units = StatUnits::read();
    pids.iter()
        .filter_map(|pid| std::fs::read_to_string(format!("/proc/{pid}/stat")).ok())
        .filter_map(|stat| parse_stat(&stat, units))
        .fold(Usage::default(), Usage::add)
}

/// Units of `/proc/PID/stat`.
#[derive(Clone, Copy, Debug)]
struct StatUnits {
    ticks_per_second: u64,
    page_size: u64,
}

impl StatUnits {
    fn read() -> Self {
        let read = |variable, default| {
            sysconf(variable)
                .ok()
                .flatten()
                .and_then(|value| u64::try_from(value).ok())
                .filter(|value| *value > 0)
                .unwrap_or(default)
        };
        Self {
            ticks_per_second: read(SysconfVar::CLK_TCK, 100),
            page_size: read(SysconfVar::PAGE_SIZE, 4096),
        }
    }
}

/// Parses `/proc/PID/stat`. The name in parentheses may contain anything, so fields count from its end.
fn parse_stat(stat: &str, units: StatUnits) -> Option<Usage> {
    let (_, fields) = stat.rsplit_once(')')?;
    // The first of these is field 3 in the manual page.
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    let (minor, major) = (field(10)? + field(11)?, field(12)? + field(13)?);
    let ticks = field(14)? + field(15)? + field(16)? + field(17)?;
    Some(Usage {
        cpu: Duration::from_nanos(ticks * (1_000_000_000 / units.ticks_per_second)),
        resident: field(24)? * units.page_size,
        faults: minor + major,
        major_faults: major,
        processes: 1,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNITS: StatUnits = StatUnits {
        ticks_per_second: 100,
        page_size: 4096,
    };

    #[test]
    fn usage_is_read_past_an_awkward_name() {
        let stat = "7 (a ) b) S 1 7 7 0 -1 4194560 10 1 2 3 50 25 4 1 20 0 1 0 100 2000000 25 18446744073709551615 1";
        let usage = parse_stat(stat, UNITS).unwrap();
        assert_eq!(usage.cpu, Duration::from_millis(800));
        assert_eq!(usage.resident, 25 * 4096);
        assert_eq!(usage.faults, 16);
        assert_eq!(usage.major_faults, 5);
    }

    #[test]
    fn broken_line_is_no_usage() {
        assert_eq!(parse_stat("7 (x) S 1", UNITS), None);
    }

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
