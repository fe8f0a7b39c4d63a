//! The subcommand `sidecar`: a report in the log of a container, because a container that has ended has no other file that one can read.

use std::io::Write as _;
use std::path::Path;

use anyhow::Context as _;
use tokio::signal::unix::{SignalKind, signal};

/// Waits for SIGTERM, which a sidecar gets when the other containers of its pod have ended, and prints the file.
pub(super) async fn run(file: &Path) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    terminate.recv().await;
    let report = std::fs::read(file).with_context(|| {
        format!(
            "there is no report {}: the tests wrote none",
            file.display()
        )
    })?;
    let printed = std::io::stdout().write_all(&report);
    printed.with_context(|| format!("cannot print the report {}", file.display()))
}
