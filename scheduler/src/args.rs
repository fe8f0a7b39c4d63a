//! The command line (scheduler.md 7.9): kube-scheduler's flags, with one or two dashes.

use std::ffi::OsString;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Parser};
use daemon::guard::OPEN_PATHS;
use scheduler_config::configuration::LeaderElection;

/// Places pods on nodes whose kubelet can align them to NUMA zones.
#[derive(Clone, Debug, Parser)]
#[command(name = "numaresources-scheduler", version, disable_version_flag = true)]
pub struct Args {
    /// File with a KubeSchedulerConfiguration
    #[arg(long)]
    pub config: Option<PathBuf>,
    /// File to write the configuration in effect to, every default filled in, instead of placing pods
    #[arg(long, value_name = "FILE")]
    pub write_config_to: Option<PathBuf>,
    /// Kubeconfig to use when the configuration names none; not needed inside a cluster
    #[arg(long)]
    pub kubeconfig: Option<PathBuf>,
    /// Verbosity: 2 decisions, 4 reasons, 6 data, 8 everything
    #[arg(short = 'v', long = "v", default_value_t = 2)]
    pub verbosity: i32,
    /// Format of log lines: json or text
    #[arg(long, default_value = "json", value_parser = ["json", "text"])]
    pub logging_format: String,

    /// Address to serve HTTPS on
    #[arg(long, default_value = "0.0.0.0")]
    pub bind_address: IpAddr,
    /// Port to serve HTTPS on; 0 serves nothing
    #[arg(long, default_value_t = 10259)]
    pub secure_port: u16,
    /// Certificate to serve with; without one it is self-signed
    #[arg(long)]
    pub tls_cert_file: Option<PathBuf>,
    /// Key of the certificate
    #[arg(long)]
    pub tls_private_key_file: Option<PathBuf>,
    /// Lowest TLS version: VersionTLS10 to VersionTLS13
    #[arg(long, default_value = "")]
    pub tls_min_version: String,
    /// Cipher suites for TLS 1.2, separated by commas
    #[arg(long, default_value = "")]
    pub tls_cipher_suites: String,

    /// Overrides leaderElection.leaderElect of the configuration
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub leader_elect: Option<bool>,
    /// Overrides leaderElection.leaseDuration
    #[arg(long, value_parser = duration)]
    pub leader_elect_lease_duration: Option<Duration>,
    /// Overrides leaderElection.renewDeadline
    #[arg(long, value_parser = duration)]
    pub leader_elect_renew_deadline: Option<Duration>,
    /// Overrides leaderElection.retryPeriod
    #[arg(long, value_parser = duration)]
    pub leader_elect_retry_period: Option<Duration>,
    /// Kind of lock; only leases are supported
    #[arg(long, value_parser = ["leases"])]
    pub leader_elect_resource_lock: Option<String>,
    /// Overrides leaderElection.resourceName
    #[arg(long)]
    pub leader_elect_resource_name: Option<String>,
    /// Overrides leaderElection.resourceNamespace
    #[arg(long)]
    pub leader_elect_resource_namespace: Option<String>,

    /// Prints the version
    #[arg(long, action = ArgAction::Version)]
    version: Option<bool>,

    /// Kubeconfig for the authorization of metrics requests [default: the scheduler's own client]
    #[arg(long)]
    pub authorization_kubeconfig: Option<PathBuf>,
    /// Paths that need no authorization; a trailing * matches any suffix
    #[arg(long, value_delimiter = ',', default_values_t = OPEN_PATHS.map(str::to_owned))]
    pub authorization_always_allow_paths: Vec<String>,

    /// Accepted for compatibility; --authorization-kubeconfig is used instead
    #[arg(long, hide = true)]
    authentication_kubeconfig: Option<PathBuf>,
    /// Accepted for compatibility
    #[arg(long, hide = true)]
    cert_dir: Option<PathBuf>,
    /// Accepted for compatibility
    #[arg(long, hide = true)]
    feature_gates: Vec<String>,
    /// Accepted for compatibility
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    profiling: Option<bool>,
    /// Accepted for compatibility
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    contention_profiling: Option<bool>,
    /// Accepted for compatibility
    #[arg(long, hide = true)]
    kube_api_qps: Option<f64>,
    /// Accepted for compatibility
    #[arg(long, hide = true)]
    kube_api_burst: Option<u32>,
    /// Accepted for compatibility
    #[arg(long, hide = true)]
    kube_api_content_type: Option<String>,
    /// Accepted for compatibility
    #[arg(long, hide = true)]
    pod_max_in_unschedulable_pods_duration: Option<String>,
    /// Accepted for compatibility
    #[arg(long, hide = true)]
    vmodule: Option<String>,
}

