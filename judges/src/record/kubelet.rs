//! Records sequences for the kubelet model.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, bail};
use cluster_spec::progress::Progress;
use judges::kubelet::record::{self, Outcome, Plan};
use judges::kubelet::{configurations, corpus, replay};
use programs::cargo;
use programs::kubernetes::{self, SearchPath};
use testbed::cli::print_progress;

/// What to record, and where.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Sequences for each configuration.
    #[arg(long, default_value_t = 10)]
    sequences: u64,
    /// Seed of the first sequence; files of other seeds stay [default: 1, with --check one from the clock]
    #[arg(long)]
    seed: Option<u64>,
    /// No sequence begins after this many minutes.
    #[arg(long, default_value_t = 60)]
    minutes: u64,
    /// Only configurations whose name contains this.
    #[arg(long)]
    only: Option<String>,
    /// Directory of the corpus.
    #[arg(long, default_value = "judges/corpus/kubelet")]
    out: PathBuf,
    /// Directory of the cluster [default: a temporary one]
    #[arg(long)]
    state_root: Option<PathBuf>,
    /// Runs 50 sequences of some configurations on real kubelets and compares them with the model; writes nothing.
    #[arg(long, conflicts_with_all = ["sequences", "only", "minutes", "replay"])]
    check: bool,
    /// Records nothing: compares what is there with the model and shows every difference.
    #[arg(long)]
    replay: bool,
}

pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    if args.replay {
        return replay(&args.out, args.only.as_deref());
    }
    let bin_dir = build()?;
    let temporary = tempfile::tempdir().context("cannot make a temporary directory")?;
    let state_root = args
        .state_root
        .unwrap_or_else(|| temporary.path().to_owned());
    let assets = kubernetes::locate(&SearchPath::from_environment(None), &print_progress)?;
    let plan = if args.check {
        let clock = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
        let seed = args.seed.unwrap_or(clock.as_secs() % 1_000_000);
        note(format!("seed {seed}"));
        Plan::fresh(seed, state_root, assets, bin_dir)?
    } else {
        let mut configurations = configurations::all()?;
        for (_, list) in &mut configurations {
            let only = args.only.as_deref();
            list.retain(|(name, _)| only.is_none_or(|only| name.contains(only)));
        }
        configurations.retain(|(_, list)| !list.is_empty());
        if configurations.is_empty() {
            bail!("no configuration has such a name");
        }
        std::fs::create_dir_all(&args.out)
            .with_context(|| format!("cannot make {}", args.out.display()))?;
        Plan {
            state_root,
            assets,
            bin_dir,
            configurations,
            out: Some(args.out),
            sequences: args.sequences,
            seed: args.seed.unwrap_or(1),
            limit: Duration::from_secs(args.minutes * 60),
        }
    };
    let runtime = tokio::runtime::Runtime::new().context("cannot start the runtime")?;
    let outcome = runtime.block_on(record::record(plan, &print_progress))?;
    conclude(&outcome)
}

fn note(text: String) {
    print_progress(Progress::Note(text));
}

fn conclude(outcome: &Outcome) -> anyhow::Result<()> {
    let made = &outcome.composition;
    note(format!(
        "{} sequences of {} configurations: {} with a refusal, {} with deletions, {} with a restart, {} with a preemption; {} \
         files were complete before",
        made.sequences,
        made.configurations.len(),
        made.with_refusal,
        made.with_deletion,
        made.with_restart,
        made.with_preemption,
        outcome.kept,
    ));
    for (name, difference) in &outcome.differences {
        note(format!("{name}: {difference}"));
    }
    for (name, why) in &outcome.failures {
        note(format!("{name} could not be recorded: {why}"));
    }
    match (outcome.differences.len(), outcome.failures.len()) {
        (0, 0) => Ok(()),
        (0, failures) => {
            bail!("{failures} configurations could not be recorded: run again for the rest")
        }
        (differences, _) => {
            bail!("the model differs from real kubelets in {differences} sequences")
        }
    }
}

/// Builds the program for the cluster's inner processes. Returns its directory.
pub(super) fn build() -> anyhow::Result<PathBuf> {
    cargo::build(&["-q", "-p", "testbed"])?;
    let program = std::env::current_exe().context("cannot find this program")?;
    let directory = program.parent().context("this program has no directory")?;
    Ok(directory.to_owned())
}

fn replay(corpus: &Path, only: Option<&str>) -> anyhow::Result<()> {
    let mut outcome = Outcome::default();
    let mut paths = std::fs::read_dir(corpus)
        .with_context(|| format!("cannot read {}", corpus.display()))?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<Vec<_>, _>>()?;
    paths.sort();
    for path in paths {
        if only.is_some_and(|only| !path.to_string_lossy().contains(only)) {
            continue;
        }
        let damaged = || format!("cannot use {}", path.display());
        let (configuration, sequences) = corpus::read(&path).with_context(damaged)?;
        let found = replay::replay(&configuration, &sequences).with_context(damaged)?;
        outcome.composition.add(&configuration, &sequences);
        outcome.differences.extend(
            found
                .into_iter()
                .map(|difference| (configuration.name.clone(), difference)),
        );
    }
    conclude(&outcome)
}
