//! The command line of `numaresources-tests`.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand, ValueEnum};
use kube::Client;
use reports::event::SETUP;
use reports::grouped::Grouped;
use reports::junit::Junit;
use reports::stream::Stream;
use reports::summary::Summary;
use reports::terminal::Terminal;
use testbed::cli::{ClusterCommand, NameArgs, PlanArgs, RootArgs, UpArgs};
use testbed::{lane, state};

use crate::interrupt::Interrupt;
use crate::recorder::{Deadlines, Recorder};
use crate::run::{self, Outcome, ReportPaths};
use crate::scenario::Scenario;
use crate::scenarios;
use crate::select::Selection;
use crate::setup::kept::{self, Stack};
use crate::setup::{self, Lane, Options, Partial, allow};

/// Exit code for an invalid command line, the same as that of the original's runner.
const USAGE: u8 = 127;
/// Exit code when something outside the scenarios failed.
const FAILED: u8 = 1;
/// Exit code of a run that was asked twice to stop.
const INTERRUPTED: i32 = 130;

/// Largest number of embedded clusters of a run without `--clusters`.
const MAX_CLUSTERS: usize = 4;
/// Number of scenarios that are worth the set-up of one more cluster.
const MIN_SCENARIOS_PER_CLUSTER: usize = 12;

const EXAMPLES: &str = "\
Examples:
  numaresources-tests --label tier0
      brings up a cluster in this program and runs the release-blocking scenarios on it
  numaresources-tests --label tier0 --cluster local
      the same on a cluster of real Kubernetes parts on this machine
  KUBECONFIG=~/.kube/config numaresources-tests --tier-up-to 1
      runs tiers 0 and 1 on that cluster, which has to be marked as usable for disruptive tests
  numaresources-tests --cluster local --focus 'tmpol/.*-pod$' --verbose
  numaresources-tests cluster up --with-stack
  numaresources-tests --cluster kept tmpol/pend-cpu-cnt
      one scenario on a cluster that is kept with the stack on it, as often as you like: without set-up, programs that changed are built and restarted
  numaresources-tests --list --label 'feature: containsAny {tmpol, unsched} && !slow'

Exit codes: 0 all passed; 1 set-up failed; 2 a scenario failed; 127 usage error; 130 interrupted.
Ctrl-C stops the running scenario, undoes what was changed and reports; a second one ends the program at once.";

/// Runs conformance scenarios of a NUMA-aware scheduling stack on a cluster, one after another.
#[derive(Debug, Parser)]
#[command(name = "numaresources-tests", version, after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    run: RunArgs,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Bring a cluster up or down, or look at it
    Cluster {
        #[command(subcommand)]
        command: Cluster,
    },
    /// Show a recorded run again, from its event log
    Report {
        /// The event log of a run (events.jsonl)
        file: PathBuf,
        /// Also write a JUnit report of it here
        #[arg(long, value_name = "FILE")]
        report_file: Option<PathBuf>,
        /// Show changes and artefacts, too
        #[arg(long)]
        verbose: bool,
    },
    /// Print a completion script for a shell
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
}

/// Bring a cluster up or down, or look at it
#[derive(Debug, Subcommand)]
enum Cluster {
    /// Bring up a cluster that lives until `down`
    Up(ClusterUpArgs),
    /// Bring up a cluster for the time of one command, which finds it by KUBECONFIG
    Run(testbed::cli::RunArgs),
    /// End a cluster and remove everything that it left
    Down(NameArgs),
    /// Tell which clusters there are, and which builds of the stack run on them
    Status(RootArgs),
}

#[derive(Debug, clap::Args)]
struct ClusterUpArgs {
    #[command(flatten)]
    up: UpArgs,
    /// Install the stack, too, and keep it: scenarios then start at once, with `--cluster kept`
    #[arg(long)]
    with_stack: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ClusterKind {
    /// Our own API server and simulated nodes, brought up for the run: no privileges, nothing to install
    Embedded,
    /// Real Kubernetes parts on this machine, brought up for the run
    Local,
    /// The cluster of the kubeconfig file
    Kubeconfig,
    /// The cluster that `cluster up` brought up; with its stack, where that was asked for with `--with-stack`
    Kept,
}

#[derive(Debug, clap::Args)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a switch of the command line"
)]
struct RunArgs {
    /// Ids of the scenarios to run [default: all that the options below select]
    #[arg(value_name = "ID")]
    ids: Vec<String>,

