//! Identity of a process: a process ID is unique only together with the start time.

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
        let stat = fs_err::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let (state, start_ticks) = parse_stat(&stat)?;
        if matches!(state, 'Z' | 'X') {
            return None;
        }
        Some(Self {
            pid,
            start_ticks,
            boot_id: boot_id(),
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

/// Parses state letter and start time out of `/proc/PID/stat`. The command in it may contain any character, even parentheses.
fn parse_stat(stat: &str) -> Option<(char, u64)> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    let state = fields.next()?.chars().next()?;
    // `rest` begins with field 3; the start time is field 22.
    let start_ticks = fields.nth(18)?.parse().ok()?;
    Some((state, start_ticks))
}

fn boot_id() -> String {
    fs_err::read_to_string("/proc/sys/kernel/random/boot_id")
        .map(|text| text.trim().to_owned())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_is_read_behind_the_last_parenthesis_of_the_command() {
        let stat = "42 (a) S (b c) R 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 777 20";
        assert_eq!(parse_stat(stat), Some(('R', 777)));
    }

    #[test]
    fn same_id_with_another_start_time_is_another_process() {
        let mut other = ProcessRef::current().unwrap();
        assert!(other.is_alive());
        other.start_ticks += 1;
        assert!(!other.is_alive());
    }
}
