//! `numaresources-stack`: most programs of the stack's image in one, because the client of the API server and the objects of the stack are
//! the larger part of each. The image has a link for every name.
//!
//! Scheduler and exporter are not in it: the one is optimised for speed, the other for its memory on every node. Each program also exists
//! alone, by its own package.

use std::ffi::OsString;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

/// Names of must-gather: its own, and the one by which `oc adm must-gather` starts the program of an image.
const MUST_GATHER: [&str; 2] = ["numaresources-must-gather", "gather"];

/// Runs the program that the first argument names by its file name. Any other name is the operator's.
pub fn main(arguments: Vec<OsString>) -> ExitCode {
    let called_as = arguments.first().map(Path::new).and_then(Path::file_name);
    let called_as = called_as.unwrap_or_default().to_string_lossy();
    match &*called_as {
        "deployer" => deployer::run::main(arguments.into_iter()),
        "podresources-proxy" => podresources_proxy(&arguments),
        name if MUST_GATHER.contains(&name) => nrotool::gather::main(&arguments),
        name if nrotool::run::is_name(name) => nrotool::run::main(arguments),
        _ => operator::run::main(arguments),
    }
}

fn podresources_proxy(arguments: &[OsString]) -> ExitCode {
    cri_runtime::cli::run_podresources_proxy(arguments).unwrap_or_else(|error| {
        // standard error is the only place to report to, so an error of it is dropped
        drop(writeln!(std::io::stderr(), "error: {error:#}"));
        ExitCode::FAILURE
    })
}
