//! The command line (scheduler.md 7.9): kube-scheduler's flags, with one or two dashes.

use std::convert::Infallible;
use std::ffi::OsString;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, CommandFactory as _, FromArgMatches as _, Parser};
use daemon::guard::OPEN_PATHS;
use daemon::log::Format;
use daemon::tls::NamedFiles;
use goflags::klog;
use scheduler_config::configuration::{ClientConnection, LeaderElection};

mod accepted;

/// What `--version` prints after the program's name.
const BUILD: &str = goflags::build_line!();

/// Places pods on nodes whose kubelet can align them to NUMA zones.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "numaresources-scheduler",
    version = BUILD,
    disable_version_flag = true,
    args_override_self = true,
    next_line_help = true
)]
pub struct Args {
    /// File with a KubeSchedulerConfiguration
    #[arg(long, value_parser = path)]
    pub config: Option<PathBuf>,
    /// File to write the configuration in effect to, every default filled in, instead of placing pods
    #[arg(long, value_name = "FILE", value_parser = path)]
    pub write_config_to: Option<PathBuf>,
    /// URL of the API server, instead of that in the kubeconfig
    #[arg(long, value_name = "URL", default_value = "")]
    pub master: String,
    /// Kubeconfig to use when the configuration names none; not needed inside a cluster
    #[arg(long, value_parser = path)]
    pub kubeconfig: Option<PathBuf>,
    /// Verbosity: 2 decisions, 4 reasons, 6 data, 8 everything
    #[arg(short = 'v', long = "v", default_value_t = 0)]
    pub verbosity: i32,
    /// Format of log lines: text or json
    #[arg(long, default_value = "text")]
    pub logging_format: Format,

    /// Address to serve HTTPS on
    #[arg(long, default_value = "0.0.0.0")]
    pub bind_address: IpAddr,
    /// Port to serve HTTPS on; 0 serves nothing
    #[arg(long, default_value_t = 10259)]
    pub secure_port: u16,
    /// Lets several processes listen on the same address and port
    #[arg(long, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true", value_parser = boolean)]
    pub permit_port_sharing: bool,
    /// Certificate to serve with; without one it is self-signed
    #[arg(long, value_parser = path)]
    pub tls_cert_file: Option<PathBuf>,
    /// Key of the certificate
    #[arg(long, value_parser = path)]
    pub tls_private_key_file: Option<PathBuf>,
    /// Certificate and key for some host names: CERT,KEY or CERT,KEY:NAME,*.DOMAIN; may be repeated
    #[arg(long, value_name = "FILES", action = ArgAction::Append)]
    pub tls_sni_cert_key: Vec<NamedFiles>,
    /// Lowest TLS version: VersionTLS10 to VersionTLS13
    #[arg(long, default_value = "")]
    pub tls_min_version: String,
    /// Cipher suites for TLS 1.2, separated by commas
    #[arg(long, default_value = "")]
    pub tls_cipher_suites: String,

    /// Overrides leaderElection.leaderElect of the configuration
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_parser = boolean)]
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
    #[arg(long, value_parser = path)]
    pub authorization_kubeconfig: Option<PathBuf>,
    /// Paths that need no authorization; a trailing * matches any suffix
    #[arg(long, value_delimiter = ',', default_values_t = OPEN_PATHS.map(str::to_owned))]
    pub authorization_always_allow_paths: Vec<String>,

    /// Kubeconfig for asking who sends a metrics request [default: as for its authorization]
    #[arg(long, value_parser = path)]
    pub authentication_kubeconfig: Option<PathBuf>,
    /// How long an answer about a token is kept
    #[arg(long, value_parser = duration, default_value = "10s")]
    pub authentication_token_webhook_cache_ttl: Duration,
    /// How long a permission to read metrics is kept
    #[arg(long, value_parser = duration, default_value = "10s")]
    pub authorization_webhook_cache_authorized_ttl: Duration,
    /// How long a refusal is kept
    #[arg(long, value_parser = duration, default_value = "10s")]
    pub authorization_webhook_cache_unauthorized_ttl: Duration,

    /// Requests a second to the API server, without --config [default: 50]
    #[arg(long, allow_hyphen_values = true)]
    pub kube_api_qps: Option<f32>,
    /// Requests to the API server that may be made at once, without --config [default: 100]
    #[arg(long, allow_hyphen_values = true)]
    pub kube_api_burst: Option<i32>,

    /// Names the given flags that have no effect.
    #[arg(skip)]
    pub warnings: Vec<String>,
}

/// Reads a path. An empty one is as good as none, which [`Args::read`] makes of it.
#[expect(
    clippy::unnecessary_wraps,
    reason = "the parser of the command line expects a result"
)]
fn path(text: &str) -> Result<PathBuf, Infallible> {
    Ok(text.into())
}

/// Reads a boolean as Go does.
fn boolean(text: &str) -> Result<bool, &'static str> {
    goflags::boolean(text).ok_or("expected true or false")
}

fn duration(text: &str) -> Result<Duration, String> {
    scheduler_config::duration::parse(text).map_err(|error| error.to_string())
}

