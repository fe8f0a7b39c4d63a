//! What the commands ask of cargo.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, ensure};

/// Builds what `arguments` of `cargo build` say.
///
/// # Errors
/// When cargo cannot be started or the build fails.
pub(crate) fn build(arguments: &[&str]) -> anyhow::Result<()> {
    let status = Command::new(env!("CARGO"))
        .arg("build")
        .args(arguments)
        .status()
        .context("starting cargo build")?;
    ensure!(
        status.success(),
        "cargo build {} failed",
        arguments.join(" ")
    );
    Ok(())
}

/// Where the builds of this workspace end up.
///
/// # Errors
/// When cargo cannot tell.
pub(crate) fn target_dir() -> anyhow::Result<PathBuf> {
    let metadata = cargo_metadata::MetadataCommand::new()
        .no_deps()
        .exec()
        .context("asking cargo for the target directory")?;
    Ok(metadata.target_directory.into_std_path_buf())
}