    /// Only scenarios with these labels: && || ! (), /regex/, key: containsAny {a, b}
    #[arg(
        long,
        visible_alias = "label-filter",
        value_name = "EXPRESSION",
        help_heading = "Selection"
    )]
    label: Option<String>,
    /// Only tiers 0 to N
    #[arg(long, value_name = "N", help_heading = "Selection")]
    tier_up_to: Option<u8>,
    /// Only scenarios whose id or title matches
    #[arg(long, value_name = "REGEX", help_heading = "Selection")]
    focus: Option<String>,
    /// No scenarios whose id or title matches
    #[arg(long, value_name = "REGEX", help_heading = "Selection")]
    skip: Option<String>,
    /// Print the selected scenarios with their labels and run nothing
    #[arg(long, help_heading = "Selection")]
    list: bool,
    /// Print what would be done and do nothing
    #[arg(long, help_heading = "Selection")]
    dry_run: bool,

    /// Where to run [default: kubeconfig when KUBECONFIG is set, else embedded]
    #[arg(long, value_enum, help_heading = "Cluster")]
    cluster: Option<ClusterKind>,
    /// Name of the kept cluster [default: default]
    #[arg(long, value_name = "NAME", help_heading = "Cluster")]
    name: Option<String>,
    /// The kubeconfig file
    #[arg(
        long,
        value_name = "FILE",
        env = "KUBECONFIG",
        hide_env_values = true,
        help_heading = "Cluster"
    )]
    kubeconfig: Option<PathBuf>,
    /// Install the stack where it is missing; what was installed is removed at the end
    #[arg(long, help_heading = "Cluster")]
    setup: bool,
    /// Directory of the manifests that install the stack [default: built in]
    #[arg(long, value_name = "DIR", help_heading = "Cluster")]
    manifests: Option<PathBuf>,
    /// Scheduler that test pods name [default: that of the NUMAResourcesScheduler, once it is available]
    #[arg(long, value_name = "NAME", help_heading = "Cluster")]
    scheduler_name: Option<String>,
    /// Directory of our own clusters [default: ~/.local/state/numaresources]
    #[arg(long, value_name = "DIR", help_heading = "Cluster of our own")]
    state_root: Option<PathBuf>,
    /// Clusters to spread the scenarios over; each runs one at a time [default: embedded: 1 for 12 scenarios, at most 2 a processor and 4; local: 1]
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u8).range(1..=16),
        help_heading = "Cluster of our own"
    )]
    clusters: Option<u8>,
    #[command(flatten, next_help_heading = "Cluster of our own")]
    plan: PlanArgs,

    /// The JUnit report [default: nrop/e2e-serial-run.xml below the artefacts directory]
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    report_file: Option<PathBuf>,
    /// Directory for reports, logs and what is collected from failures
    #[arg(
        long,
        value_name = "DIR",
        default_value = "artifacts",
        help_heading = "Output"
    )]
    artifacts: PathBuf,
    /// Show the beginning of each step, every change, and every file that is written
    #[arg(long, short, help_heading = "Output")]
    verbose: bool,
    /// No colours [also with NO_COLOR, and when the output is no terminal]
    #[arg(long, help_heading = "Output")]
    no_color: bool,
    /// Stretch or shorten all time limits by this factor
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = factor, help_heading = "Output")]
    deadline_factor: f64,
}

fn factor(text: &str) -> Result<f64, String> {
    let factor: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if (0.01..=100.0).contains(&factor) {
        Ok(factor)
    } else {
        Err("must be between 0.01 and 100".to_owned())
    }
}

/// Parses the command line and runs it.
pub fn main() -> ExitCode {
    // kube needs one installed provider; a second installation in the same process is an error that changes nothing
    let _ = rustls::crypto::ring::default_provider().install_default();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            return if error.use_stderr() {
                ExitCode::from(USAGE)
            } else {
                ExitCode::SUCCESS
            };
        }
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => return print_error(FAILED, &format!("cannot start: {error}")),
    };
    runtime.block_on(dispatch(cli))
}

