//! How much is accounted for, and which pods it concerns.

use std::collections::BTreeSet;

use nrt::fingerprint::Method;
use scheduler_config::Configuration;
use scheduler_config::args::{
    ForeignPodsDetect, NodeResourceTopologyMatchArgs, PreemptionMode, ResyncMethod,
};

/// How much the cache accounts for (scheduler.md 5.1, 5.2, 5.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// NRTs are used as they are.
    Passthrough,
    /// NRTs are used as they are, but a node is closed from reservation to binding.
    DiscardReserved,
    /// Pods are charged until an NRT accounts for them.
    OverReserve,
}

/// The profiles of a configuration want different accounting of the same zones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the profiles disagree on the cache settings of NodeResourceTopologyMatch")]
pub struct Disagreement;

/// The configuration of the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How much it accounts for.
    pub mode: Mode,
    /// Which pods of other schedulers close a node.
    pub foreign: ForeignPodsDetect,
    /// Which pods a fingerprint covers.
    pub method: ResyncMethod,
    /// Names of our profiles: pods of any other scheduler are foreign.
    pub profiles: BTreeSet<String>,
    /// Record the comparisons, for [`Cache::take_checks`](crate::numa::cache::Cache::take_checks).
    pub trace: bool,
    /// Read where containers are, so that preemption knows which zones become free (`preemptionMode: Enabled`).
    pub placement: bool,
}

impl Settings {
    /// Creates the settings from the arguments of the plugin.
    pub fn new(args: &NodeResourceTopologyMatchArgs, profiles: BTreeSet<String>) -> Self {
        let mode = if args.discard_reserved_nodes {
            Mode::DiscardReserved
        } else if args.cache_resync_period_seconds > 0 {
            Mode::OverReserve
        } else {
            Mode::Passthrough
        };
        Self {
            mode,
            foreign: args.cache.foreign_pods_detect,
            method: args.cache.resync_method,
            profiles,
            trace: false,
            placement: mode == Mode::OverReserve && args.preemption_mode == PreemptionMode::Enabled,
        }
    }

    /// Creates the settings that all profiles share, because they place pods on the same zones.
    ///
    /// # Errors
    /// When the profiles disagree.
    pub fn of_profiles(config: &Configuration) -> Result<Self, Disagreement> {
        let names: BTreeSet<String> = config
            .profiles
            .iter()
            .map(|profile| profile.scheduler_name.clone())
            .collect();
        let mut all = config
            .profiles
            .iter()
            .filter_map(|profile| profile.topology_match.as_ref());
        let Some(first) = all.next() else {
            return Ok(Self::new(&NodeResourceTopologyMatchArgs::default(), names));
        };
        let settings = Self::new(first, names.clone());
        for other in all {
            if Self::new(other, names.clone()) != settings {
                return Err(Disagreement);
            }
        }
        Ok(settings)
    }

    /// Returns which pods a fingerprint covers whose NRT says `published`.
    pub(super) fn fingerprint_method(&self, published: Method) -> Method {
        match self.method {
            ResyncMethod::Autodetect => published,
            ResyncMethod::All => Method::All,
            ResyncMethod::OnlyExclusiveResources => Method::WithExclusiveResources,
        }
    }
}
