//! The programs of the images.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, ensure};
use programs::cargo;

/// Returns the path of the program to measure: the given one, or one that is built as the images have it, because what ships is what is measured.
pub(super) fn program(given: Option<&Path>, name: &str) -> anyhow::Result<PathBuf> {
    if let Some(given) = given {
        return Ok(given.to_owned());
    }
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
