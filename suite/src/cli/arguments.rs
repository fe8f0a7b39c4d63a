//! The arguments of `numaresources-tests`, and its help text.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};
use goflags::GoDuration;
use testbed::cli::{NameArgs, PlanArgs, RootArgs, UpArgs};
use uuid::Uuid;

use crate::select::Selection;
use crate::skips;

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

Exit codes: 0 all passed; 1 set-up failed, a report cannot be written, or unexpected skips (--strict-skips); 2 a scenario failed; 127 usage error; 130 interrupted.
Ctrl-C stops the running scenario, undoes what was changed and reports; a second one ends the program at once, and says what is left.
`numaresources-tests cleanup` puts a cluster back that a killed run left behind.";

/// Value of `--shuffle` without a seed.
const ANY_SEED: &str = "random";

/// What `--version` prints after the program's name.
const BUILD: &str = goflags::build_line!();

/// Runs conformance scenarios of a NUMA-aware scheduling stack on a cluster, one after another.
#[derive(Debug, Parser)]
#[command(name = "numaresources-tests", version = BUILD, after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub(super) struct Cli {
    #[command(subcommand)]
    pub(super) command: Option<Command>,
    #[command(flatten)]
    pub(super) run: RunArgs,
}

/// What is done instead of a run.
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Bring a cluster up or down, or look at it
    Cluster {
        #[command(subcommand)]
        command: Cluster,
    },
    /// Put a cluster back on which a run ended without undoing its changes, as when it was killed
    Cleanup(CleanupArgs),
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
    /// Wait for SIGTERM, then print a report: as a sidecar of a Job in a cluster it puts the report into its log, which stays
    Sidecar {
        /// The report
        file: PathBuf,
    },
    /// Print a completion script for a shell
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
}

/// Which run's changes are undone.
#[derive(Debug, clap::Args)]
pub(super) struct CleanupArgs {
    /// Identity of the run [default: every run below the artefacts directory that left something]
    #[arg(long, value_name = "ID", conflicts_with = "events")]
    pub(super) run: Option<String>,
    /// The event log of the run
    #[arg(long, value_name = "FILE")]
    pub(super) events: Option<PathBuf>,
    /// The artefacts directory of the run
    #[arg(long, value_name = "DIR", default_value = "artifacts")]
    pub(super) artifacts: PathBuf,
    /// The kubeconfig file of the cluster [default: that of the run, else KUBECONFIG]
    #[arg(long, value_name = "FILE")]
    pub(super) kubeconfig: Option<PathBuf>,
}

/// Bring a cluster up or down, or look at it
#[derive(Debug, Subcommand)]
pub(super) enum Cluster {
    /// Bring up a cluster that lives until `down`
    Up(ClusterUpArgs),
    /// Bring up a cluster for the time of one command, which finds it by KUBECONFIG
    Run(testbed::cli::RunArgs),
    /// End a cluster and remove everything that it left
    Down(NameArgs),
    /// Tell which clusters there are, and which builds of the stack run on them
    Status(RootArgs),
}

/// How a cluster is brought up that stays.
#[derive(Debug, clap::Args)]
pub(super) struct ClusterUpArgs {
    #[command(flatten)]
    pub(super) up: UpArgs,
    /// Install the stack, too, and keep it: scenarios then start at once, with `--cluster kept`
    #[arg(long)]
    pub(super) with_stack: bool,
    /// Bring up nothing: print the configuration of a kind cluster with the same workers, and write what its nodes mount to DIR
    #[arg(
        long,
        value_name = "DIR",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "kind",
        conflicts_with_all = ["with_stack", "cluster", "assets", "light_nodes", "bin_dir", "flavour", "schedulable_control_plane", "strict"]
    )]
    pub(super) print_kind_config: Option<PathBuf>,
}

/// What `--cluster` names: a [`ClusterSource`](crate::setup::ClusterSource) without its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum SourceName {
    /// Our own API server and simulated nodes, brought up for the run: no privileges, nothing to install
    Embedded,
    /// Real Kubernetes parts on this machine, brought up for the run
    Local,
    /// The cluster of the kubeconfig file
    Kubeconfig,
    /// The cluster that `cluster up` brought up; with its stack, where that was asked for with `--with-stack`
    Kept,
}

/// How scenarios are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum ListForm {
    /// A line each: id, labels, title, separated by tabs
    Lines,
    /// A page with tables: labels, needs, lanes, the spec of the original, and what each proves
    Markdown,
}

