//! The deployer's program.

use std::process::ExitCode;

fn main() -> ExitCode {
    deployer::run::main(std::env::args_os())
}
