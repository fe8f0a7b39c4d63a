//! What the program does without a subcommand: it runs the selected scenarios, or lists them.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use rand::SeedableRng as _;
use rand::rngs::Xoshiro256PlusPlus;
use rand::seq::SliceRandom as _;
use reports::grouped::Grouped;
use reports::terminal::Terminal;
use testbed::lane::Lane;

use super::arguments::{ListForm, RunArgs, SourceName};
use super::{FAILED, USAGE, print_error};
use crate::context::chain;
use crate::interrupt::Interrupt;
use crate::kubeconfig::Kubeconfig;
use crate::must_gather;
use crate::recorder::Deadlines;
use crate::run::{self, BeginError, Outcome, ReportPaths, Reports, Run};
use crate::scenario::Scenario;
use crate::scenarios;
use crate::setup::{self, ClusterSource, Options};
use crate::skips::Skips;
use crate::stop;

/// Largest number of embedded clusters of a run without `--clusters`.
const MAX_CLUSTERS: usize = 4;
/// Value of `--must-gather` for a run that collects nothing with it.
const NO_PROGRAM: &str = "none";
/// Number of scenarios that are worth the set-up of one more cluster.
const MIN_SCENARIOS_PER_CLUSTER: usize = 12;

/// Selects the scenarios, brings up what they run on, runs them and reports.
pub(super) async fn run(args: RunArgs) -> ExitCode {
    if args.no_color {
        anstream::ColorChoice::Never.write_global();
    }
    let mut scenarios = scenarios::all();
    if let Some(seed) = args.shuffle {
        scenarios.shuffle(&mut Xoshiro256PlusPlus::seed_from_u64(seed));
    }
    let selected = match args.selection.apply(&scenarios) {
        Ok(selected) => selected,
        Err(error) => return print_error(USAGE, &error.to_string()),
    };
    if let Ok(count @ 1..) = args.selection.left_out_without_tier(&scenarios) {
        print_error(
            0,
            &format!(
                "--tier-up-to leaves out what has no tier, here {count} of the scenarios; --label '!/^tier/' selects these"
            ),
        );
    }
    let chosen = || {
        scenarios
            .iter()
            .zip(&selected)
            .filter(|(_, selected)| **selected)
            .map(|(scenario, _)| scenario)
    };
    match args.list {
        Some(ListForm::Lines) => return list(chosen()),
        Some(ListForm::Markdown) => {
            let page = scenarios::markdown(chosen());
            // a closed pipe ends the list, not the program
            let _ = anstream::stdout().write_all(page.as_bytes());
            return ExitCode::SUCCESS;
        }
        None => {}
    }
    let mut options = match options(&args, chosen().count()) {
        Ok(options) => options,
        Err(message) => return print_error(USAGE, &message),
    };
    let strict = args.strict_skips.as_ref();
    let skips = strict.map(|list| Skips::load(list, &scenarios));
    let skips = match skips.transpose() {
        Ok(skips) => skips,
        Err(error) => return print_error(USAGE, &chain(&error)),
    };
    let paths = ReportPaths::new(&args.artifacts, args.report_file.clone(), &options.run);
    options.ledger = Some(paths.events());
    if args.dry_run {
        return dry_run(&options, &paths, chosen());
    }
    let terminal = Grouped::new(Terminal::new(anstream::stdout(), args.verbose));
    let plan = chosen().map(Scenario::info).collect();
    let Reports {
        stream,
        summary,
        open,
    } = match run::begin(&options, plan, &paths, vec![Box::new(terminal)]) {
        Ok(reports) => reports,
        Err(error) => {
            let code = match error {
                BeginError::Open(_) => USAGE,
                BeginError::Write(_) => FAILED,
            };
            return print_error(code, &format!("{}; nothing was started", chain(&error)));
        }
    };
    let interrupt = Interrupt::default();
    let signals = match stop::on_signals(&interrupt, &open, paths.events()) {
        Ok(signals) => signals,
        Err(error) => return print_error(FAILED, &format!("signals cannot be heard: {error}")),
    };
    if let Some(limit) = args.timeout {
        tokio::spawn(stop_after(limit, interrupt.clone()));
    }
    let run = Run {
        options: &options,
        scenarios: &scenarios,
        selected: &selected,
        skips: skips.as_ref(),
        paths: &paths,
        stream: &stream,
        interrupt: &interrupt,
    };
    let outcome = Box::pin(run::run(&run, async |_| Ok(()))).await;
    signals.abort();
    for failure in stream.failures() {
        print_error(FAILED, &format!("the reports are not complete: {failure}"));
    }
    if outcome == Outcome::ScenarioFailed
        && summary.with(|summary| summary.counts().passed + summary.counts().failed == 0)
    {
        print_error(
            outcome.exit_code(),
            "no scenario could run, so nothing is proven",
        );
    }
    ExitCode::from(outcome.exit_code())
}

/// Stops a run that takes too long.
async fn stop_after(limit: Duration, interrupt: Interrupt) {
    tokio::time::sleep(limit).await;
    print_error(
        FAILED,
        &format!(
            "the run is not over within {} s (--timeout): it is stopped",
            limit.as_secs()
        ),
    );
    interrupt.request_stop();
}

