//! What the flags mean once files and variables are read (deployer.md 1.1).

use std::path::{Path, PathBuf};
use std::time::Duration;

use fs_err as fs;
use goflags::GoDuration;

use crate::args::GlobalArgs;
use crate::images::{ENV_USE_SHA, Images, UpdaterType};
use crate::log::Log;
use crate::platform::{Given, Unsupported};
use crate::scheduler_config::{self, CacheParams, Lease, Params, ScoringStrategy};

/// Which security context constraints the exporters use (deployer.md 5.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SccVersion {
    /// Those for the SELinux policy that a machine configuration installs.
    V1,
    /// Those for the SELinux type of device plugins, which every node has.
    #[default]
    V2,
}

/// How the updater runs.
#[expect(
    clippy::struct_excessive_bools,
    reason = "the switches of the command line"
)]
#[derive(Clone, Debug)]
pub struct Updater {
    /// Which program it is.
    pub kind: UpdaterType,
    /// Its constraints (OpenShift).
    pub scc: SccVersion,
    /// Whether it publishes fingerprints.
    pub fingerprint: bool,
    /// Whether it publishes when its notification file is touched.
    pub notifications: bool,
    /// Whether the container runtime touches that file (OpenShift).
    pub cri_hooks: bool,
    /// Whether the SELinux policy may be installed (OpenShift).
    pub custom_selinux_policy: bool,
    /// Time between two publications as a Go duration; `None` leaves it to the program.
    pub interval: Option<String>,
    /// Verbosity.
    pub verbosity: u32,
    /// Text of its configuration.
    pub config: Option<String>,
}

/// How the scheduler runs.
#[derive(Clone, Debug)]
pub struct Scheduler {
    /// Its configuration.
    pub params: Params,
    /// Verbosity.
    pub verbosity: u32,
    /// Whether it runs on the control plane.
    pub on_control_plane: bool,
}

/// How waits look, and how long.
#[derive(Clone, Copy, Debug)]
pub struct Waiting {
    /// Pause between two looks.
    pub interval: Duration,
    /// Longest time of one wait.
    pub timeout: Duration,
}

/// What the flags mean.
#[derive(Clone, Debug)]
pub struct Options {
    /// What `-P` says.
    pub given: Given,
    /// Number of scheduler pods; `None` means as many as the control plane has nodes.
    pub replicas: Option<i32>,
    /// Waits.
    pub waiting: Waiting,
    /// Pull policy of all images.
    pub pull_policy: &'static str,
    /// Images.
    pub images: Images,
    /// The updater.
    pub updater: Updater,
    /// The scheduler.
    pub scheduler: Scheduler,
}

/// A flag or a file is not valid.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The constraints have no such version.
    #[error("SCC version {0:?} is invalid")]
    Scc(String),
    /// There is no such updater.
    #[error("{0:?} is invalid updater type")]
    UpdaterType(String),
    /// No replicas.
    #[error("non-positive replicas: 0")]
    Replicas,
    /// The platform cannot be read.
    #[error(transparent)]
    Platform(#[from] Unsupported),
    /// A duration is negative.
    #[error("--{flag} is negative: {value}")]
    Negative {
        /// The flag.
        flag: &'static str,
        /// Its value.
        value: GoDuration,
    },
    /// A file cannot be read.
    #[error("cannot read the file of --{flag}")]
    File {
        /// The flag.
        flag: &'static str,
        /// The cause, which names the file.
        #[source]
        source: std::io::Error,
    },
    /// A file or the lease has a wrong value.
    #[error("--{flag} is wrong")]
    Scheduler {
        /// The flag.
        flag: &'static str,
        /// The cause.
        #[source]
        source: scheduler_config::Error,
    },
}

