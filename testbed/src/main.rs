//! The testbed's helper as a standalone program.

use std::process::ExitCode;

fn main() -> ExitCode {
    let argv: Vec<_> = std::env::args_os().collect();
    testbed::program::main(&argv)
}
