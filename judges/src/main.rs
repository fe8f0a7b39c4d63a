//! `cargo xtask record`: records the behaviour of the real parts of Kubernetes, for the tests that compare ours with it.

use std::process::ExitCode;

use clap::Parser;
use programs::console::note;

mod record;

fn main() -> ExitCode {
    match record::run(record::Command::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            note(&format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}
