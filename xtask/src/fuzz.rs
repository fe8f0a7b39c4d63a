//! Runs the fuzz targets for as long as one likes: every test in a module `fuzz` of the packages that use the package of that name.

use anyhow::Context as _;
use cargo_metadata::DependencyKind;
use clap::Parser;

use crate::cargo;

/// The package that the targets stand on, and the module that they are in.
const PACKAGE: &str = "fuzz";
const MARK: &str = "fuzz::";

/// Flags of `cargo xtask fuzz`.
#[derive(Parser)]
pub(crate) struct Args {
    /// Targets whose name has this in it; all if absent. They run one after another.
    target: Option<String>,
    /// How long each target runs.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    minutes: u64,
}

/// Runs the targets. An input that makes a target fail is shown in its smallest form, with what repeats it.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let packages = packages()?;
    let status = cargo::command()
        .args(["test", "--locked"])
        .args(packages.iter().flat_map(|package| ["--package", package]))
        .args(["--lib", "--test", "it", "--no-fail-fast", "--"])
        .arg(args.target.as_deref().unwrap_or(MARK))
        .args(["--nocapture", "--test-threads=1"])
        .env(::fuzz::SECONDS, (args.minutes * 60).to_string())
        .status()
        .context("cannot start cargo")?;
    anyhow::ensure!(status.success(), "a target failed: its output is above");
    Ok(())
}

/// Returns the packages with targets.
fn packages() -> anyhow::Result<Vec<String>> {
    let metadata = cargo_metadata::MetadataCommand::new().no_deps().exec();
    let packages = metadata.context("asking cargo for the packages")?.packages;
    let with_targets = packages.into_iter().filter(|package| {
        let mut dependencies = package.dependencies.iter();
        dependencies.any(|dependency| {
            dependency.name == PACKAGE && dependency.kind == DependencyKind::Development
        })
    });
    Ok(with_targets
        .map(|package| package.name.to_string())
        .collect())
}
