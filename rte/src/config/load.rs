//! Combines the sources of the configuration.

use std::path::{Path, PathBuf};

use api::names;

use super::go_flags::{self, Args};
use super::{Config, daemon_file, environment, extra_file, guard, set_flag};

/// Root of the configuration when none is given.
const DEFAULT_ROOT: &str = "/etc/rte";
/// The extra file when neither a root nor `--config` is given. Older versions used this path.
const DEFAULT_EXTRA: &str = "/etc/resource-topology-exporter/config.yaml";

/// Default locations of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Defaults {
    /// Root of the configuration.
    pub(crate) root: PathBuf,
    /// The extra file. If it does not exist, the extra file of the root is read: some manifests mount it there without giving a root.
    pub(crate) extra: PathBuf,
}

impl Default for Defaults {
    fn default() -> Self {
        Self {
            root: DEFAULT_ROOT.into(),
            extra: DEFAULT_EXTRA.into(),
        }
    }
}

/// Inputs of the configuration.
pub(crate) struct Sources<'a> {
    /// The command line.
    pub(crate) args: &'a Args,
    /// Looks up an environment variable.
    pub(crate) variable: &'a dyn Fn(&str) -> Option<String>,
    /// Uid of the process. It determines one of the allowed places for configuration.
    pub(crate) uid: u32,
    /// Host name, used when no other source names the node.
    pub(crate) os_hostname: &'a str,
    /// Default locations of the configuration.
    pub(crate) defaults: &'a Defaults,
}

/// The configuration cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// A flag has an invalid value: a usage error.
    #[error(transparent)]
    Flag(#[from] go_flags::Error),
    /// There is more than one positional argument.
    #[error("too many config roots given ({0}), currently supported up to 1")]
    TooManyRoots(usize),
    /// A path is outside of the allowed places.
    #[error(transparent)]
    Guard(#[from] guard::Error),
    /// The daemon's file cannot be used.
    #[error("error getting the daemon configuration")]
    Daemon(#[source] daemon_file::Error),
    /// The extra file cannot be used.
    #[error("error getting exclude list from the configuration")]
    Extra(#[source] extra_file::Error),
    /// The interval is negative.
    #[error("interval cannot be negative: {0}")]
    NegativeInterval(String),
}

/// A configuration and the warnings about it.
#[derive(Debug, PartialEq)]
pub(crate) struct Loaded {
    /// The configuration.
    pub(crate) config: Config,
    /// Descriptions of what was ignored. They are returned and not logged, because the configuration decides how to log.
    pub(crate) warnings: Vec<String>,
}

/// Applies defaults, daemon files, extra file, environment and flags in this order. Later ones override earlier ones, except the
/// environment, which only fills gaps.
pub(crate) fn load(sources: &Sources<'_>) -> Result<Loaded, Error> {
    let Args { flags, positional } = sources.args;
    // flag values are checked before any file is read: usage errors are reported first
    let mut checked = Config::default();
    for (name, value) in flags {
        set_flag(&mut checked, name, value)?;
    }
    if positional.len() > 1 {
        return Err(Error::TooManyRoots(positional.len()));
    }
    let given_root = positional.first().map(Path::new);
    let extra = match given_root {
        Some(root) => root.join("extra/config.yaml"),
        None => match flags.iter().rev().find(|(name, _)| *name == "config") {
            Some((_, value)) => value.into(),
            None if sources.defaults.extra.exists() => sources.defaults.extra.clone(),
            None => sources.defaults.root.join("extra/config.yaml"),
        },
    };
    let home = (sources.variable)("HOME");
    let allowed = |path: &Path| guard::check(path, home.as_deref(), sources.uid);
    let root = allowed(given_root.unwrap_or(&sources.defaults.root))?;

    let mut config = Config::default();
    let (keys, mut warnings) = daemon_file::read(&root).map_err(Error::Daemon)?;
    for key in daemon_file::apply(&mut config, &keys).map_err(Error::Daemon)? {
        warnings.push(format!(
            "ignored unknown key of the daemon configuration: {key}"
        ));
    }
    warnings.extend(
        flags
            .iter()
            .filter_map(|(name, value)| goflags::klog::find(name)?.warning(value)),
    );
    if !extra.as_os_str().is_empty() {
        let extra = allowed(&extra)?;
        extra_file::apply(&mut config, &extra).map_err(Error::Extra)?;
        let managers = allowed(&extra.with_file_name(names::KUBELET_DETAILS_KEY))?;
        extra_file::apply_managers(&mut config, &managers).map_err(Error::Extra)?;
    }
    environment::fill(&mut config, &keys, sources.variable);
    for (name, value) in flags {
        set_flag(&mut config, name, value)?;
    }
    if config.nrt_updater.hostname.is_empty() {
        sources
            .os_hostname
            .clone_into(&mut config.nrt_updater.hostname);
    }
    let interval = config.topology_exporter.sleep_interval;
    if interval.as_nanos() < 0 {
        return Err(Error::NegativeInterval(interval.to_string()));
    }
    Ok(Loaded { config, warnings })
}
