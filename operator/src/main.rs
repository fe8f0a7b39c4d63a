//! The operator, and, under the exporter's name, the exporter.

use std::process::ExitCode;

fn main() -> ExitCode {
    operator::run::main(std::env::args_os().collect())
}