impl Options {
    /// Reads flags, files and variables in the order of the original, so that the first mistake is the same.
    pub fn read(
        args: &GlobalArgs,
        lookup: impl Fn(&str) -> Option<String>,
        log: &Log,
    ) -> Result<Self, Error> {
        let waiting = Waiting {
            interval: duration("wait-interval", args.wait_interval)?,
            timeout: duration("wait-timeout", args.wait_timeout)?,
        };
        let scc = match args.updater_scc.as_str() {
            "v1" => SccVersion::V1,
            "v2" => SccVersion::V2,
            other => return Err(Error::Scc(other.to_owned())),
        };
        let replicas = match args.replicas {
            0 => return Err(Error::Replicas),
            count => (count > 0).then_some(count),
        };
        let given = Given::parse(&args.platform)?;
        if let Some(warning) = given.ignored(&args.platform) {
            log.line(0, &warning, &[]);
        }
        let files = Files { log };
        let config = files.read(
            "rte-config-file",
            "RTE config",
            args.rte_config_file.as_ref(),
        )?;
        let scoring = files.read(
            "sched-scoring-strat-config-file",
            "Scheduler Scoring Strategy config",
            args.sched_scoring_strat_config_file.as_ref(),
        )?;
        let cache = files.read(
            "sched-cache-params-config-file",
            "Scheduler Cache Parameters config",
            args.sched_cache_params_config_file.as_ref(),
        )?;
        let wrong = |flag| move |source| Error::Scheduler { flag, source };
        let params = Params {
            profile: args.sched_profile_name.clone(),
            // whole seconds, as in the original
            resync_seconds: duration("sched-resync-period", args.sched_resync_period)?.as_secs()
                as i64,
            cache: match cache {
                None => CacheParams::default(),
                Some(text) => {
                    CacheParams::parse(&text).map_err(wrong("sched-cache-params-config-file"))?
                }
            },
            scoring: scoring
                .map(|text| ScoringStrategy::parse(&text))
                .transpose()
                .map_err(wrong("sched-scoring-strat-config-file"))?,
            lease: Lease::parse(&args.sched_leader_elect_resource)
                .map_err(wrong("sched-leader-elect-resource"))?,
        };
        let kind = match args.updater_type.as_str() {
            "RTE" => UpdaterType::Rte,
            "NFD" => UpdaterType::Nfd,
            other => return Err(Error::UpdaterType(other.to_owned())),
        };
        let by_digest = lookup(ENV_USE_SHA).is_some();
        Ok(Self {
            given,
            replicas,
            waiting,
            pull_policy: if args.pull_if_not_present {
                "IfNotPresent"
            } else {
                "Always"
            },
            images: Images::from_env(lookup, by_digest),
            updater: Updater {
                kind,
                scc,
                fingerprint: args.updater_pfp_enable,
                notifications: args.updater_notif_enable,
                cri_hooks: args.updater_cri_hooks_enable,
                custom_selinux_policy: args.updater_custom_selinux_policy,
                interval: (args.updater_sync_period.as_nanos() > 0)
                    .then(|| args.updater_sync_period.to_string()),
                verbosity: args.updater_verbose,
                config,
            },
            scheduler: Scheduler {
                params,
                verbosity: args.sched_verbose,
                on_control_plane: args.sched_ctrlplane_affinity,
            },
        })
    }
}

fn duration(flag: &'static str, value: GoDuration) -> Result<Duration, Error> {
    let nanos = u64::try_from(value.as_nanos()).map_err(|_| Error::Negative { flag, value })?;
    Ok(Duration::from_nanos(nanos))
}

struct Files<'a> {
    log: &'a Log,
}

impl Files<'_> {
    fn read(
        &self,
        flag: &'static str,
        what: &str,
        path: Option<&PathBuf>,
    ) -> Result<Option<String>, Error> {
        // an empty path is the default of the original: no file
        let Some(path) = path.filter(|path| path.as_path() != Path::new("")) else {
            return Ok(None);
        };
        let text = fs::read_to_string(path).map_err(|source| Error::File { flag, source })?;
        self.log.line(
            0,
            &format!("{what}: read"),
            &[("bytes", (&text.len()).into())],
        );
        Ok(Some(text))
    }
}
