//! The helper of the testbed as a program of its own.

use std::process::ExitCode;

fn main() -> ExitCode {
    let argv: Vec<_> = std::env::args_os().collect();
    testbed::program::main(&argv)
}