async fn dispatch(cli: Cli) -> ExitCode {
    match cli.command {
        None => Box::pin(run_scenarios(cli.run)).await,
        Some(Command::Cluster { command }) => match cluster(command).await {
            Ok(code) => code,
            Err(error) => print_error(FAILED, &format!("{error:#}")),
        },
        Some(Command::Report {
            file,
            report_file,
            verbose,
        }) => report(&file, report_file.as_deref(), verbose),
        Some(Command::Completions { shell }) => {
            clap_complete::generate(
                shell,
                &mut Cli::command(),
                "numaresources-tests",
                &mut std::io::stdout(),
            );
            ExitCode::SUCCESS
        }
    }
}

/// Runs a `cluster` command. `cluster up` also builds the programs of the stack, marks the cluster as usable and installs the stack;
/// `cluster status` also reports on the stack. Everything else is done by the testbed.
async fn cluster(command: Cluster) -> anyhow::Result<ExitCode> {
    match command {
        Cluster::Up(args) => up(args).await,
        Cluster::Run(args) => ClusterCommand::Run(args).run().await,
        Cluster::Down(args) => ClusterCommand::Down(args).run().await,
        Cluster::Status(args) => {
            let text = testbed::cli::status(&args.resolve(), about_stack).await?;
            std::io::stdout().write_all(text.as_bytes())?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

async fn up(args: ClusterUpArgs) -> anyhow::Result<ExitCode> {
    let ClusterUpArgs { mut up, with_stack } = args;
    let progress = |line: &str| {
        let _ = writeln!(std::io::stderr(), "  {line}");
    };
    let bin_dir = crate::binaries::locate(up.plan.bin_dir.as_deref(), progress).await?;
    up.plan.bin_dir = Some(bin_dir.clone());
    let prepare = async |client: Client| {
        let marked = allow(&client).await;
        marked.map_err(|_| anyhow::anyhow!("cannot mark the cluster as usable for tests"))?;
        if with_stack {
            install(&up, &bin_dir).await?;
        }
        Ok(())
    };
    let kubeconfig = up
        .up_detached(&testbed::cli::print_progress, prepare)
        .await?;
    if with_stack {
        let name = match up.name.name.as_str() {
            "default" => String::new(),
            name => format!(" --name {name}"),
        };
        let root = match &up.name.root.state_root {
            None => String::new(),
            Some(root) => format!(" --state-root {}", root.display()),
        };
        progress(&format!(
            "the stack is kept: numaresources-tests --cluster kept{name}{root} ID runs a scenario on it, as does numaresources-tests ID with the \
             line below in the environment"
        ));
    }
    writeln!(
        std::io::stdout(),
        "export KUBECONFIG={}",
        kubeconfig.display()
    )?;
    Ok(ExitCode::SUCCESS)
}

/// Installs the stack on a cluster that was just brought up, and keeps it there.
async fn install(up: &UpArgs, bin_dir: &std::path::Path) -> anyhow::Result<()> {
    let failed = |error: crate::scenario::StepError| {
        anyhow::anyhow!(
            "the stack cannot be installed, the cluster is taken down: {}",
            error.into_failure("set-up")
        )
    };
    let dir = state::dir(&up.name.root.resolve(), &up.name.name);
    Stack::begin(&dir, up.cluster, bin_dir).map_err(failed)?;
    let options = Options {
        lane: Lane::Kubeconfig(dir.join("kubeconfig")),
        plan: up.plan.clone(),
        ..Options::own(up.cluster, &[])?
    };
    let stream = Stream::new(vec![Box::new(Terminal::new(anstream::stderr(), false))]);
    let recorder = Recorder::new(&stream, SETUP);
    let installed = setup::run(&options, &recorder, &mut Partial::default()).await;
    installed.map(drop).map_err(failed)
}

/// Describes for `cluster status` what is kept on a cluster.
async fn about_stack(dir: PathBuf) -> String {
    let kubeconfig = dir.join("kubeconfig");
    match Stack::load(&kubeconfig) {
        Ok(None) => String::new(),
        Ok(Some(stack)) => format!(
            "  {}\n{}",
            kept::availability(&kubeconfig).await,
            stack.describe()
        ),
        Err(error) => format!("  {}\n", error.into_failure("").message),
    }
}

fn report(
    file: &std::path::Path,
    report_file: Option<&std::path::Path>,
    verbose: bool,
) -> ExitCode {
    let records = match reports::log::read(file) {
        Ok(records) => records,
        Err(error) => return print_error(FAILED, &crate::context::chain(&error)),
    };
    let terminal = Terminal::new(anstream::stdout(), verbose);
    reports::log::replay(&records, &mut Grouped::new(terminal));
    let mut summary = Summary::default();
    reports::log::replay(&records, &mut summary);
    if let Some(path) = report_file {
        let mut junit = Junit::new(path, run::SUITE);
        reports::log::replay(&records, &mut junit);
        if let Some(error) = junit.failure() {
            return print_error(FAILED, &crate::context::chain(error));
        }
    }
    let outcome = if summary.interrupted() {
        Outcome::Interrupted
    } else if summary.phase_failure().is_some() {
        Outcome::SetupFailed
    } else if summary.all_passed() {
        Outcome::Passed
    } else {
        Outcome::ScenarioFailed
    };
    ExitCode::from(outcome.exit_code())
}

async fn run_scenarios(args: RunArgs) -> ExitCode {
    if args.no_color {
        anstream::ColorChoice::Never.write_global();
    }
    let scenarios = scenarios::all();
    let selection = Selection {
        ids: args.ids.clone(),
        labels: args.label.clone(),
        tier_up_to: args.tier_up_to,
        focus: args.focus.clone(),
        skip: args.skip.clone(),
    };
    let selected = match selection.apply(&scenarios) {
        Ok(selected) => selected,
        Err(error) => return print_error(USAGE, &error.to_string()),
    };
    let chosen = || {
        scenarios
            .iter()
            .zip(&selected)
            .filter(|(_, selected)| **selected)
            .map(|(scenario, _)| scenario)
    };
    if args.list {
        return list(chosen());
    }
    let options = match options(&args, chosen().count()) {
        Ok(options) => options,
        Err(message) => return print_error(USAGE, &message),
    };
    let paths = ReportPaths::new(&args.artifacts, args.report_file.clone());
    if args.dry_run {
        return dry_run(&options, &paths, chosen());
    }
    let terminal = Grouped::new(Terminal::new(anstream::stdout(), args.verbose));
    let (stream, summary) = match run::stream(&paths, vec![Box::new(terminal)]) {
        Ok(made) => made,
        Err(error) => return print_error(FAILED, &crate::context::chain(&error)),
    };
    let interrupt = Interrupt::default();
    let signals = tokio::spawn(handle_signals(interrupt.clone()));
    let outcome = Box::pin(run::run(
        &options,
        &scenarios,
        &selected,
        &paths,
        &stream,
        &interrupt,
        async |_| Ok(()),
    ))
    .await;
    signals.abort();
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

/// What the command line asks for, with this many scenarios.
fn options(args: &RunArgs, chosen: usize) -> Result<Options, String> {
    let default = if args.kubeconfig.is_some() {
        ClusterKind::Kubeconfig
    } else {
        ClusterKind::Embedded
    };
    let kind = args.cluster.unwrap_or(default);
    if args.name.is_some() && kind != ClusterKind::Kept {
        return Err("--name is the name of a kept cluster: it needs --cluster kept".to_owned());
    }
    let lane = match (kind, &args.kubeconfig) {
        (ClusterKind::Embedded, _) => Lane::Own(lane::Lane::Embedded),
        (ClusterKind::Local, _) => Lane::Own(lane::Lane::Local),
        (ClusterKind::Kubeconfig, Some(path)) => Lane::Kubeconfig(path.clone()),
        (ClusterKind::Kept, _) => Lane::Kubeconfig(kept_kubeconfig(args)?),
        (ClusterKind::Kubeconfig, None) => {
            return Err("--cluster kubeconfig needs KUBECONFIG or --kubeconfig".to_owned());
        }
    };
    let own = matches!(lane, Lane::Own(_));
    if args.clusters.is_some() && !own {
        return Err(
            "--clusters spreads the scenarios over clusters that are brought up for the run: it needs --cluster embedded or local"
                .to_owned(),
        );
    }
    let clusters = args
        .clusters
        .map_or_else(|| default_clusters(&lane, chosen), usize::from);
    if own {
        args.plan.machine().map_err(|error| format!("{error:#}"))?;
    }
    Ok(Options {
        install: args.setup || own,
        lane,
        plan: args.plan.clone(),
        clusters,
        number: 1,
        state_root: args.state_root.clone(),
        manifests: args.manifests.clone(),
        scheduler: args.scheduler_name.clone(),
        deadlines: Deadlines::default().scaled(args.deadline_factor),
        run: run::new_run_id(),
    })
}

/// Returns the number of clusters when no option gives it. The embedded lane has two clusters for each processor, because a scenario spends half of
/// its time waiting, but none that would run fewer than [`MIN_SCENARIOS_PER_CLUSTER`] scenarios: their set-up would cost more. A local cluster keeps all processors busy.
fn default_clusters(lane: &Lane, chosen: usize) -> usize {
    match lane {
        Lane::Own(lane::Lane::Embedded) => {
            let processors = std::thread::available_parallelism().map_or(1, usize::from);
            (2 * processors)
                .min(MAX_CLUSTERS)
                .min(chosen / MIN_SCENARIOS_PER_CLUSTER)
                .max(1)
        }
        Lane::Own(lane::Lane::Local) | Lane::Kubeconfig(_) => 1,
    }
}

/// Returns the kubeconfig of the requested kept cluster.
fn kept_kubeconfig(args: &RunArgs) -> Result<PathBuf, String> {
    let root = args.state_root.clone().unwrap_or_else(state::default_root);
    let name = args.name.as_deref().unwrap_or("default");
    state::find(&root, name).map_err(|error| {
        format!(
            "{}; bring it up: numaresources-tests cluster up --with-stack",
            crate::context::chain(&error)
        )
    })?;
    Ok(state::dir(&root, name).join("kubeconfig"))
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
    let cluster = match &options.lane {
        Lane::Own(lane) => {
            let number = match options.clusters {
                1 => "one".to_owned(),
                number => number.to_string(),
            };
            format!(
                "{number} of our own ({}), brought up for the run",
                lane.name()
            )
        }
        Lane::Kubeconfig(path) => format!("the cluster of {}", path.display()),
    };
    let mut text = format!(
        "Cluster: {cluster}\nReport: {}\nEvents: {}\nScenarios:\n",
        paths.report.display(),
        paths.events().display()
    );
    for scenario in scenarios {
        text.push_str("  ");
        text.push_str(scenario.id);
        text.push('\n');
    }
    let _ = out.write_all(text.as_bytes());
    ExitCode::SUCCESS
}

/// Ends the run properly at the first signal, and the process at the second one.
#[expect(
    clippy::exit,
    reason = "the user asked twice; a local cluster ends with this process"
)]
async fn handle_signals(interrupt: Interrupt) {
    wait_for_signal().await;
    interrupt.request_stop();
    print_error(
        0,
        "stopping: the scenario is interrupted and its changes are undone; once more ends at once",
    );
    wait_for_signal().await;
    std::process::exit(INTERRUPTED);
}

async fn wait_for_signal() {
    use tokio::signal::unix::{SignalKind, signal};
    let Ok(mut terminate) = signal(SignalKind::terminate()) else {
        return std::future::pending().await;
    };
    tokio::select! {
        result = tokio::signal::ctrl_c() => {
            if result.is_err() {
                std::future::pending::<()>().await;
            }
        }
        _ = terminate.recv() => {}
    }
}

fn print_error(code: u8, message: &str) -> ExitCode {
    let _ = writeln!(anstream::stderr(), "numaresources-tests: {message}");
    ExitCode::from(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn ids_and_subcommands_are_told_apart() {
        let cli = Cli::try_parse_from(["x", "tmpol/a", "byres/b", "--verbose"]).expect("ids");
        assert_eq!(cli.run.ids, ["tmpol/a", "byres/b"]);
        let cli = Cli::try_parse_from(["x", "cluster", "status"]).expect("subcommand");
        assert!(matches!(cli.command, Some(Command::Cluster { .. })));
        let cli = Cli::try_parse_from(["x", "--label-filter", "tier0 || tier1"])
            .expect("the original's option");
        assert_eq!(cli.run.label.as_deref(), Some("tier0 || tier1"));
    }

    #[test]
    fn a_factor_is_a_number_within_reason() {
        assert_eq!(factor("0.5"), Ok(0.5));
        assert!(factor("0").is_err() && factor("-1").is_err() && factor("x").is_err());
    }
}