/// What the command line asks for, with this many scenarios.
fn options(args: &RunArgs, chosen: usize) -> Result<Options, String> {
    let kubeconfig = args.kubeconfig.clone().map(Kubeconfig::from);
    let kubeconfig = kubeconfig.or_else(Kubeconfig::from_environment);
    let default = if kubeconfig.is_some() {
        SourceName::Kubeconfig
    } else {
        SourceName::Embedded
    };
    let name = args.cluster.unwrap_or(default);
    if args.name.is_some() && name != SourceName::Kept {
        return Err("--name is the name of a kept cluster: it needs --cluster kept".to_owned());
    }
    let cluster = match (name, kubeconfig.or_else(Kubeconfig::of_pod)) {
        (SourceName::Embedded, _) => ClusterSource::Own(Lane::Embedded),
        (SourceName::Local, _) => ClusterSource::Own(Lane::Local),
        (SourceName::Kubeconfig, Some(kubeconfig)) => ClusterSource::Kubeconfig(kubeconfig),
        (SourceName::Kept, _) => ClusterSource::Kubeconfig(kept_kubeconfig(args)?.into()),
        (SourceName::Kubeconfig, None) => {
            return Err(
                "--cluster kubeconfig needs KUBECONFIG or --kubeconfig, or has to run in a pod"
                    .to_owned(),
            );
        }
    };
    let own = matches!(cluster, ClusterSource::Own(_));
    if args.clusters.is_some() && !own {
        return Err(
            "--clusters spreads the scenarios over clusters that are brought up for the run: it needs --cluster embedded or local"
                .to_owned(),
        );
    }
    let clusters = args
        .clusters
        .map_or_else(|| default_clusters(&cluster, chosen), usize::from);
    if own {
        args.plan.machine().map_err(|error| format!("{error:#}"))?;
    }
    Ok(Options {
        install: args.setup || own,
        cluster,
        plan: args.plan.clone(),
        clusters,
        number: 1,
        state_root: args.state_root.clone(),
        manifests: args.manifests.clone(),
        scheduler: args.scheduler_name.clone(),
        deadlines: Deadlines::default().scaled(args.deadline_factor),
        run: setup::new_run_id(),
        ledger: None,
        seed: args.shuffle,
        must_gather: match &args.must_gather {
            Some(program) if program.as_os_str() == NO_PROGRAM => None,
            Some(program) => Some(program.clone()),
            None => must_gather::find(args.plan.bin_dir.as_deref()),
        },
    })
}

/// Returns the number of clusters when no option gives it. The embedded lane has two clusters for each processor, because a scenario spends half of
/// its time waiting, but none that would run fewer than [`MIN_SCENARIOS_PER_CLUSTER`] scenarios: their set-up would cost more. A local cluster keeps all processors busy.
fn default_clusters(source: &ClusterSource, chosen: usize) -> usize {
    match source {
        ClusterSource::Own(Lane::Embedded) => {
            let processors = std::thread::available_parallelism().map_or(1, usize::from);
            (2 * processors)
                .min(MAX_CLUSTERS)
                .min(chosen / MIN_SCENARIOS_PER_CLUSTER)
                .max(1)
        }
        ClusterSource::Own(Lane::Local) | ClusterSource::Kubeconfig(_) => 1,
    }
}

/// Returns the kubeconfig of the requested kept cluster.
fn kept_kubeconfig(args: &RunArgs) -> Result<PathBuf, String> {
    let root = args
        .state_root
        .clone()
        .unwrap_or_else(cluster_state::default_root);
    let name = args.name.as_deref().unwrap_or("default");
    cluster_state::find(&root, name).map_err(|error| {
        format!(
            "{}; bring it up: numaresources-tests cluster up --with-stack",
            chain(&error)
        )
    })?;
    Ok(cluster_state::dir(&root, name).join("kubeconfig"))
}

fn list<'a>(scenarios: impl Iterator<Item = &'a Scenario>) -> ExitCode {
    let mut out = anstream::stdout();
    for scenario in scenarios {
        // a closed pipe ends the list, not the program
        if writeln!(
            out,
            "{}\t{}\t{}",
            scenario.id,
            scenario.labels.join(","),
            scenario.title
        )
        .is_err()
        {
            break;
        }
    }
    ExitCode::SUCCESS
}

fn dry_run<'a>(
    options: &Options,
    paths: &ReportPaths,
    scenarios: impl Iterator<Item = &'a Scenario>,
) -> ExitCode {
    let mut out = anstream::stdout();
    let cluster = match &options.cluster {
        ClusterSource::Own(lane) => {
            let number = match options.clusters {
                1 => "one".to_owned(),
                number => number.to_string(),
            };
            format!(
                "{number} of our own ({}), brought up for the run",
                lane.name()
            )
        }
        ClusterSource::Kubeconfig(kubeconfig) => format!("that of the {kubeconfig}"),
    };
    let mut text = format!(
        "Cluster: {cluster}\nReport: {}\nEvents: {}\nScenarios:\n",
        paths.report.display(),
        paths.latest_events().display()
    );
    for scenario in scenarios {
        text.push_str("  ");
        text.push_str(scenario.id);
        text.push('\n');
    }
    let _ = out.write_all(text.as_bytes());
    ExitCode::SUCCESS
}
