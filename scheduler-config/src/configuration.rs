//! The file of `--config`: KubeSchedulerConfiguration (scheduler.md 1.1 and 1.3).

use std::collections::BTreeSet;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use crate::args::{self, NodeResourceTopologyMatchArgs};
use crate::duration;
use crate::plugins::{self, Plugin, Plugins, Point};

/// API group of the configuration.
const GROUP: &str = "kubescheduler.config.k8s.io";
/// Kind of the configuration.
const KIND: &str = "KubeSchedulerConfiguration";
/// Versions that are read. `v1beta3` has the same fields here; the deployer's ConfigMap still says it.
const VERSIONS: &[&str] = &["v1", "v1beta3"];
/// Name of the one profile when it gives none.
const DEFAULT_SCHEDULER_NAME: &str = "default-scheduler";

/// A configuration with every default filled in.
#[derive(Clone, Debug, PartialEq)]
pub struct Configuration {
    /// How many nodes are examined at once.
    pub parallelism: usize,
    /// Leader election.
    pub leader_election: LeaderElection,
    /// How the API server is reached.
    pub client_connection: ClientConnection,
    /// Shortest wait before a rejected pod is tried again.
    pub pod_initial_backoff: Duration,
    /// Longest wait before a rejected pod is tried again.
    pub pod_max_backoff: Duration,
    /// Share of the nodes that are scored, in percent; 0 adapts it to their number.
    pub percentage_of_nodes_to_score: u8,
    /// Profiles, at least one.
    pub profiles: Vec<Profile>,
}

/// One profile: the pods of one scheduler name and the plugins that place them.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// The `schedulerName` of its pods.
    pub scheduler_name: String,
    /// Filter plugins in their order.
    pub filter: Vec<Plugin>,
    /// Score plugins with weights.
    pub score: Vec<Plugin>,
    /// Reserve plugins in their order.
    pub reserve: Vec<Plugin>,
    /// PostFilter plugins in their order.
    pub post_filter: Vec<Plugin>,
    /// Arguments of NodeResourceTopologyMatch, where the profile enables it anywhere.
    pub topology_match: Option<NodeResourceTopologyMatchArgs>,
    /// Arguments of other plugins, undecoded, by plugin name.
    pub other_args: Vec<(String, Value)>,
}

/// Leader election.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LeaderElection {
    /// Whether only the leader schedules.
    pub enabled: bool,
    /// How long a lease holds without renewal.
    pub lease_duration: Duration,
    /// How long the leader tries to renew before it gives up.
    pub renew_deadline: Duration,
    /// Time between tries.
    pub retry_period: Duration,
    /// Name of the Lease.
    pub resource_name: String,
    /// Namespace of the Lease.
    pub resource_namespace: String,
}

/// How the API server is reached.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientConnection {
    /// Path of a kubeconfig; in-cluster when absent.
    pub kubeconfig: Option<String>,
    /// Requests a second.
    pub qps: f64,
    /// Requests above the rate in a burst.
    pub burst: u32,
}

