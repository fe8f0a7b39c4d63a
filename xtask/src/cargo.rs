//! Calls of cargo by the commands.

use std::io::BufReader;
use std::path::PathBuf;
use std::process::Stdio;

use anyhow::{Context as _, ensure};
use cargo_metadata::{Artifact, Message};
pub(crate) use programs::cargo::{command, program, without_package};

/// Runs `cargo build` with these arguments, and returns every unit of the build, whether it was compiled now or before.
///
/// # Errors
/// Returns an error if cargo cannot be started or the build fails.
pub(crate) fn artifacts(arguments: &[&str]) -> anyhow::Result<Vec<Artifact>> {
    let what = || format!("cargo build {}", arguments.join(" "));
    let mut child = command()
        .args(["build", "--locked"])
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

/// Returns the target directory of this workspace.
///
/// # Errors
/// Returns an error if cargo cannot determine it.
pub(crate) fn target_dir() -> anyhow::Result<PathBuf> {
    let metadata = cargo_metadata::MetadataCommand::new()
        .no_deps()
        .exec()
        .context("asking cargo for the target directory")?;
    Ok(metadata.target_directory.into_std_path_buf())
}
