//! Sequences for the kubelet model.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use testbed::cli::print_progress;
use testbed::kubelet::record::{self, Plan};
use testbed::local::assets::{self, Places};

/// What to record, and where.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Sequences for each of the 60 configurations.
    #[arg(long, default_value_t = 10)]
    sequences: u64,
    /// Seed of the first sequence; files of other seeds stay.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// No sequence begins after this many minutes.
    #[arg(long, default_value_t = 60)]
    minutes: u64,
    /// Only configurations whose name contains this.
    #[arg(long)]
    only: Option<String>,
    /// Directory of the corpus.
    #[arg(long, default_value = "testbed/corpus/kubelet")]
    out: PathBuf,
    /// Directory of the cluster [default: a temporary one]
    #[arg(long)]
    state_root: Option<PathBuf>,
}

pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    let program = std::env::current_exe().context("cannot find this program")?;
    let bin_dir = program.parent().context("this program has no directory")?;
    let temporary = tempfile::tempdir().context("cannot make a temporary directory")?;
    let plan = Plan {
        state_root: args
            .state_root
            .unwrap_or_else(|| temporary.path().to_owned()),
        assets: assets::locate(&Places::from_environment(None), &print_progress)?,
        bin_dir: bin_dir.to_owned(),
        out: args.out,
        sequences: args.sequences,
        seed: args.seed,
        limit: Duration::from_secs(args.minutes * 60),
        only: args.only,
    };
    let runtime = tokio::runtime::Runtime::new().context("cannot start the runtime")?;
    let count = runtime.block_on(record::record(plan, &print_progress))?;
    print_progress(testbed::local::Progress::Note(format!(
        "recorded {count} sequences"
    )));
    Ok(())
}
