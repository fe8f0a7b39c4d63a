//! `numaresources-tests`: runs the scenarios on a cluster. Under the names of the testbed's programs it is those, so that an image needs
//! one file for all of them.

use std::process::ExitCode;

fn main() -> ExitCode {
    let argv: Vec<_> = std::env::args_os().collect();
    if testbed::program::is_called(&argv) {
        return testbed::program::main(&argv);
    }
    suite::cli::main()
}
