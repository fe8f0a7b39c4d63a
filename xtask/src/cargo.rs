//! What the commands ask of cargo.

use std::io::BufReader;
use std::path::PathBuf;
use std::process::Stdio;

use anyhow::{Context as _, ensure};
use cargo_metadata::{Artifact, Message};
pub(crate) use testbed::cargo::{command, program, without_package};

/// Builds what `arguments` of `cargo build` say.
///
/// # Errors
/// When cargo cannot be started or the build fails.
pub(crate) fn build(arguments: &[&str]) -> anyhow::Result<()> {
    let status = command()
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

/// Builds what `arguments` of `cargo build` say, and tells of every unit that is part of it, whether it was compiled now or before.
///
/// # Errors
/// When cargo cannot be started or the build fails.
pub(crate) fn artifacts(arguments: &[&str]) -> anyhow::Result<Vec<Artifact>> {
    let what = || format!("cargo build {}", arguments.join(" "));
    let mut child = command()
        .arg("build")
        .args(arguments)
        .arg("--message-format=json-render-diagnostics")
        .stdout(Stdio::piped())
        .spawn()
        .with_context(what)?;
    let stdout = child.stdout.take().with_context(what)?;
    let mut artifacts = Vec::new();
    for message in Message::parse_stream(BufReader::new(stdout)) {
        if let Message::CompilerArtifact(artifact) = message.with_context(what)? {
            artifacts.push(artifact);
        }
    }
    let status = child.wait().with_context(what)?;
    ensure!(status.success(), "{} ended with {status}", what());
    Ok(artifacts)
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
