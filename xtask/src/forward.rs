//! Commands that are programs of their own, so that all other commands start without compiling what they need.

use std::ffi::OsString;
use std::process::ExitCode;

use programs::console::note;

use crate::cargo;

/// The command line of such a command.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Builds and runs the program of a package, with these arguments before the given ones. Returns its exit code.
pub(crate) fn run(package: &str, first: &[&str], args: Args) -> ExitCode {
    let mut run = cargo::command();
    run.args(["run", "--quiet", "--locked", "--package", package, "--"])
        .args(first)
        .args(args.arguments);
    match run.status() {
        Ok(status) => status
            .code()
            .and_then(|code| u8::try_from(code).ok())
            .map_or(ExitCode::FAILURE, ExitCode::from),
        Err(error) => {
            note(&format!(
                "error: cannot start cargo run --package {package}: {error}"
            ));
            ExitCode::FAILURE
        }
    }
}
