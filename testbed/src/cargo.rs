//! How programs of this workspace start cargo.

use std::path::PathBuf;
use std::process::Command;

/// What cargo tells a program that it runs about the program's package. A cargo that is started by that program must not see it: build
/// scripts that look at it (ring's does) would run again, and all that depends on them would be compiled again.
const OF_A_PACKAGE: [&str; 4] = [
    "CARGO_BIN_",
    "CARGO_CRATE_",
    "CARGO_MANIFEST_",
    "CARGO_PKG_",
];

/// The cargo that runs this program, or the one on the `PATH`.
pub fn program() -> PathBuf {
    std::env::var_os("CARGO").map_or_else(|| PathBuf::from("cargo"), PathBuf::from)
}

/// A command of cargo, as if somebody typed it.
pub fn command() -> Command {
    let mut command = Command::new(program());
    without_package(&mut command);
    command
}

/// Takes from a command's environment what cargo told this program about its own package.
pub fn without_package(command: &mut Command) -> &mut Command {
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