impl Args {
    /// Parses a command line that begins with the program's name.
    pub fn read(argv: impl IntoIterator<Item = OsString>) -> Result<Self, clap::Error> {
        let given = Self::full_command().try_get_matches_from(argv.into_iter().filter_map(word))?;
        let mut args = Self::from_arg_matches(&given)?;
        args.warnings = accepted::warnings(&given);
        for path in args.paths() {
            path.take_if(|path| path.as_os_str().is_empty());
        }
        if args.config.is_some() {
            let ignored = [
                ("kube-api-qps", args.kube_api_qps.is_some()),
                ("kube-api-burst", args.kube_api_burst.is_some()),
            ];
            for (flag, _) in ignored.into_iter().filter(|(_, given)| *given) {
                args.warnings.push(format!(
                    "flag --{flag} has no effect: the file of --config says it"
                ));
            }
        }
        Ok(args)
    }

    fn paths(&mut self) -> [&mut Option<PathBuf>; 7] {
        [
            &mut self.config,
            &mut self.write_config_to,
            &mut self.kubeconfig,
            &mut self.tls_cert_file,
            &mut self.tls_private_key_file,
            &mut self.authentication_kubeconfig,
            &mut self.authorization_kubeconfig,
        ]
    }

    /// Returns the command with all flags, those that change nothing among them.
    fn full_command() -> clap::Command {
        accepted::add_to(Self::command())
    }

    /// Returns how the API server is reached: the flags replace the default configuration, but not a given one.
    pub fn client_connection(&self, config: &ClientConnection) -> ClientConnection {
        let mut connection = config.clone();
        if self.config.is_some() {
            return connection;
        }
        if let Some(qps) = self.kube_api_qps.filter(|qps| *qps != 0.0) {
            connection.qps = (qps > 0.0).then_some(f64::from(qps));
        }
        if let Some(burst) = self
            .kube_api_burst
            .and_then(|burst| u32::try_from(burst).ok())
        {
            connection.burst = if burst == 0 { connection.burst } else { burst };
        }
        connection
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

/// Writes a word of the command line as [`Args`] expects it; `None` leaves it out. Go programs accept one dash for two, Kubernetes' programs
/// underscores for dashes, and `--version` may have a value.
fn word(argument: OsString) -> Option<OsString> {
    let Some(text) = argument.to_str() else {
        return Some(argument);
    };
    let (name, value) = match text.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (text, None),
    };
    let body = match name.strip_prefix("--") {
        Some(body) if !body.is_empty() => body,
        Some(_) => return Some(argument),
        None => match name.strip_prefix('-') {
            Some(body) if is_long(body) => body,
            Some(_) | None => return Some(argument),
        },
    };
    let body = match klog::find(body) {
        Some(flag) => flag.name.to_owned(),
        None => body.replace('_', "-"),
    };
    match value {
        Some("true" | "raw") if body == "version" => Some("--version".into()),
        Some("false") if body == "version" => None,
        Some(value) => Some(format!("--{body}={value}").into()),
        None => Some(format!("--{body}").into()),
    }
}

/// Returns whether this is the name of a long flag behind one dash.
fn is_long(body: &str) -> bool {
    let is_word = body.len() > 1 && body.as_bytes()[0].is_ascii_alphabetic();
    is_word && !is_short_with_value(body)
}

/// Returns whether this is `v4`, a short flag with its value.
fn is_short_with_value(body: &str) -> bool {
    body.strip_prefix('v')
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
    #[case(&["--unknown"], true)]
    #[case(&["--leader-elect", "false"], true)]
    #[case(&["--leader-elect=maybe"], true)]
    #[case(&["positional"], true)]
    #[case(&["--leader-elect-resource-lock=endpoints"], true)]
    #[case(&["--tls-sni-cert-key=one"], true)]
    #[case(&["--version"], false)]
    #[case(&["--version=raw"], false)]
    #[case(&["-help"], false)]
    fn wrong_words_go_to_stderr_and_what_is_asked_for_to_stdout(
        #[case] arguments: &[&str],
        #[case] wrong: bool,
    ) {
        assert_eq!(read(arguments).expect_err("ends here").use_stderr(), wrong);
    }

    #[test]
    fn rates_of_the_command_line_hold_without_a_file() {
        let config = scheduler_config::parse(
            "{apiVersion: kubescheduler.config.k8s.io/v1, kind: KubeSchedulerConfiguration}",
        )
        .expect("valid");
        let flags = [
            "--kube-api-qps=2.5",
            "--kube-api-burst=7",
            "--version=false",
        ];
        let args = read(&flags).expect("valid");
        let connection = args.client_connection(&config.client_connection);
        assert_eq!((connection.qps, connection.burst), (Some(2.5), 7));
        let args = read(&[flags[0], flags[1], "--config=f"]).expect("valid");
        let connection = args.client_connection(&config.client_connection);
        assert_eq!(connection, config.client_connection);
        assert_eq!(args.warnings.len(), 2, "{:?}", args.warnings);
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
