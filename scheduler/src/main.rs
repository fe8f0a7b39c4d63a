//! The secondary scheduler as a program.

use std::process::ExitCode;

fn main() -> ExitCode {
    scheduler::run::main(std::env::args_os())
}
