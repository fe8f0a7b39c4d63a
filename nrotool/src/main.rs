//! The tools, as subcommands of one program or each by its own name.

use std::process::ExitCode;

fn main() -> ExitCode {
    nrotool::run::main(std::env::args_os().collect())
}
