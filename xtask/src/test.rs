//! README's test command: builds every test of the workspace, runs tests that use the processor beside tests that wait, and reports what
//! took long, what failed and what was left out.
//!
//! Each test of an integration binary runs in its own process, so that tests of several binaries share the machine and each has its own
//! time, limit and output. The many short tests of a library run in one process.

use std::io::Write as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use cluster_spec::progress::Progress;
use programs::console::note;
use programs::kubernetes::{self, SearchPath};
use programs::registry;

use crate::{cargo, image};

mod history;
mod idle;
mod job;
mod output;
mod plan;
mod process;
mod report;
mod run;
mod targets;

use history::History;
use idle::Since;
use plan::{Level, Selection};
use report::Report;

/// Environment variable with the number of random pod sequences of the accounting test. Beside all other tests a small number is enough,
/// because each run has another seed; `cargo xtask accounting` runs many.
pub(crate) const POD_SEQUENCES: &str = "NUMARESOURCES_POD_SEQUENCES";

/// Environment variable with the directory of the programs under test (`suite::binaries::BIN_DIR`), so that no test builds them again.
const BIN_DIR: &str = "NUMARESOURCES_BIN_DIR";

/// Environment variable that makes a skip that is not listed a failure (`suite::skips::VARIABLE`).
const STRICT_SKIPS: &str = "NUMARESOURCES_STRICT_SKIPS";

/// What to run, and how.
#[derive(Clone, Debug, clap::Args)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a switch of the command line"
)]
pub(crate) struct Args {
    /// Only tests with one of these in `package/target/test` [default: all]
    #[arg(value_name = "FILTER")]
    filters: Vec<String>,
    /// Also what needs root, Go and the real Kubernetes programs, as CI does
    #[arg(long)]
    real: bool,
    /// Also what CI leaves out because it takes long
    #[arg(long)]
    all: bool,
    /// Print the selected tests and run none
    #[arg(long)]
    list: bool,
    /// Runs everything selected N times
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    repeat: u32,
    /// Runs each test in a process of its own, in random order; a seed repeats an order
    #[arg(long, value_name = "SEED", num_args = 0..=1, default_missing_value = "random")]
    shuffle: Option<String>,
    /// Processors to use [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,
    /// Prints a line for each passed test of a library, too
    #[arg(long, short)]
    verbose: bool,
}

impl Args {
    fn level(&self) -> Level {
        if self.all {
            Level::All
        } else if self.real {
            Level::Real
        } else {
            Level::Plain
        }
    }

    /// Returns the seed of the order, if the order is random.
    fn seed(&self) -> anyhow::Result<Option<u64>> {
        match self.shuffle.as_deref() {
            None => Ok(None),
            // any number is suitable, because it is printed
            Some("random") => Ok(Some(u64::from(std::process::id()))),
            Some(text) => text
                .parse()
                .map(Some)
                .with_context(|| format!("--shuffle {text:?} is no seed: a seed is a number")),
        }
    }
}

/// Builds the workspace, runs the selected tests and prints `tests: N passed, N failed` last.
///
/// # Errors
/// Returns an error if a test fails, no test ran, the build fails, or the Kubernetes programs or the image registry can be neither found nor built.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let level = args.level();
    let seed = args.seed()?;
    if level > Level::Plain {
        // before the tests, so that a build of several minutes shows its progress instead of looking like a hanging test
        let report = |progress: Progress| note(&progress.to_string());
        kubernetes::locate(&SearchPath::from_environment(None), &report)
            .context("looking for the Kubernetes programs")?;
        registry::locate(None, &report).context("looking for the image registry")?;
    }
    let begun = Instant::now();
    let target_dir = cargo::target_dir()?;
    let binaries = targets::build()?;
    let built = begun.elapsed();
    let selection = Selection {
        level,
        filters: args.filters.clone(),
    };
    let mut tests = targets::list(&binaries)?;
    let left_out = selection.apply(&mut tests);
    if args.list {
        let mut out = std::io::stdout().lock();
        for test in &tests {
            writeln!(out, "{}", test.id())?;
        }
        return Ok(());
    }
    let history_file = target_dir.join("tests").join("times.json");
    let mut history = History::read(&history_file);
    let mut jobs = job::cut(
        &tests,
        seed.is_some(),
        args.filters.is_empty(),
        args.repeat,
        &history,
    );
    if let Some(seed) = seed {
        note(&format!("order: --shuffle {seed}"));
        job::shuffle(&mut jobs, seed);
    }
    let environment = environment(target_dir.join("debug"));
    let mut report = Report::new(&jobs, args.verbose, built);
    let capacity = args.jobs.map_or_else(processors, f64::from);
    let watched = Since::now();
    let interrupted = run::all(jobs, capacity, &environment, |done| {
        // a failed job may have ended early, or waited until its limit
        if !done.failed() {
            history.record(&done.job.id, done.ended.wall, done.ended.processor);
        }
        report.add(done);
    })?;
    let idle = watched.idle();
    history.write(&history_file);
    // a build with other settings, which takes as long as the tests, so it is left out when only some of them are selected
    let measures = level == Level::All && args.filters.is_empty() && !interrupted;
    let size = measures.then(image::measure);
    let totals = report.close(&left_out, begun.elapsed(), idle);
    if interrupted {
        bail!("interrupted");
    }
    if totals.failed > 0 {
        bail!("{} of {} tests failed", totals.failed, totals.all());
    }
    if totals.passed == 0 {
        bail!("no test ran");
    }
    size.unwrap_or(Ok(()))
}

/// Returns the variables that the environment of the tests has in addition.
fn environment(programs: PathBuf) -> Vec<(&'static str, std::ffi::OsString)> {
    let mut environment = vec![
        (BIN_DIR, programs.into_os_string()),
        (STRICT_SKIPS, "built-in".into()),
        ("CARGO", cargo::program().into_os_string()),
    ];
    if std::env::var_os(POD_SEQUENCES).is_none() {
        environment.push((POD_SEQUENCES, "30".into()));
    }
    environment
}

fn processors() -> f64 {
    std::thread::available_parallelism().map_or(1.0, |count| {
        f64::from(u32::try_from(count.get()).unwrap_or(1))
    })
}

/// Formats seconds with one decimal.
fn seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}
