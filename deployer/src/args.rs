//! The command line (deployer.md 1).

use std::path::PathBuf;

use clap::{ArgAction, Args, Parser, Subcommand};
use goflags::GoDuration;

/// Word for a component in usages, heading of their list, and what happens without one.
const COMPONENT: &str = "COMPONENT";
const COMPONENTS: &str = "Components";
const WITHOUT_COMPONENT: &str = "Without a component: all of them.";
const WITHOUT_PART: &str = "Without a component: all but policy.";
/// Heading of the flags that every command takes.
const EVERYWHERE: &str = "Options of every command";

/// Deploy, check and remove the components for topology-aware scheduling.
///
/// The cluster is the one that KUBECONFIG names, or else the one that the program runs in, or else that of ~/.kube/config.
#[derive(Debug, Parser)]
#[command(name = "deployer", disable_version_flag = true)]
pub struct Cli {
    /// Flags of every command.
    #[command(flatten)]
    pub global: GlobalArgs,
    /// What to do; without one the usage is printed.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// What to do. The descriptions are those of the original (deployer.md 1).
#[derive(Debug, Subcommand)]
pub enum Command {
    /// deploy the components and configurations needed for topology-aware-scheduling
    Deploy(InstallArgs),
    /// remove the components and configurations needed for topology-aware-scheduling
    Remove(InstallArgs),
    /// validate and setup a cluster to be used for topology-aware-scheduling
    Setup,
    /// render all the manifests
    #[command(subcommand_value_name = COMPONENT, subcommand_help_heading = COMPONENTS, after_help = WITHOUT_PART)]
    Render {
        /// Only one part of them
        #[command(subcommand)]
        part: Option<RenderPart>,
    },
    /// validate the cluster configuration to be correct for topology-aware-scheduling
    Validate(ValidateArgs),
    /// detect the cluster platform (kubernetes, openshift...)
    Detect(DetectArgs),
    /// dump the container images used to deploy
    Images(ImagesArgs),
    /// emit the version and exits successfully
    Version(VersionArgs),
    /// generate the autocompletion script for a shell
    Completion {
        /// Which shell
        shell: clap_complete::Shell,
    },
}

/// Flags of `deploy` and `remove`.
#[derive(Clone, Copy, Debug, Args)]
#[command(subcommand_value_name = COMPONENT, subcommand_help_heading = COMPONENTS, after_help = WITHOUT_COMPONENT)]
pub struct InstallArgs {
    /// Wait for deployment or removal to be all completed
    #[arg(short = 'W', long, global = true, num_args = 0..=1, require_equals = true, default_value = "false",
        default_missing_value = "true", value_parser = switch, action = ArgAction::Set)]
    pub wait: bool,
    /// Only one component.
    #[command(subcommand)]
    pub part: Option<Part>,
}

/// A component of the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Subcommand)]
pub enum Part {
    /// the definition of NodeResourceTopology
    Api,
    /// the scheduler that places pods by the zones of nodes
    SchedulerPlugin,
    /// what publishes the zones of each node: our exporter, or with --updater-type=NFD that of node-feature-discovery
    TopologyUpdater,
}

/// What is rendered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Subcommand)]
pub enum RenderPart {
    /// the definition of NodeResourceTopology
    Api,
    /// the scheduler that places pods by the zones of nodes
    SchedulerPlugin,
    /// what publishes the zones of each node: our exporter, or with --updater-type=NFD that of node-feature-discovery
    TopologyUpdater,
    /// the SELinux policy by which the exporter reads what it needs (OpenShift)
    Policy,
}

/// Flags of `validate`.
#[derive(Clone, Copy, Debug, Args)]
pub struct ValidateArgs {
    /// Output JSON, not text
    #[arg(short = 'J', long)]
    pub json: bool,
    /// Exit with code 1 if anything is found; without it the code is 0
    #[arg(long)]
    pub strict: bool,
}

/// Flags of `detect`.
#[derive(Clone, Copy, Debug, Args)]
pub struct DetectArgs {
    /// Output JSON, not text
    #[arg(short = 'J', long)]
    pub json: bool,
    /// Count the nodes of the control plane instead
    #[arg(long)]
    pub control_plane: bool,
}

/// Flags of `images`.
#[derive(Clone, Copy, Debug, Args)]
pub struct ImagesArgs {
    /// Output JSON, not text
    #[arg(short = 'J', long)]
    pub json: bool,
    /// Only the references, not what they are for
    #[arg(short = 'r', long)]
    pub raw: bool,
    /// References by digest
    #[arg(short = 'S', long)]
    pub sha: bool,
}

/// Flags of `version`.
#[derive(Clone, Copy, Debug, Args)]
pub struct VersionArgs {
    /// Also the beginning of the commit's hash
    #[arg(long)]
    pub full: bool,
    /// Only the commit's hash
    #[arg(long)]
    pub hash: bool,
}

