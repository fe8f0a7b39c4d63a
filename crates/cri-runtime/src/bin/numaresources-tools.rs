//! `numaresources-tools`: the small programs that the stack's own containers run and that people start in them, without any part of a
//! test cluster. The file name says which one it is.

use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;

use cri_runtime::cli::{TOOLS, run_as_tool};

fn main() -> ExitCode {
    let argv: Vec<OsString> = std::env::args_os().collect();
    let outcome = run_as_tool(&argv).unwrap_or_else(|| {
        Err(anyhow::anyhow!(
            "call this program by one of the names {}",
            TOOLS.join(", ")
        ))
    });
    outcome.unwrap_or_else(|error| {
        // standard error is the only place to report to, so an error of it is dropped
        drop(writeln!(std::io::stderr(), "error: {error:#}"));
        ExitCode::FAILURE
    })
}
