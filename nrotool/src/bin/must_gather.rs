//! Collects what somebody needs who looks into a cluster from afar.

use std::process::ExitCode;

fn main() -> ExitCode {
    nrotool::gather::main(&std::env::args_os().collect::<Vec<_>>())
}
