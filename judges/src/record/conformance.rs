//! `cargo xtask conformance`: runs Kubernetes' own conformance tests against an embedded cluster.

use std::io::Write as _;
use std::path::PathBuf;

use anyhow::{Context as _, ensure};
use cluster_spec::plan::NodePlan;
use fixtures::machines::Machine;
use judges::conformance::{self, Expected, Finished, Outcome, Plan, Verdict};
use programs::console::note;
use programs::kubernetes::{self, SearchPath};
use regex::Regex;
use serde_json::json;
use testbed::cli::print_progress;
use testbed::embedded::{EmbeddedCluster, EmbeddedSpec};

use super::kubelet::build;

/// Number of light nodes. Some tests want two, others spread pods over three.
const NODES: usize = 3;

/// Which tests, and how.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only tests whose name matches this regular expression.
    #[arg(long, value_name = "REGEX")]
    focus: Option<Regex>,
    /// Also those that are listed as not applying, to see whether one passes.
    #[arg(long)]
    all: bool,
    /// How many tests run at the same time, as far as they may.
    #[arg(long, default_value_t = 4)]
    jobs: usize,
    /// Directory for the output of each test and `results.jsonl`, which has a line for each.
    #[arg(long, default_value = "target/conformance", value_name = "DIR")]
    out: PathBuf,
    /// Directory with the Kubernetes programs [default: `KUBEBUILDER_ASSETS`, `PATH`, a cache, or a build]
    #[arg(long, value_name = "DIR")]
    assets: Option<PathBuf>,
}

pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    let expected = Expected::read()?;
    let bin_dir = build()?;
    let search_path = SearchPath::from_environment(args.assets);
    let program = kubernetes::locate_tests(&search_path, &print_progress)?;
    let kubectl = kubernetes::locate(&search_path, &print_progress)?.kubectl;
    let all = conformance::list(&program)?;
    let chosen: Vec<String> = all
        .iter()
        .filter(|test| args.all || expected.of(test) != Some(Verdict::DoesNotApply))
        .filter(|test| args.focus.as_ref().is_none_or(|focus| focus.is_match(test)))
        .cloned()
        .collect();
    ensure!(!chosen.is_empty(), "no test has such a name");
    fs_err::create_dir_all(&args.out)?;
    let results = fs_err::File::create(args.out.join("results.jsonl"))?;
    let state_root = tempfile::tempdir().context("cannot make a temporary directory")?;
    let machine = Machine::named("two-zones").context("there is no such machine")?;
    let spec = EmbeddedSpec {
        light_nodes: NODES,
        ..EmbeddedSpec::new(
            "conformance",
            state_root.path(),
            &bin_dir,
            vec![NodePlan::control_plane(&machine)],
        )
    };
    let runtime = tokio::runtime::Runtime::new().context("cannot start the runtime")?;
    let outcomes = runtime.block_on(async {
        let cluster = Box::pin(EmbeddedCluster::up(spec, &print_progress)).await?;
        let plan = Plan {
            program,
            kubectl,
            kubeconfig: cluster.kubeconfig(),
            outputs: args.out.clone(),
            jobs: args.jobs,
        };
        let report = |finished: &Finished| {
            note(&line(finished));
            if let Err(error) = (&results).write_all(record(finished).as_bytes()) {
                note(&format!("results.jsonl lacks a line: {error}"));
            }
        };
        let outcomes = conformance::run(&plan, &chosen, report).await?;
        cluster.down()?;
        anyhow::Ok(outcomes)
    })?;
    let count = |of: fn(&Outcome) -> bool| outcomes.values().filter(|outcome| of(outcome)).count();
    note(&format!(
        "{} passed, {} failed, {} skipped; {} of {} were not run",
        count(|outcome| matches!(outcome, Outcome::Passed)),
        count(|outcome| matches!(outcome, Outcome::Failed(_))),
        count(|outcome| matches!(outcome, Outcome::Skipped(_))),
        all.len() - outcomes.len(),
        all.len(),
    ));
    let differences = expected.differences(&all, &outcomes);
    ensure!(
        differences.is_empty(),
        "judges/corpus/conformance.yaml says something else:\n{}",
        differences.join("\n")
    );
    Ok(())
}

fn line(finished: &Finished) -> String {
    let seconds = finished.took.as_secs_f64();
    let (test, outcome) = (&finished.test, &finished.outcome);
    match outcome {
        Outcome::Passed => format!("{seconds:6.1} s  passed   {test}"),
        _ => format!(
            "{seconds:6.1} s  {outcome}  {test}  {}",
            finished.output.display()
        ),
    }
}

fn record(finished: &Finished) -> String {
    let (verdict, why) = match &finished.outcome {
        Outcome::Passed => ("passed", ""),
        Outcome::Failed(why) => ("failed", why.as_str()),
        Outcome::Skipped(why) => ("skipped", why.as_str()),
    };
    let value = json!({
        "test": finished.test, "verdict": verdict, "why": why,
        "seconds": finished.took.as_secs_f64(), "output": finished.output,
    });
    format!("{value}\n")
}
