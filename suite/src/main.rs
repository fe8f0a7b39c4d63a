//! `numaresources-tests`: runs the scenarios on a cluster. When called by the name of a testbed program it is that program, so that an
//! image needs only one file for all of them.

use std::process::ExitCode;

fn main() -> ExitCode {
    let argv: Vec<_> = std::env::args_os().collect();
    if testbed::program::is_called(&argv) {
        return testbed::program::main(&argv);
    }
    suite::cli::main()
}