/// What a run is asked for.
#[derive(Debug, clap::Args)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a switch of the command line"
)]
pub(super) struct RunArgs {
    #[command(flatten)]
    pub(super) selection: Selection,
    /// Print the selected scenarios with their labels and run nothing [default form: lines]
    #[arg(
        long,
        value_enum,
        value_name = "FORM",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "lines",
        help_heading = "Selection"
    )]
    pub(super) list: Option<ListForm>,
    /// Run them in random order, which a seed repeats; the run prints its seed [default: by area]
    #[arg(
        long,
        value_name = "SEED",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = ANY_SEED,
        value_parser = seed,
        help_heading = "Selection"
    )]
    pub(super) shuffle: Option<u64>,
    /// Print what would be done and do nothing
    #[arg(long, help_heading = "Selection")]
    pub(super) dry_run: bool,

    /// Where to run [default: kubeconfig when KUBECONFIG is set, else embedded]
    #[arg(long, value_enum, help_heading = "Cluster")]
    pub(super) cluster: Option<SourceName>,
    /// Name of the kept cluster [default: default]
    #[arg(long, value_name = "NAME", help_heading = "Cluster")]
    pub(super) name: Option<String>,
    /// The kubeconfig file [default: those of KUBECONFIG, merged; in a pod with `--cluster kubeconfig` its service account]
    #[arg(long, value_name = "FILE", help_heading = "Cluster")]
    pub(super) kubeconfig: Option<PathBuf>,
    /// Install the stack where it is missing; what was installed is removed at the end
    #[arg(long, help_heading = "Cluster")]
    pub(super) setup: bool,
    /// Directory of the manifests that install the stack, laid out as `config` [default: built in]
    #[arg(long, value_name = "DIR", help_heading = "Cluster")]
    pub(super) manifests: Option<PathBuf>,
    /// Scheduler that test pods name [default: that of the NUMAResourcesScheduler, once it is available]
    #[arg(long, value_name = "NAME", help_heading = "Cluster")]
    pub(super) scheduler_name: Option<String>,
    /// Directory of our own clusters [default: ~/.local/state/numaresources]
    #[arg(long, value_name = "DIR", help_heading = "Cluster of our own")]
    pub(super) state_root: Option<PathBuf>,
    /// Clusters to spread the scenarios over; each runs one at a time [default: embedded: 1 for 12 scenarios, at most 2 a processor and 4; local: 1]
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u8).range(1..=16),
        help_heading = "Cluster of our own"
    )]
    pub(super) clusters: Option<u8>,
    #[command(flatten, next_help_heading = "Cluster of our own")]
    pub(super) plan: PlanArgs,

    /// The JUnit report [default: nrop/e2e-serial-run.xml below the artefacts directory]
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(super) report_file: Option<PathBuf>,
    /// Directory for reports, logs and what is collected from failures
    #[arg(
        long,
        value_name = "DIR",
        default_value = "artifacts",
        help_heading = "Output"
    )]
    pub(super) artifacts: PathBuf,
    /// Fail (exit code 1) unless the skipped scenarios and their reasons are those of a list; the built-in one (suite/skips.yaml) is about
    /// clusters of the default size
    #[arg(
        long,
        value_name = "FILE",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = skips::BUILT_IN,
        help_heading = "Output"
    )]
    pub(super) strict_skips: Option<PathBuf>,
    /// Program that collects the state of the cluster after a failure, for the first five, a minute each; `none` for no program [default:
    /// numaresources-must-gather beside the other programs or on the PATH]
    #[arg(long, value_name = "PROGRAM", help_heading = "Output")]
    pub(super) must_gather: Option<PathBuf>,
    /// Show the beginning of each step, every change, and every file that is written
    #[arg(long, short, help_heading = "Output")]
    pub(super) verbose: bool,
    /// No colours [also with NO_COLOR, and when the output is no terminal]
    #[arg(long, help_heading = "Output")]
    pub(super) no_color: bool,
    /// Stop the run after this time, as Ctrl-C does: 90m, 2h30m
    #[arg(long, value_name = "TIME", value_parser = time_limit, help_heading = "Output")]
    pub(super) timeout: Option<Duration>,
    /// Stretch or shorten all time limits by this factor
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = factor, help_heading = "Output")]
    pub(super) deadline_factor: f64,
}

/// Reads a seed. One that is drawn is short, because people type it.
fn seed(text: &str) -> Result<u64, String> {
    if text == ANY_SEED {
        return Ok(u64::from(Uuid::new_v4().as_fields().1));
    }
    text.parse()
        .map_err(|_| "a seed is a whole number".to_owned())
}

fn factor(text: &str) -> Result<f64, String> {
    let factor: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if (0.01..=100.0).contains(&factor) {
        Ok(factor)
    } else {
        Err("must be between 0.01 and 100".to_owned())
    }
}

fn time_limit(text: &str) -> Result<Duration, String> {
    let time: GoDuration = text
        .parse()
        .map_err(|error: goflags::duration::ParseError| error.to_string())?;
    match u64::try_from(time.as_nanos()) {
        Ok(nanos) if nanos > 0 => Ok(Duration::from_nanos(nanos)),
        _ => Err("must be more than nothing".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn ids_and_subcommands_are_told_apart() {
        let cli = Cli::try_parse_from(["x", "tmpol/a", "byres/b", "--verbose"]).expect("ids");
        assert_eq!(cli.run.selection.ids, ["tmpol/a", "byres/b"]);
        let cli = Cli::try_parse_from(["x", "cluster", "status"]).expect("subcommand");
        assert!(matches!(cli.command, Some(Command::Cluster { .. })));
        let cli = Cli::try_parse_from(["x", "--label-filter", "tier0 || tier1"])
            .expect("the original's option");
        assert_eq!(cli.run.selection.labels.as_deref(), Some("tier0 || tier1"));
    }

    #[test]
    fn a_time_limit_is_a_duration_with_units() {
        assert_eq!(time_limit("1h30m"), Ok(Duration::from_mins(90)));
        for wrong in ["0", "-1s", "90", ""] {
            assert!(time_limit(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_factor_is_a_number_within_reason() {
        assert_eq!(factor("0.5"), Ok(0.5));
        assert!(factor("0").is_err() && factor("-1").is_err() && factor("x").is_err());
    }
}
