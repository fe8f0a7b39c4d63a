//! How the programs are made: with the images' profiles, or linked from a development build for trials.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail, ensure};

use super::build::Build;
use super::origin::Origin;
use super::variant::{PROGRAMS, Program};
use crate::cargo;

/// Builds a program as the images have it, and prints its path.
///
/// # Errors
/// Returns an error if no image has such a program, or if it cannot be built.
pub(super) fn one(name: &str) -> anyhow::Result<()> {
    let program = PROGRAMS.into_iter().find(|program| program.name == name);
    let program = program.with_context(|| format!("no image has a program {name}"))?;
    let settings = Build::find(None, false)?;
    build(program.profile, &[program], &settings, &Origin::find()?)?;
    let made = made_in(&settings, program.profile)?.join(name);
    writeln!(std::io::stdout(), "{}", made.display()).context("printing its path")
}

/// Builds all programs, each with its profile. Returns the directory that they are in.
///
/// # Errors
/// Returns an error if one cannot be built.
pub(super) fn all(settings: &Build, origin: &Origin) -> anyhow::Result<PathBuf> {
    let mut profiles: BTreeMap<&str, Vec<Program>> = BTreeMap::new();
    for program in PROGRAMS {
        profiles.entry(program.profile).or_default().push(program);
    }
    let dir = cargo::target_dir()?.join("image").join(&settings.target);
    for (profile, programs) in profiles {
        build(profile, &programs, settings, origin)?;
        collect(&made_in(settings, profile)?, &dir, &programs)?;
    }
    Ok(dir)
}

/// Links the programs statically from the libraries of the development build. Returns the directory that they are in.
///
/// The flags apply only to the programs' own few lines, so that no library is compiled again. Whether the C library is static is decided
/// where a program is linked. The programs of the development build stay as they are, because tests may be using them.
///
/// # Errors
/// Returns an error if one cannot be linked.
pub(super) fn development() -> anyhow::Result<PathBuf> {
    let dir = cargo::target_dir()?.join("image").join("development");
    std::fs::create_dir_all(&dir).with_context(|| format!("making {}", dir.display()))?;
    for program in PROGRAMS {
        let made = dir.join(program.name);
        // cargo does not know of this file, and would not make it again where it takes the rest for up to date
        let _ = std::fs::remove_file(&made);
        let mut build = cargo::command();
        build
            .args(["rustc", "--locked", "--quiet", "--package", program.package])
            .args(["--bin", program.name, "--"])
            .args(["-C", "target-feature=+crt-static", "-C", "strip=symbols"])
            .arg(format!("--emit=link={}", made.display()));
        let status = build.status().context("starting cargo rustc")?;
        ensure!(status.success(), "cargo rustc ended with {status}");
    }
    Ok(dir)
}

/// Installs a target's standard library with rustup.
///
/// # Errors
/// Returns an error if rustup cannot.
pub(super) fn add_target(target: &str) -> anyhow::Result<()> {
    let status = Command::new("rustup")
        .args(["target", "add", target])
        .status()
        .context("starting rustup")?;
    if !status.success() {
        bail!("rustup cannot install the target {target}");
    }
    Ok(())
}

/// Returns the directory that cargo makes programs in.
fn made_in(settings: &Build, profile: &str) -> anyhow::Result<PathBuf> {
    Ok(cargo::target_dir()?.join(&settings.target).join(profile))
}

/// Builds programs of the same profile.
fn build(
    profile: &str,
    programs: &[Program],
    settings: &Build,
    origin: &Origin,
) -> anyhow::Result<()> {
    let target = &settings.target;
    let mut build = cargo::command();
    build
        .args(["build", "--locked", "--bins", "--profile", profile])
        .args(["--target", target])
        .args(programs.iter().flat_map(|program| ["-p", program.package]));
    settings.apply_to(&mut build);
    origin.apply_to(&mut build);
    if target.ends_with("-musl") {
        // the C parts need no C library, so the host's compiler is sufficient if there is none for musl
        let name = format!("CC_{}", target.replace('-', "_"));
        if std::env::var_os(&name).is_none() {
            build.env(name, "cc");
        }
    }
    let status = build.status().context("starting cargo build")?;
    ensure!(status.success(), "cargo build ended with {status}");
    Ok(())
}

/// Copies programs from the directory that cargo has made them in.
fn collect(from: &Path, dir: &Path, programs: &[Program]) -> anyhow::Result<()> {
    std::fs::create_dir_all(dir).with_context(|| format!("making {}", dir.display()))?;
    for program in programs {
        let made = from.join(program.name);
        std::fs::copy(&made, dir.join(program.name))
            .with_context(|| format!("copying {}", made.display()))?;
    }
    Ok(())
}
