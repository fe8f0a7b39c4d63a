//! Puts the layers together.

use std::path::{Path, PathBuf};

use super::{Config, daemon_file, environment, extra_file, guard, set_flag};
use crate::args::{self, Args};

/// Root of the configuration when none is given.
const DEFAULT_ROOT: &str = "/etc/rte";
/// The extra file when neither a root nor `--config` is given: the place that older versions used.
const DEFAULT_EXTRA: &str = "/etc/resource-topology-exporter/config.yaml";

/// Where configuration is when nobody says so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Defaults {
    /// Root of the configuration.
    pub root: PathBuf,
    /// The extra file. Where it is not there that of the root is read: manifests that mount it there give no root, and mean it to be read.
    pub extra: PathBuf,
}

impl Default for Defaults {
    fn default() -> Self {
        Self {
            root: DEFAULT_ROOT.into(),
            extra: DEFAULT_EXTRA.into(),
        }
    }
}

/// What a configuration is made from.
pub struct Sources<'a> {
    /// The command line.
    pub args: &'a Args,
    /// The environment.
    pub variable: &'a dyn Fn(&str) -> Option<String>,
    /// Who runs the process: part of the places that may hold configuration.
    pub uid: u32,
    /// Name of the host, for when nothing else names the node.
    pub os_hostname: &'a str,
    /// Where configuration is when nobody says so.
    pub defaults: &'a Defaults,
}

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A flag has an unusable value: a usage error.
    #[error(transparent)]
    Flag(#[from] args::Error),
    /// More than one positional argument.
    #[error("too many config roots given ({0}), currently supported up to 1")]
    TooManyRoots(usize),
    /// A path outside of the allowed places.
    #[error(transparent)]
    Guard(#[from] guard::Error),
    /// The daemon's file.
    #[error("error getting the daemon configuration")]
    Daemon(#[source] daemon_file::Error),
    /// The extra file.
    #[error("error getting exclude list from the configuration")]
    Extra(#[source] extra_file::Error),
    /// A negative period.
    #[error("interval cannot be negative: {0}")]
    NegativeInterval(String),
}

/// A configuration and what was odd about it.
#[derive(Debug, PartialEq)]
pub struct Loaded {
    /// The configuration.
    pub config: Config,
    /// What was ignored, in words. Returned and not logged: how to log is part of the configuration.
    pub warnings: Vec<String>,
}

/// Defaults, daemon files, extra file, environment, flags; later ones win, but the environment only fills gaps.
pub fn load(sources: &Sources<'_>) -> Result<Loaded, Error> {
    let Args { flags, positional } = sources.args;
    // Values are checked before any file is read: a usage error comes first.
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
    if !extra.as_os_str().is_empty() {
        extra_file::apply(&mut config, &allowed(&extra)?).map_err(Error::Extra)?;
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
