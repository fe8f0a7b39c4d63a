//! A program that is measured, and its figures from the kernel.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, ensure};

/// Unit of time in `/proc`: ticks per second, the same on every Linux.
const TICKS: u32 = 100;

/// A running program; it ends with this value.
pub(super) struct Measured {
    child: Child,
    log: PathBuf,
}

impl Measured {
    /// Starts `command`, with its standard error written to `log`.
    pub(super) fn start(command: &mut Command, log: &Path) -> anyhow::Result<Self> {
        let file = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(file)
            .spawn()
            .with_context(|| format!("cannot start {}", command.get_program().display()))?;
        Ok(Self {
            child,
            log: log.to_owned(),
        })
    }

    /// Returns the processor time used so far.
    pub(super) fn cpu_time(&self) -> anyhow::Result<Duration> {
        let text = self.read("stat")?;
        // The name may contain blanks; the fields after it do not.
        let (_, fields) = text.rsplit_once(')').context("stat has no name")?;
        let field = |index: usize| -> anyhow::Result<u32> {
            let field = fields.split_whitespace().nth(index);
            Ok(field.context("stat is short")?.parse()?)
        };
        Ok(Duration::from_secs(1) * (field(11)? + field(12)?) / TICKS)
    }

    /// Returns the peak resident memory so far, in MB (1,000,000 bytes).
    pub(super) fn peak_memory(&self) -> anyhow::Result<f64> {
        let text = self.read("status")?;
        let kilobytes = text.lines().find_map(|line| {
            let value = line.strip_prefix("VmHWM:")?.trim().strip_suffix("kB")?;
            value.trim().parse::<f64>().ok()
        });
        let kilobytes = kilobytes.with_context(|| self.end_of_log())?;
        Ok(kilobytes * 1024.0 / 1e6)
    }

    /// Returns an error if it has ended.
    pub(super) fn check(&mut self) -> anyhow::Result<()> {
        ensure!(self.child.try_wait()?.is_none(), "{}", self.end_of_log());
        Ok(())
    }

    fn end_of_log(&self) -> String {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        let end = lines[lines.len().saturating_sub(10)..].join("\n");
        format!("the measured program has ended; the end of its log:\n{end}")
    }

    fn read(&self, file: &str) -> anyhow::Result<String> {
        let path = format!("/proc/{}/{file}", self.child.id());
        std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))
    }
}

impl Drop for Measured {
    fn drop(&mut self) {
        // Both fail only if it has ended by itself.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
