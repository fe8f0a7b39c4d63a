//! The exporter as a separate binary; see the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    rte::entry(std::env::args_os())
}
