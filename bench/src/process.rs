//! A program that is measured, and its figures from the kernel.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use procfs::ProcResult;
use procfs::process::Process;

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
        let stat = self.kernel().and_then(|process| process.stat());
        let stat = stat.with_context(|| self.end_of_log())?;
        let ticks = stat.utime + stat.stime;
        Ok(Duration::from_millis(
            ticks * 1000 / procfs::ticks_per_second(),
        ))
    }

    /// Returns the peak resident memory so far, in MB (1,000,000 bytes).
    pub(super) fn peak_memory(&self) -> anyhow::Result<f64> {
        let status = self.kernel().and_then(|process| process.status());
        let kilobytes = status.ok().and_then(|status| status.vmhwm);
        let kilobytes = kilobytes.with_context(|| self.end_of_log())? as f64;
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

    fn kernel(&self) -> ProcResult<Process> {
        Process::new(self.child.id().cast_signed())
    }
}

impl Drop for Measured {
    fn drop(&mut self) {
        // Both fail only if it has ended by itself.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
