//! `numaresources-tests`: runs the scenarios on a cluster. When called by the name of a testbed program it is that program, so that an
//! image needs only one file for all of them. When called by the test target `suite` it has libtest's command line.

use std::process::ExitCode;

fn main() -> ExitCode {
    let argv: Vec<_> = std::env::args_os().collect();
    if testbed::program::is_called(&argv) {
        return testbed::program::main(&argv);
    }
    if let Some((artifacts, argv)) = suite::libtest::called_with(&argv) {
        return suite::libtest::main(&artifacts, argv);
    }
    suite::cli::main()
}
