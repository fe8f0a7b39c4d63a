//! Commands that are programs of their own, so that all other commands start without compiling what they need.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::ExitCode;

use programs::console::note;

use crate::cargo;

/// The command line of such a command.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Builds the program of a package and becomes it, with these arguments before the given ones: signals then reach it and not a parent that would
/// leave it. Returns only if that fails.
pub(crate) fn run(package: &str, first: &[&str], args: Args) -> ExitCode {
    let mut run = cargo::command();
    run.args(["run", "--quiet", "--locked", "--package", package, "--"])
        .args(first)
        .args(args.arguments);
    let error = run.exec();
    note(&format!(
        "error: cannot start cargo run --package {package}: {error}"
    ));
    ExitCode::FAILURE
}
