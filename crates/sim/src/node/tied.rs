//! The helper between a node and a container's process: it ties the process to the life of the node and then becomes the program.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::Context as _;
use cri_runtime::cli::run_as_program;
use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::unistd::{Pid, getppid};

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

/// Becomes the program; returns only if that fails, or if the program is part of this one.
pub fn run(args: &TiedArgs) -> anyhow::Result<ExitCode> {
    prctl::set_pdeathsig(Signal::SIGKILL).context("cannot set the parent-death signal")?;
    anyhow::ensure!(
        getppid() == Pid::from_raw(args.owner),
        "the owner is gone already"
    );
    // Small programs are built into this one. Running them directly avoids a second load, which takes longer than most of them run.
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

/// Returns whether a file is the program that runs now.
fn is_this(program: &Path) -> bool {
    let own = std::env::current_exe();
    own.is_ok_and(|own| fs_err::canonicalize(program).is_ok_and(|program| program == own))
}