fn duration(text: &str) -> Result<Duration, String> {
    scheduler_config::duration::parse(text).map_err(|error| error.to_string())
}

impl Args {
    /// Parses a command line that begins with the program's name.
    pub fn read(argv: impl IntoIterator<Item = OsString>) -> Result<Self, clap::Error> {
        Self::try_parse_from(argv.into_iter().map(with_two_dashes))
    }

    /// Returns the leader election of the configuration, overridden by the flags.
    pub fn leader_election(&self, config: &LeaderElection) -> LeaderElection {
        let text =
            |flag: &Option<String>, value: &str| flag.clone().unwrap_or_else(|| value.to_owned());
        LeaderElection {
            enabled: self.leader_elect.unwrap_or(config.enabled),
            lease_duration: self
                .leader_elect_lease_duration
                .unwrap_or(config.lease_duration),
            renew_deadline: self
                .leader_elect_renew_deadline
                .unwrap_or(config.renew_deadline),
            retry_period: self
                .leader_elect_retry_period
                .unwrap_or(config.retry_period),
            resource_name: text(&self.leader_elect_resource_name, &config.resource_name),
            resource_namespace: text(
                &self.leader_elect_resource_namespace,
                &config.resource_namespace,
            ),
        }
    }
}

/// Turns `-config` into `--config`, because Go programs accept both.
fn with_two_dashes(argument: OsString) -> OsString {
    let Some(text) = argument.to_str() else {
        return argument;
    };
    let name = text.split('=').next().unwrap_or_default();
    let single = name.starts_with('-') && !name.starts_with("--");
    let long =
        name.len() > 2 && name.as_bytes()[1].is_ascii_alphabetic() && !is_short_with_value(name);
    if single && long {
        format!("-{text}").into()
    } else {
        argument
    }
}

/// Returns whether this is `-v4`, a short flag with its value.
fn is_short_with_value(name: &str) -> bool {
    name.strip_prefix("-v")
        .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn read(arguments: &[&str]) -> Result<Args, clap::Error> {
        let program = std::iter::once(&"kube-scheduler");
        Args::read(program.chain(arguments).map(OsString::from))
    }

    #[test]
    fn the_command_line_of_the_operator_is_understood() {
        let args = read(&[
            "--config=/etc/kubernetes/config.yaml",
            "-v=4",
            "--tls-min-version=VersionTLS12",
            "--tls-cipher-suites=",
        ])
        .expect("valid");
        assert_eq!(
            args.config,
            Some(PathBuf::from("/etc/kubernetes/config.yaml"))
        );
        assert_eq!((args.verbosity, args.secure_port), (4, 10259));
        assert_eq!(
            (
                args.tls_min_version.as_str(),
                args.tls_cipher_suites.as_str()
            ),
            ("VersionTLS12", "")
        );
    }

    #[rstest]
    #[case(&["-config", "f", "-v", "6"], 6)]
    #[case(&["-v6", "-leader-elect=false"], 6)]
    #[case(&["--v=6"], 6)]
    #[case(&["-v=6", "-secure-port=0"], 6)]
    fn one_dash_is_as_good_as_two(#[case] arguments: &[&str], #[case] verbosity: i32) {
        assert_eq!(read(arguments).expect("valid").verbosity, verbosity);
    }

    #[rstest]
    #[case(&["--unknown"], 2)]
    #[case(&["--leader-elect", "false"], 2)]
    #[case(&["positional"], 2)]
    #[case(&["--leader-elect-resource-lock=endpoints"], 2)]
    #[case(&["--version"], 0)]
    #[case(&["-help"], 0)]
    fn usage_errors_exit_with_two(#[case] arguments: &[&str], #[case] code: i32) {
        assert_eq!(read(arguments).expect_err("ends here").exit_code(), code);
    }

    #[test]
    fn leader_election_flags_override_the_file() {
        let config = scheduler_config::parse(
            "{apiVersion: kubescheduler.config.k8s.io/v1, kind: KubeSchedulerConfiguration}",
        )
        .expect("valid");
        let args = read(&[
            "--leader-elect=false",
            "--leader-elect-lease-duration=1m30s",
        ])
        .expect("valid");
        let election = args.leader_election(&config.leader_election);
        assert_eq!(
            (election.enabled, election.lease_duration),
            (false, Duration::from_secs(90))
        );
        assert_eq!(election.resource_name, "kube-scheduler");
        assert!(
            read(&["--leader-elect"])
                .expect("valid")
                .leader_election(&config.leader_election)
                .enabled
        );
    }
}
