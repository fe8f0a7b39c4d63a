//! The exporter as a binary of its own; see the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    rte::entry(std::env::args_os())
}
