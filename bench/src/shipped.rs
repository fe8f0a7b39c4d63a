//! The programs of the images.

use std::path::PathBuf;
use std::process::Stdio;

use anyhow::{Context as _, ensure};
use programs::cargo;

/// Builds a program as the images have it, and returns its path: what ships is what is measured.
pub(super) fn program(name: &str) -> anyhow::Result<PathBuf> {
    let mut build = cargo::command();
    build
        .args(["run", "--quiet", "--locked", "--package", "xtask", "--"])
        .args(["image", "--program", name])
        .stderr(Stdio::inherit());
    let output = build.output().context("starting cargo xtask image")?;
    ensure!(
        output.status.success(),
        "cargo xtask image --program {name} ended with {}",
        output.status
    );
    let path = String::from_utf8(output.stdout).context("reading the path of the program")?;
    Ok(PathBuf::from(path.trim_end()))
}
