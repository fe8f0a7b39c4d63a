//! What the commands ask of cargo.

use std::io::BufReader;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};
use cargo_metadata::{Artifact, Message};

/// What cargo tells a program that it runs about the program's package. A cargo that is started by that program must not see it: build
/// scripts that look at it (ring's does) would run again, and all that depends on them would be compiled again.
const OF_A_PACKAGE: [&str; 4] = [
    "CARGO_BIN_",
    "CARGO_CRATE_",
    "CARGO_MANIFEST_",
    "CARGO_PKG_",
];

/// Takes from a command's environment what cargo told this program about its own package.
pub(crate) fn without_package(command: &mut Command) -> &mut Command {
    for (name, _) in std::env::vars_os() {
        let is_of_package = name
            .to_str()
            .is_some_and(|name| OF_A_PACKAGE.iter().any(|prefix| name.starts_with(prefix)));
        if is_of_package {
            command.env_remove(name);
        }
    }
    command
}

/// The cargo that runs this program, or the one on the `PATH`.
pub(crate) fn program() -> PathBuf {
    std::env::var_os("CARGO").map_or_else(|| PathBuf::from("cargo"), PathBuf::from)
}

/// A command of cargo, as if somebody typed it.
pub(crate) fn command() -> Command {
    let mut command = Command::new(program());
    without_package(&mut command);
    command
}

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
