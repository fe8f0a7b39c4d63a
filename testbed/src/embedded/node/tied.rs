//! The helper between a node and a container's process: ties the process to the life of the node, then becomes it.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::Context as _;
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

/// Becomes the program; returns only if that failed.
pub fn run(args: &TiedArgs) -> anyhow::Result<ExitCode> {
    prctl::set_pdeathsig(Signal::SIGKILL).context("cannot tie to the owner")?;
    anyhow::ensure!(
        getppid() == Pid::from_raw(args.owner),
        "the owner is gone already"
    );
    let (name, arguments) = args.argv.split_first().context("no program")?;
    let error = Command::new(&args.program)
        .arg0(name)
        .args(arguments)
        .exec();
    Err(error).with_context(|| format!("cannot execute {}", args.program.display()))
}
