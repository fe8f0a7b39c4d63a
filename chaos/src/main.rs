//! `cargo xtask chaos` and `cargo xtask load`.

use std::path::PathBuf;
use std::pin::pin;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use chaos::plan::Plan;
use chaos::seeds::{self, Seeds};
use chaos::{check, load, recording, run};
use clap::Parser;
use programs::console::note;
use suite::interrupt::{Interrupt, Signals};
use testbed::lane::Lane;

/// The whole stack under churn, faults and load.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
enum Cli {
    /// Drives the stack through churn and faults that a seed decides, and checks what must hold.
    Chaos(Chaos),
    /// Loads the stack for a long time and watches its memory, files, threads and requests.
    Load(Load),
}

/// Flags of `cargo xtask load`.
#[derive(clap::Args)]
struct Load {
    /// How long it lasts.
    #[arg(long, value_name = "M", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..))]
    minutes: u64,
    /// How long it lasts, in hours, in place of minutes: a soak.
    #[arg(long, value_name = "H", conflicts_with = "minutes", value_parser = clap::value_parser!(u64).range(1..))]
    hours: Option<u64>,
    /// Light nodes.
    #[arg(long, value_name = "N", default_value_t = 500)]
    nodes: usize,
    /// Pods that no node can take.
    #[arg(long, value_name = "N", default_value_t = 5_000)]
    pods: usize,
    /// Directory with the programs of the stack, in place of those that are built from the sources.
    #[arg(long, value_name = "DIR")]
    bin_dir: Option<PathBuf>,
    /// Directory for samples and verdict.
    #[arg(long, value_name = "DIR", default_value = "target/load")]
    directory: PathBuf,
}

/// Flags of `cargo xtask chaos`.
#[derive(clap::Args)]
struct Chaos {
    /// The seed: the same one gives the same plan.
    #[arg(long, value_name = "S", required_unless_present_any = ["seeds", "check"])]
    seed: Option<u64>,
    /// Seeds A to B, one after another, in place of one.
    #[arg(long, value_name = "A..B", conflicts_with = "seed")]
    seeds: Option<Seeds>,
    /// How many seeds run at the same time.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    jobs: u16,
    /// How long churn and faults last; the set-up comes before, the settling after.
    #[arg(long, value_name = "M", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..))]
    minutes: u64,
    /// The lane of the cluster; the local one needs Linux and root.
    #[arg(long, value_enum, default_value = "embedded")]
    lane: Lane,
    /// Prints the plan and does nothing.
    #[arg(long)]
    plan: bool,
    /// Checks a recording that is there already, and does nothing else.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["seed", "seeds"])]
    check: Option<PathBuf>,
    /// Directory with the programs of the stack, in place of those that are built from the sources.
    #[arg(long, value_name = "DIR")]
    bin_dir: Option<PathBuf>,
    /// Directory for recordings and reports.
    #[arg(long, value_name = "DIR", default_value = "target/chaos")]
    directory: PathBuf,
}

fn main() -> ExitCode {
    let result = match Cli::parse() {
        Cli::Chaos(args) => chaos(&args),
        Cli::Load(args) => load(&args),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            note(&format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// Runs something to its end. A signal interrupts it, and it then undoes what it did; a second one ends it at once, and its clusters with it.
fn until_signalled<T>(work: impl AsyncFnOnce(Interrupt) -> anyhow::Result<T>) -> anyhow::Result<T> {
    // there is no other default crypto provider
    let _ = rustls::crypto::ring::default_provider().install_default();
    tokio::runtime::Runtime::new()?.block_on(async {
        let mut signals = Signals::listen()?;
        let interrupt = Interrupt::default();
        let mut work = pin!(work(interrupt.clone()));
        tokio::select! {
            result = &mut work => return result,
            () = signals.first() => interrupt.request_stop(),
        }
        note("stopping: what runs is taken down; once more ends at once");
        tokio::select! {
            result = work => result,
            () = signals.second() => bail!("interrupted twice"),
        }
    })
}

/// Returns whether nothing is wrong.
fn chaos(args: &Chaos) -> anyhow::Result<bool> {
    if let Some(file) = &args.check {
        let lines = recording::read(file)?;
        return Ok(tell(&check::recording(&lines)));
    }
    let length = Duration::from_mins(args.minutes);
    if let Some(seeds) = &args.seeds {
        let bad = until_signalled(async |interrupt| {
            seeds::run(seeds, args.jobs.into(), &arguments(args), &interrupt).await
        })?;
        for seed in &bad {
            note(&format!("repeat with: {}", repeat(args, *seed)));
        }
        return Ok(bad.is_empty());
    }
    let seed = args.seed.context("a seed is needed")?;
    if args.plan {
        note(&Plan::draw(seed, length, args.lane).to_string());
        return Ok(true);
    }
    let options = run::Options {
        seed,
        length,
        lane: args.lane,
        bin_dir: args.bin_dir.clone(),
        directory: run::directory_of(&args.directory, args.lane, seed),
    };
    let report = until_signalled(async |interrupt| run::run(&options, &interrupt).await)?;
    let is_good = tell(&report);
    if !is_good {
        note(&format!(
            "the recording is in {}; repeat with: {}",
            options.directory.display(),
            repeat(args, seed)
        ));
    }
    Ok(is_good)
}

/// Returns whether nothing grows.
fn load(args: &Load) -> anyhow::Result<bool> {
    let options = load::Options {
        nodes: args.nodes,
        pods: args.pods,
        length: args
            .hours
            .map_or_else(|| Duration::from_mins(args.minutes), Duration::from_hours),
        bin_dir: args.bin_dir.clone(),
        directory: args.directory.clone(),
    };
    let rows = until_signalled(async |interrupt| load::run(&options, &interrupt).await)?;
    note("| figure | level | largest since | limit | |");
    note("|---|---|---|---|---|");
    for row in &rows {
        note(&row.to_string());
    }
    Ok(rows.iter().all(load::Row::is_met))
}

/// Shows a report. Returns whether nothing is wrong.
fn tell(report: &check::Report) -> bool {
    for text in &report.notes {
        note(text);
    }
    for text in &report.violations {
        note(&format!("VIOLATION: {text}"));
    }
    report.violations.is_empty()
}

/// Returns the arguments of one of many runs, without its seed.
fn arguments(args: &Chaos) -> Vec<String> {
    let mut all = vec![
        "--minutes".to_owned(),
        args.minutes.to_string(),
        "--lane".to_owned(),
        args.lane.name().to_owned(),
        "--directory".to_owned(),
        args.directory.display().to_string(),
    ];
    if let Some(dir) = &args.bin_dir {
        all.extend(["--bin-dir".to_owned(), dir.display().to_string()]);
    }
    all
}

/// Returns the command that repeats a seed.
fn repeat(args: &Chaos, seed: u64) -> String {
    let rest = arguments(args).join(" ");
    format!("cargo xtask chaos --seed {seed} {rest}")
}
