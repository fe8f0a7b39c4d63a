//! An exporter as a process, and what the kernel says about it.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail};

/// What `/proc` counts time in: ticks a second, the same on every Linux.
const TICKS: u32 = 100;

/// A running exporter; it ends with this value.
pub(super) struct Exporter {
    child: Child,
}

impl Exporter {
    /// Starts `program` for a node, with what all measurements have in common and what `further` adds.
    pub(super) fn start(
        program: &Path,
        log: &Path,
        node: &str,
        further: impl FnOnce(&mut Command),
    ) -> anyhow::Result<Self> {
        let mut command = Command::new(program);
        command
            .env("NODE_NAME", node)
            .args([
                "--podreadiness=false",
                "--topology-manager-policy=single-numa-node",
                "--topology-manager-scope=container",
            ])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(log)?);
        further(&mut command);
        let child = command
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        Ok(Self { child })
    }

    /// Processor time used so far.
    pub(super) fn cpu_time(&self) -> anyhow::Result<Duration> {
        let text = self.read("stat")?;
        // The name may hold blanks; the fields after it do not.
        let (_, fields) = text.rsplit_once(')').context("stat has no name")?;
        let field = |index: usize| -> anyhow::Result<u32> {
            let field = fields.split_whitespace().nth(index);
            Ok(field.context("stat is short")?.parse()?)
        };
        Ok(Duration::from_secs(1) * (field(11)? + field(12)?) / TICKS)
    }

    /// The most resident memory so far, in MB (1,000,000 bytes).
    pub(super) fn peak_memory(&self) -> anyhow::Result<f64> {
        let text = self.read("status")?;
        let kilobytes = text.lines().find_map(|line| {
            let value = line.strip_prefix("VmHWM:")?.trim().strip_suffix("kB")?;
            value.trim().parse::<f64>().ok()
        });
        let Some(kilobytes) = kilobytes else {
            bail!("the exporter has ended: see its log");
        };
        Ok(kilobytes * 1024.0 / 1e6)
    }

    fn read(&self, file: &str) -> anyhow::Result<String> {
        let path = format!("/proc/{}/{file}", self.child.id());
        std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        // Both fail only when it has ended by itself.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
