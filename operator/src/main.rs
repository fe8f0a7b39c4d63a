//! The operator. Started under the exporter's name, it is the exporter.

use std::process::ExitCode;

fn main() -> ExitCode {
    operator::run::main(std::env::args_os().collect())
}