/// Flags of every command, before or after it (deployer.md 1.1).
#[expect(
    clippy::struct_excessive_bools,
    reason = "switches of a command line are booleans"
)]
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = EVERYWHERE)]
pub struct GlobalArgs {
    /// Verbosity of this program's log
    #[arg(
        short = 'v',
        long,
        global = true,
        default_value_t = 1,
        allow_negative_numbers = true
    )]
    pub verbose: i32,
    /// Platform and version of the cluster, such as kubernetes:v1.30, instead of what is detected
    #[arg(
        short = 'P',
        long,
        global = true,
        default_value = "",
        hide_default_value = true
    )]
    pub platform: String,
    /// Replicas of the scheduler; a negative number means as many as the control plane has nodes
    #[arg(
        short = 'R',
        long,
        global = true,
        default_value_t = 1,
        allow_negative_numbers = true
    )]
    pub replicas: i32,
    /// How often to look while waiting
    #[arg(short = 'E', long, global = true, default_value = "2s")]
    pub wait_interval: GoDuration,
    /// Longest time of a single wait
    #[arg(short = 'T', long, global = true, default_value = "2m0s")]
    pub wait_timeout: GoDuration,
    /// Pull images only where they are not present; they are always pulled otherwise
    #[arg(long, global = true, num_args = 0..=1, require_equals = true, default_value = "false",
        default_missing_value = "true", value_parser = switch, action = ArgAction::Set)]
    pub pull_if_not_present: bool,
    /// Which updater to use: RTE or NFD
    #[arg(long, global = true, default_value = "RTE")]
    pub updater_type: String,
    /// Which security context constraints the updater uses: v1 or v2 (OpenShift)
    #[arg(long, global = true, default_value = "v2")]
    pub updater_scc: String,
    /// Have the updater publish fingerprints of pods
    #[arg(long, global = true, num_args = 0..=1, require_equals = true, default_value = "true",
        default_missing_value = "true", value_parser = switch, action = ArgAction::Set)]
    pub updater_pfp_enable: bool,
    /// Have the updater publish when its notification file is touched (RTE)
    #[arg(long, global = true, num_args = 0..=1, require_equals = true, default_value = "false",
        default_missing_value = "true", value_parser = switch, action = ArgAction::Set)]
    pub updater_notif_enable: bool,
    /// Have the container runtime touch the notification file (OpenShift)
    #[arg(long, global = true, num_args = 0..=1, require_equals = true, default_value = "false",
        default_missing_value = "true", value_parser = switch, action = ArgAction::Set)]
    pub updater_cri_hooks_enable: bool,
    /// Install the SELinux policy that the constraints v1 need, by a machine configuration (OpenShift)
    #[arg(long, global = true, num_args = 0..=1, require_equals = true, default_value = "true",
        default_missing_value = "true", value_parser = switch, action = ArgAction::Set)]
    pub updater_custom_selinux_policy: bool,
    /// How often the updater publishes; 0 leaves it to the updater
    #[arg(long, global = true, default_value = "10s")]
    pub updater_sync_period: GoDuration,
    /// Verbosity of the updater
    #[arg(long, global = true, default_value_t = 1)]
    pub updater_verbose: u32,
    /// File with the configuration of the updater (RTE)
    #[arg(long, global = true, value_name = "FILE")]
    pub rte_config_file: Option<PathBuf>,
    /// Name of the scheduler's profile, which pods name in schedulerName
    #[arg(long, global = true, default_value = "topology-aware-scheduler")]
    pub sched_profile_name: String,
    /// How often the scheduler compares its cache with the cluster; 0 turns the cache off
    #[arg(long, global = true, default_value = "5s")]
    pub sched_resync_period: GoDuration,
    /// Verbosity of the scheduler
    #[arg(long, global = true, default_value_t = 4)]
    pub sched_verbose: u32,
    /// Run the scheduler on nodes of the control plane
    #[arg(long, global = true, num_args = 0..=1, require_equals = true, default_value = "true",
        default_missing_value = "true", value_parser = switch, action = ArgAction::Set)]
    pub sched_ctrlplane_affinity: bool,
    /// Lease of several schedulers, as NAMESPACE/NAME [default: nrtmatch-scheduler in the scheduler's namespace]
    #[arg(long, global = true, default_value = "", hide_default_value = true)]
    pub sched_leader_elect_resource: String,
    /// File with the scoring strategy of the scheduler (YAML: type, resources)
    #[arg(long, global = true, value_name = "FILE")]
    pub sched_scoring_strat_config_file: Option<PathBuf>,
    /// File with the parameters of the scheduler's cache (YAML: resyncMethod, foreignPodsDetect, informerMode)
    #[arg(long, global = true, value_name = "FILE")]
    pub sched_cache_params_config_file: Option<PathBuf>,
}

fn switch(text: &str) -> Result<bool, String> {
    goflags::boolean(text).ok_or_else(|| "it is true or false".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_definition_of_the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn global_flags_are_taken_before_and_after_the_command() {
        for line in [
            "deployer --sched-verbose=9 -R -1 deploy scheduler-plugin --wait",
            "deployer deploy scheduler-plugin --sched-verbose 9 -W -R=-1",
            "deployer deploy -W --sched-verbose=9 scheduler-plugin --replicas=-1",
        ] {
            let cli = Cli::try_parse_from(line.split(' ')).unwrap();
            assert_eq!((cli.global.sched_verbose, cli.global.replicas), (9, -1));
            let Some(Command::Deploy(args)) = cli.command else {
                panic!("{line}")
            };
            assert_eq!((args.wait, args.part), (true, Some(Part::SchedulerPlugin)));
        }
    }

    #[test]
    fn switches_have_the_forms_of_go() {
        let parse = |flag: &str| {
            let cli = Cli::try_parse_from(["deployer", "images", flag]);
            cli.map(|cli| cli.global.updater_pfp_enable)
        };
        assert!(!parse("--updater-pfp-enable=false").unwrap());
        assert!(!parse("--updater-pfp-enable=F").unwrap());
        assert!(parse("--updater-pfp-enable").unwrap());
        assert!(parse("--updater-pfp-enable=maybe").is_err());
    }
}
