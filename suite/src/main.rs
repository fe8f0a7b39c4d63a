//! `numaresources-tests`: runs the scenarios on a cluster.

use std::process::ExitCode;

fn main() -> ExitCode {
    suite::cli::main()
}
