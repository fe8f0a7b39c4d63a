//! The command line of `numaresources-tests`.
//!
//! Reading order: `arguments` (what can be said), `run` (what the program does without a subcommand), `cluster`, `cleanup`, `report` and `sidecar` (the
//! subcommands).

mod arguments;
mod cleanup;
mod cluster;
mod report;
mod run;
mod sidecar;

use std::io::Write as _;
use std::process::ExitCode;

use arguments::{Cli, Command};
use clap::{CommandFactory as _, Parser as _};

/// Exit code for an invalid command line, the same as that of the original's runner.
const USAGE: u8 = 127;
/// Exit code when something outside the scenarios failed.
const FAILED: u8 = 1;

/// Parses the command line and runs it.
pub fn main() -> ExitCode {
    // kube needs one installed provider; a second installation in the same process is an error that changes nothing
    let _ = rustls::crypto::ring::default_provider().install_default();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            return if error.use_stderr() {
                ExitCode::from(USAGE)
            } else {
                ExitCode::SUCCESS
            };
        }
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => return print_error(FAILED, &format!("cannot start: {error}")),
    };
    runtime.block_on(dispatch(cli))
}

async fn dispatch(cli: Cli) -> ExitCode {
    match cli.command {
        None => Box::pin(run::run(cli.run)).await,
        Some(Command::Cluster { command }) => match cluster::run(command).await {
            Ok(code) => code,
            Err(error) => print_error(FAILED, &format!("{error:#}")),
        },
        Some(Command::Cleanup(args)) => Box::pin(cleanup::run(args)).await,
        Some(Command::Report {
            file,
            report_file,
            verbose,
        }) => report::show(&file, report_file.as_deref(), verbose),
        Some(Command::Sidecar { file }) => match sidecar::run(&file).await {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => print_error(FAILED, &format!("{error:#}")),
        },
        Some(Command::Completions { shell }) => {
            clap_complete::generate(
                shell,
                &mut Cli::command(),
                "numaresources-tests",
                &mut std::io::stdout(),
            );
            ExitCode::SUCCESS
        }
    }
}

fn print_error(code: u8, message: &str) -> ExitCode {
    let _ = writeln!(anstream::stderr(), "numaresources-tests: {message}");
    ExitCode::from(code)
}