/// Why a configuration is refused.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Not YAML, or with unknown, repeated or wrongly typed fields.
    #[error("failed to decode the configuration")]
    Decode(#[source] serde_yaml::Error),
    /// Another group, version or kind.
    #[error(
        "no kind {kind:?} is registered for version {api_version:?}: expected {KIND:?} of {GROUP}/v1"
    )]
    Type {
        /// `apiVersion` as given.
        api_version: String,
        /// `kind` as given.
        kind: String,
    },
    /// A value out of its range.
    #[error("{field}: invalid value {value}: {rule}")]
    Value {
        /// Path of the field.
        field: String,
        /// The value.
        value: String,
        /// What it should be.
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
    /// Wrong plugin lists.
    #[error("profile {profile:?}")]
    Plugins {
        /// Scheduler name of the profile.
        profile: String,
        /// What is wrong.
        #[source]
        source: plugins::Error,
    },
    /// Wrong plugin arguments.
    #[error("profile {profile:?}")]
    Args {
        /// Scheduler name of the profile.
        profile: String,
        /// What is wrong.
        #[source]
        source: args::Error,
    },
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Wire {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    parallelism: Option<i64>,
    #[serde(default)]
    leader_election: WireLeaderElection,
    #[serde(default)]
    client_connection: WireClientConnection,
    #[serde(rename = "enableProfiling")]
    _enable_profiling: Option<bool>,
    #[serde(rename = "enableContentionProfiling")]
    _enable_contention_profiling: Option<bool>,
    percentage_of_nodes_to_score: Option<i64>,
    pod_initial_backoff_seconds: Option<i64>,
    pod_max_backoff_seconds: Option<i64>,
    #[serde(rename = "delayCacheUntilActive")]
    _delay_cache_until_active: Option<bool>,
    #[serde(default)]
    profiles: Vec<WireProfile>,
    #[serde(default)]
    extenders: Vec<Value>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct WireLeaderElection {
    leader_elect: Option<bool>,
    #[serde(deserialize_with = "duration::option")]
    lease_duration: Option<Duration>,
    #[serde(deserialize_with = "duration::option")]
    renew_deadline: Option<Duration>,
    #[serde(deserialize_with = "duration::option")]
    retry_period: Option<Duration>,
    resource_lock: Option<String>,
    resource_name: Option<String>,
    resource_namespace: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct WireClientConnection {
    kubeconfig: Option<String>,
    #[serde(rename = "acceptContentTypes")]
    _accept_content_types: Option<String>,
    #[serde(rename = "contentType")]
    _content_type: Option<String>,
    qps: Option<f64>,
    burst: Option<i64>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct WireProfile {
    scheduler_name: Option<String>,
    percentage_of_nodes_to_score: Option<i64>,
    plugins: Option<Plugins>,
    plugin_config: Vec<WirePluginConfig>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WirePluginConfig {
    name: String,
    #[serde(default)]
    args: Option<Value>,
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "numbers, literals and temporaries are given"
)]
fn invalid<T>(
    field: impl Into<String>,
    value: impl ToString,
    rule: &'static str,
) -> Result<T, Error> {
    Err(Error::Value {
        field: field.into(),
        value: value.to_string(),
        rule,
    })
}

/// Reads a configuration: decodes it strictly, fills in the defaults, validates, resolves the plugin lists.
///
/// # Errors
/// When the text is not of the schema, or a value, a plugin or its arguments are wrong.
pub fn parse(text: &str) -> Result<Configuration, Error> {
    let wire: Wire = serde_yaml::from_str(text).map_err(Error::Decode)?;
    let version = wire
        .api_version
        .strip_prefix(GROUP)
        .and_then(|rest| rest.strip_prefix('/'))
        .unwrap_or_default();
    if wire.kind != KIND || !VERSIONS.contains(&version) {
        return Err(Error::Type {
            api_version: wire.api_version,
            kind: wire.kind,
        });
    }
    if !wire.extenders.is_empty() {
        return invalid(
            "extenders",
            wire.extenders.len(),
            "extenders are not supported",
        );
    }
    let parallelism = match wire.parallelism.unwrap_or(16) {
        number if number > 0 => usize::try_from(number).unwrap_or(usize::MAX),
        number => {
            return invalid(
                "parallelism",
                number,
                "should be an integer value greater than zero",
            );
        }
    };
    let initial = seconds(
        "podInitialBackoffSeconds",
        wire.pod_initial_backoff_seconds.unwrap_or(1),
    )?;
    let maximum = seconds(
        "podMaxBackoffSeconds",
        wire.pod_max_backoff_seconds.unwrap_or(10),
    )?;
    if maximum < initial {
        return invalid(
            "podMaxBackoffSeconds",
            maximum.as_secs(),
            "must be greater than or equal to podInitialBackoffSeconds",
        );
    }
    let qps = wire.client_connection.qps.unwrap_or(50.0);
    let burst = wire.client_connection.burst.unwrap_or(100);
    let Ok(burst) = u32::try_from(burst) else {
        return invalid("clientConnection.burst", burst, "must be non-negative");
    };
    Ok(Configuration {
        parallelism,
        leader_election: leader_election(wire.leader_election)?,
        client_connection: ClientConnection {
            kubeconfig: wire
                .client_connection
                .kubeconfig
                .filter(|path| !path.is_empty()),
            qps,
            burst,
        },
        pod_initial_backoff: initial,
        pod_max_backoff: maximum,
        percentage_of_nodes_to_score: percentage(
            "percentageOfNodesToScore",
            wire.percentage_of_nodes_to_score,
        )?,
        profiles: profiles(wire.profiles)?,
    })
}

fn seconds(field: &str, value: i64) -> Result<Duration, Error> {
    match u64::try_from(value) {
        Ok(value) if value > 0 => Ok(Duration::from_secs(value)),
        _ => invalid(field, value, "must be greater than 0"),
    }
}

fn percentage(field: &str, value: Option<i64>) -> Result<u8, Error> {
    let value = value.unwrap_or(0);
    match u8::try_from(value) {
        Ok(percent) if percent <= 100 => Ok(percent),
        _ => invalid(field, value, "not in valid range [0-100]"),
    }
}

fn leader_election(wire: WireLeaderElection) -> Result<LeaderElection, Error> {
    let election = LeaderElection {
        enabled: wire.leader_elect.unwrap_or(true),
        lease_duration: wire.lease_duration.unwrap_or(Duration::from_secs(15)),
        renew_deadline: wire.renew_deadline.unwrap_or(Duration::from_secs(10)),
        retry_period: wire.retry_period.unwrap_or(Duration::from_secs(2)),
        resource_name: wire
            .resource_name
            .unwrap_or_else(|| "kube-scheduler".to_owned()),
        resource_namespace: wire
            .resource_namespace
            .unwrap_or_else(|| "kube-system".to_owned()),
    };
    if !election.enabled {
        return Ok(election);
    }
    let lock = wire.resource_lock.unwrap_or_else(|| "leases".to_owned());
    if lock != "leases" {
        return invalid(
            "leaderElection.resourceLock",
            format!("{lock:?}"),
            "only \"leases\" is supported",
        );
    }
    let show = |duration: Duration| format!("{duration:?}");
    if election.retry_period.is_zero() {
        return invalid(
            "leaderElection.retryPeriod",
            show(election.retry_period),
            "must be greater than zero",
        );
    }
    if election.lease_duration <= election.renew_deadline {
        return invalid(
            "leaderElection.leaseDuration",
            show(election.lease_duration),
            "must be greater than renewDeadline",
        );
    }
    if election.renew_deadline <= election.retry_period.mul_f64(1.2) {
        let rule = "must be greater than 1.2 times retryPeriod";
        return invalid(
            "leaderElection.renewDeadline",
            show(election.renew_deadline),
            rule,
        );
    }
    for (field, value) in [
        ("leaderElection.resourceName", &election.resource_name),
        (
            "leaderElection.resourceNamespace",
            &election.resource_namespace,
        ),
    ] {
        if value.is_empty() {
            return invalid(field, "\"\"", "is required");
        }
    }
    Ok(election)
}

fn profiles(wire: Vec<WireProfile>) -> Result<Vec<Profile>, Error> {
    let wire = if wire.is_empty() {
        vec![WireProfile::default()]
    } else {
        wire
    };
    let only_one = wire.len() == 1;
    let mut names = BTreeSet::new();
    let mut profiles = Vec::with_capacity(wire.len());
    for (index, profile) in wire.into_iter().enumerate() {
        let field = format!("profiles[{index}].schedulerName");
        let name = match profile.scheduler_name {
            Some(name) if !name.is_empty() => name,
            _ if only_one => DEFAULT_SCHEDULER_NAME.to_owned(),
            _ => {
                return invalid(
                    field,
                    "\"\"",
                    "is required where there are several profiles",
                );
            }
        };
        if !names.insert(name.clone()) {
            return invalid(field, format!("{name:?}"), "must be unique");
        }
        percentage(
            &format!("profiles[{index}].percentageOfNodesToScore"),
            profile.percentage_of_nodes_to_score,
        )?;
        profiles.push(resolve(
            name,
            &profile.plugins.unwrap_or_default(),
            profile.plugin_config,
        )?);
    }
    Ok(profiles)
}

fn resolve(
    name: String,
    plugins: &Plugins,
    config: Vec<WirePluginConfig>,
) -> Result<Profile, Error> {
    let at = |point| {
        plugins::resolve(plugins, point).map_err(|source| Error::Plugins {
            profile: name.clone(),
            source,
        })
    };
    let (filter, score, reserve) = (at(Point::Filter)?, at(Point::Score)?, at(Point::Reserve)?);
    let post_filter = at(Point::PostFilter)?;
    // points that run nothing of ours yet still must not name what does not exist
    for point in [
        Point::PreEnqueue,
        Point::QueueSort,
        Point::PreFilter,
        Point::PreScore,
        Point::Permit,
        Point::PreBind,
        Point::Bind,
        Point::PostBind,
    ] {
        at(point)?;
    }
    let mut seen = BTreeSet::new();
    let mut given = None;
    let mut other_args = Vec::new();
    for entry in config {
        if !seen.insert(entry.name.clone()) {
            return Err(Error::RepeatedConfig {
                profile: name,
                plugin: entry.name,
            });
        }
        if entry.name == args::PLUGIN {
            given = entry.args;
        } else if let Some(value) = entry.args {
            other_args.push((entry.name, value));
        }
    }
    let enabled = [&filter, &score, &reserve]
        .iter()
        .any(|list| list.iter().any(|plugin| plugin.name == args::PLUGIN));
    let decoded =
        NodeResourceTopologyMatchArgs::decode(given.as_ref()).map_err(|source| Error::Args {
            profile: name.clone(),
            source,
        })?;
    Ok(Profile {
        scheduler_name: name,
        filter,
        score,
        reserve,
        post_filter,
        topology_match: enabled.then_some(decoded),
        other_args,
    })
}

#[cfg(test)]
mod tests;
