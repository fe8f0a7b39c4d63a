//! Why a configuration is refused.

use super::{GROUP, KIND};
use crate::{args, default_plugins, plugins};

/// Why a configuration is refused.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Not YAML, or with unknown, repeated or wrongly typed fields.
    #[error("failed to decode the configuration")]
    Decode(#[source] serde_yaml::Error),
    /// The group, version or kind is not supported.
    #[error(
        "no kind {kind:?} is registered for version {api_version:?}: expected {KIND:?} of {GROUP}/v1"
    )]
    Type {
        /// `apiVersion` as given.
        api_version: String,
        /// `kind` as given.
        kind: String,
    },
    /// A value is out of range.
    #[error("{field}: invalid value {value}: {rule}")]
    Value {
        /// Path of the field.
        field: String,
        /// The value.
        value: String,
        /// The rule that it violates.
        rule: &'static str,
    },
    /// Two `pluginConfig` entries for one plugin.
    #[error("profile {profile:?}: repeated config for plugin {plugin}")]
    RepeatedConfig {
        /// Scheduler name of the profile.
        profile: String,
        /// Name of the plugin.
        plugin: String,
    },
    /// The plugin lists are invalid.
    #[error("profile {profile:?}")]
    Plugins {
        /// Scheduler name of the profile.
        profile: String,
        /// The cause.
        #[source]
        source: plugins::Error,
    },
    /// No plugin sorts the queue.
    #[error(
        "only one queue sort plugin required for profile with scheduler name {profile:?}, but got 0"
    )]
    NoQueueSort {
        /// Scheduler name of the profile.
        profile: String,
    },
    /// No plugin binds.
    #[error("at least one bind plugin is needed for profile with scheduler name {profile:?}")]
    NoBind {
        /// Scheduler name of the profile.
        profile: String,
    },
    /// The arguments of a default plugin are invalid.
    #[error("profile {profile:?}")]
    DefaultPluginArgs {
        /// Scheduler name of the profile.
        profile: String,
        /// The cause.
        #[source]
        source: default_plugins::Error,
    },
    /// The arguments of NodeResourceTopologyMatch are invalid.
    #[error("profile {profile:?}")]
    Args {
        /// Scheduler name of the profile.
        profile: String,
        /// The cause.
        #[source]
        source: args::Error,
    },
}
