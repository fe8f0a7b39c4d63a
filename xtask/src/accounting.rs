//! `cargo xtask accounting`: the accounting test on real kubelets, with enough random pod sequences to be convincing.

use anyhow::{Context as _, ensure};

use crate::cargo;
use crate::test::POD_SEQUENCES;

/// Options of the test.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Sequences of pods, spread over the nodes.
    #[arg(long, default_value_t = 500)]
    sequences: u32,
    /// Repeats the run with this seed.
    #[arg(long)]
    seed: Option<u64>,
}

/// Runs the test and shows all of its output.
///
/// # Errors
/// Returns an error if an NRT is not what machine and state files say, or if the test cannot run. It needs Linux and root.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let seed = args
        .seed
        .map(|seed| ("NUMARESOURCES_SEED", seed.to_string()));
    let status = cargo::command()
        .args(["test", "--locked", "-p", "suite", "--test", "it"])
        .args(["accounting::every_nrt_equals", "--"])
        .args(["--include-ignored", "--nocapture"])
        .env(POD_SEQUENCES, args.sequences.to_string())
        .envs(seed)
        .status()
        .context("starting cargo test")?;
    ensure!(status.success(), "cargo test ended with {status}");
    Ok(())
}
