//! The helper between a node and a container's process: ties the process to the life of the node, then becomes it.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::Context as _;
use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::unistd::{Pid, getppid};

use crate::node::cli::run_as_program;

/// Arguments of `tied`.
#[derive(Clone, Debug, clap::Args)]
pub struct TiedArgs {
    /// Process that starts this one, by whose end it ends
    #[arg(long)]
    owner: i32,
    /// Program to become
    #[arg(long)]
    program: PathBuf,
    /// Its arguments, its own name first
    #[arg(last = true, required = true)]
    argv: Vec<OsString>,
}

/// Becomes the program; returns only if that failed.
pub fn run(args: &TiedArgs) -> anyhow::Result<ExitCode> {
    prctl::set_pdeathsig(Signal::SIGKILL).context("cannot tie to the owner")?;
    anyhow::ensure!(
        getppid() == Pid::from_raw(args.owner),
        "the owner is gone already"
    );
    // the small programs are in this one: being loaded once more would take longer than all that most of them do
    if is_this(&args.program)
        && let Some(outcome) = run_as_program(&args.argv)
    {
        return outcome;
    }
    let (name, arguments) = args.argv.split_first().context("no program")?;
    let error = Command::new(&args.program)
        .arg0(name)
        .args(arguments)
        .exec();
    Err(error).with_context(|| format!("cannot execute {}", args.program.display()))
}

/// Whether a file is the program that runs here.
fn is_this(program: &Path) -> bool {
    let own = std::env::current_exe();
    own.is_ok_and(|own| fs_err::canonicalize(program).is_ok_and(|program| program == own))
}
