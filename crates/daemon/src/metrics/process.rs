//! Metrics of the process itself, with the names of client_golang's process collector. They are read when they are asked for.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use nix::sys::resource::{Resource, UsageWho, getrlimit, getrusage};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

/// The process.
#[derive(Debug)]
pub(super) struct Process {
    /// When it began, in seconds since the epoch.
    start: f64,
}

impl Process {
    /// Creates the metrics of a process that has just started.
    pub(super) fn just_started() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        Self {
            start: since.unwrap_or_default().as_secs_f64(),
        }
    }
}

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let mut put = |name, help, metric: &dyn EncodeMetric| {
            metric.encode(encoder.encode_descriptor(name, help, None, metric.metric_type())?)
        };
        put(
            "process_start_time_seconds",
            "Start of the process, in seconds since the epoch",
            &ConstGauge::new(self.start),
        )?;
        if let Some(seconds) = cpu_seconds() {
            put(
                "process_cpu_seconds",
                "CPU time of the process, user and system",
                &ConstCounter::new(seconds),
            )?;
        }
        if let Some(count) = open_files() {
            put(
                "process_open_fds",
                "Open file descriptors",
                &ConstGauge::new(count),
            )?;
        }
        for (name, help, resource) in [
            (
                "process_max_fds",
                "Greatest number of open file descriptors",
                Resource::RLIMIT_NOFILE,
            ),
            (
                "process_virtual_memory_max_bytes",
                "Greatest amount of virtual memory",
                Resource::RLIMIT_AS,
            ),
        ] {
            if let Ok((limit, _)) = getrlimit(resource) {
                // no limit is a number too great for an integer
                put(name, help, &ConstGauge::new(limit as f64))?;
            }
        }
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        for (name, help, key) in [
            ("process_resident_memory_bytes", "Memory in use", "VmRSS:"),
            ("process_virtual_memory_bytes", "Virtual memory", "VmSize:"),
        ] {
            if let Some(bytes) = memory(&status, key) {
                put(name, help, &ConstGauge::new(bytes))?;
            }
        }
        Ok(())
    }
}

fn cpu_seconds() -> Option<f64> {
    let usage = getrusage(UsageWho::RUSAGE_SELF).ok()?;
    let seconds = [usage.user_time(), usage.system_time()]
        .map(|time| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6);
    Some(seconds.iter().sum())
}

/// Returns the number of open files, without the one that is open while they are counted.
fn open_files() -> Option<i64> {
    let count = std::fs::read_dir("/proc/self/fd").ok()?.count();
    i64::try_from(count).ok().map(|count| count - 1)
}

/// Returns an amount of memory of `/proc/self/status`, in bytes.
fn memory(status: &str, key: &str) -> Option<i64> {
    let line = status.lines().find_map(|line| line.strip_prefix(key))?;
    let kilobytes: i64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kilobytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;
    use prometheus_client::registry::Registry;

    use super::*;

    fn values() -> Vec<(String, f64)> {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Process::just_started()));
        let mut text = String::new();
        encode(&mut text, &registry).expect("encodes");
        text.lines()
            .filter(|line| !line.starts_with('#'))
            .filter_map(|line| line.split_once(' '))
            .map(|(name, value)| (name.to_owned(), value.parse().expect("a number")))
            .collect()
    }

    fn value(name: &str) -> f64 {
        let values = values();
        let found = values.iter().find(|(other, _)| other == name);
        found
            .unwrap_or_else(|| unreachable!("{name} is not in {values:?}"))
            .1
    }

    #[test]
    fn memory_time_and_files_are_those_of_this_process() {
        let block = vec![1_u8; 64 << 20];
        assert!(value("process_resident_memory_bytes") > block.len() as f64);
        assert!(value("process_virtual_memory_bytes") > block.len() as f64);
        let before = value("process_open_fds");
        let files: Vec<_> = (0..50)
            .map(|_| std::fs::File::open("/proc/self/status").expect("opens"))
            .collect();
        // other tests of this process open and close files, too
        assert!(value("process_open_fds") > before + files.len() as f64 / 2.0);
        assert!(value("process_max_fds") >= value("process_open_fds"));
        assert!(value("process_cpu_seconds_total") > 0.0);
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .expect("after 1970");
        let age = now.as_secs_f64() - value("process_start_time_seconds");
        assert!((-1.0..60.0).contains(&age), "{age}");
    }
}
