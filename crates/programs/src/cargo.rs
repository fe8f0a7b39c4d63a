//! How programs of this workspace start cargo.

use std::path::PathBuf;
use std::process::Command;

/// Prefixes of the variables by which cargo describes a package to the program that it runs. A cargo that this program starts must not see
/// them: build scripts that read them (ring's does) would run again, and everything that depends on those packages would be compiled again.
const PACKAGE_VARIABLE_PREFIXES: [&str; 4] = [
    "CARGO_BIN_",
    "CARGO_CRATE_",
    "CARGO_MANIFEST_",
    "CARGO_PKG_",
];

/// Why a build failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Cargo could not be started.
    #[error("cannot start cargo build")]
    Start(#[from] std::io::Error),
    /// The build failed; cargo has told why.
    #[error("cargo build {0} failed")]
    Failed(String),
}

/// Runs `cargo build` with these arguments, and with the versions in `Cargo.lock` as they are.
pub fn build(arguments: &[&str]) -> Result<(), Error> {
    let status = command()
        .args(["build", "--locked"])
        .args(arguments)
        .status()?;
    if status.success() {
        Ok(())
    } else {
        Err(Error::Failed(arguments.join(" ")))
    }
}

/// Returns the cargo that runs this program, or the one on the `PATH`.
pub fn program() -> PathBuf {
    std::env::var_os("CARGO").map_or_else(|| PathBuf::from("cargo"), PathBuf::from)
}

/// Returns a cargo command with the environment of one typed in a shell.
pub fn command() -> Command {
    let mut command = Command::new(program());
    without_package(&mut command);
    command
}

/// Removes from a command's environment what cargo says about this program's own package.
pub fn without_package(command: &mut Command) -> &mut Command {
    for (name, _) in std::env::vars_os() {
        let is_of_package = name.to_str().is_some_and(|name| {
            PACKAGE_VARIABLE_PREFIXES
                .iter()
                .any(|prefix| name.starts_with(prefix))
        });
        if is_of_package {
            command.env_remove(name);
        }
    }
    command
}
