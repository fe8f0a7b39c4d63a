//! The file of `--config`: KubeSchedulerConfiguration (scheduler.md 1.1, 1.3).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use wire::{Wire, WireClientConnection, WireLeaderElection, WirePluginConfig, WireProfile};

use crate::args::{self, NodeResourceTopologyMatchArgs};
use crate::default_plugins::{DefaultPluginArgs, DefaultPreemptionArgs, PluginArgs as _};
use crate::plugins::{self, Plugin, Plugins, Point};

mod document;
mod error;
mod wire;

pub use error::Error;

/// API group of the configuration.
const GROUP: &str = "kubescheduler.config.k8s.io";
/// Kind of the configuration.
const KIND: &str = "KubeSchedulerConfiguration";
/// Supported versions. `v1beta3` has the same fields as far as they are read here; the deployer's ConfigMap still uses it.
const VERSIONS: &[&str] = &["v1", "v1beta3"];
/// Name of the only profile if it gives none.
const DEFAULT_SCHEDULER_NAME: &str = "default-scheduler";

/// A configuration with every default filled in.
#[derive(Clone, Debug, PartialEq)]
pub struct Configuration {
    /// How many nodes are examined in parallel.
    pub parallelism: usize,
    /// Leader election.
    pub leader_election: LeaderElection,
    /// How the API server is reached.
    pub client_connection: ClientConnection,
    /// Shortest wait before a rejected pod is tried again.
    pub pod_initial_backoff: Duration,
    /// Longest wait before a rejected pod is tried again.
    pub pod_max_backoff: Duration,
    /// Profiles, at least one.
    pub profiles: Vec<Profile>,
}

/// One profile: the pods of one scheduler name and the plugins that place them.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// The `schedulerName` of its pods.
    pub scheduler_name: String,
    /// Percentage of the nodes that are scored, from the profile or else from the configuration. 0 adapts it to the number of nodes.
    pub percentage_of_nodes_to_score: u8,
    /// The plugins at each extension point in order, with the weights of their scores.
    pub plugins: BTreeMap<Point, Vec<Plugin>>,
    /// Arguments of NodeResourceTopologyMatch, if the profile enables it at Filter, Score or Reserve.
    pub topology_match: Option<NodeResourceTopologyMatchArgs>,
    /// Arguments of DefaultPreemption, if the profile enables it at PostFilter.
    pub preemption: Option<DefaultPreemptionArgs>,
    /// Arguments of the default plugins, whether enabled or not.
    pub default_args: DefaultPluginArgs,
    /// Plugins that take no arguments but are given some.
    pub unused_args: Vec<String>,
}

impl Profile {
    /// Returns the plugins at a point in order.
    pub fn at(&self, point: Point) -> &[Plugin] {
        self.plugins.get(&point).map_or(&[], Vec::as_slice)
    }

    /// Returns whether the plugin of that name runs at a point.
    pub fn runs(&self, name: &str, point: Point) -> bool {
        self.at(point).iter().any(|plugin| plugin.name == name)
    }
}

/// Leader election.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LeaderElection {
    /// Whether only the leader schedules.
    pub enabled: bool,
    /// How long a lease is valid without renewal.
    pub lease_duration: Duration,
    /// How long the leader tries to renew before it gives up.
    pub renew_deadline: Duration,
    /// Time between attempts.
    pub retry_period: Duration,
    /// Name of the Lease.
    pub resource_name: String,
    /// Namespace of the Lease.
    pub resource_namespace: String,
}

/// How the API server is reached.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientConnection {
    /// Path of a kubeconfig; in-cluster configuration if absent.
    pub kubeconfig: Option<String>,
    /// Requests per second; `None` means no limit.
    pub qps: Option<f64>,
    /// Requests that may be made at once before the rate limit applies.
    pub burst: u32,
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

/// Parses a configuration: decodes it strictly, fills in the defaults, validates it, resolves the plugin lists.
///
/// # Errors
/// When the text does not match the schema, or a value, a plugin or its arguments are invalid.
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
    Ok(Configuration {
        parallelism,
        leader_election: leader_election(wire.leader_election)?,
        client_connection: client_connection(wire.client_connection)?,
        pod_initial_backoff: initial,
        pod_max_backoff: maximum,
        profiles: profiles(
            wire.profiles,
            percentage(
                "percentageOfNodesToScore",
                wire.percentage_of_nodes_to_score,
            )?,
        )?,
    })
}

/// Fills in defaults: a rate of 0 means the default, as an absent one does; below 0 there is no limit (client-go's `rest.Config`).
fn client_connection(wire: WireClientConnection) -> Result<ClientConnection, Error> {
    const TYPES: &[&str] = &[
        "",
        "application/json",
        "application/vnd.kubernetes.protobuf",
    ];
    let content_type = wire.content_type.unwrap_or_default();
    if !TYPES.contains(&content_type.as_str()) {
        return invalid(
            "clientConnection.contentType",
            format!("{content_type:?}"),
            "must be application/json or application/vnd.kubernetes.protobuf",
        );
    }
    let qps = match wire.qps.unwrap_or(0.0) {
        0.0 => 50.0,
        qps => qps,
    };
    let burst = match wire.burst.unwrap_or(0) {
        0 => 100,
        burst => burst,
    };
    let Ok(burst) = u32::try_from(burst) else {
        return invalid("clientConnection.burst", burst, "must be non-negative");
    };
    Ok(ClientConnection {
        kubeconfig: wire.kubeconfig.filter(|path| !path.is_empty()),
        qps: (qps > 0.0).then_some(qps),
        burst,
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

fn profiles(wire: Vec<WireProfile>, default_percentage: u8) -> Result<Vec<Profile>, Error> {
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
        let own = profile.percentage_of_nodes_to_score;
        let field = format!("profiles[{index}].percentageOfNodesToScore");
        profiles.push(resolve(
            name,
            own.map_or(Ok(default_percentage), |own| percentage(&field, Some(own)))?,
            &profile.plugins.unwrap_or_default(),
            profile.plugin_config,
        )?);
    }
    Ok(profiles)
}

fn resolve(
    name: String,
    percentage_of_nodes_to_score: u8,
    plugins: &Plugins,
    config: Vec<WirePluginConfig>,
) -> Result<Profile, Error> {
    let plugins: BTreeMap<Point, Vec<Plugin>> = Point::ALL
        .into_iter()
        .map(|point| Ok((point, plugins::resolve(plugins, point)?)))
        .collect::<Result<_, _>>()
        .map_err(|source| Error::Plugins {
            profile: name.clone(),
            source,
        })?;
    let mut seen = BTreeSet::new();
    let mut given = None;
    let mut default_args = DefaultPluginArgs::default();
    let mut unused_args = Vec::new();
    for entry in config {
        if !seen.insert(entry.name.clone()) {
            return Err(Error::RepeatedConfig {
                profile: name,
                plugin: entry.name,
            });
        }
        if entry.name == args::PLUGIN {
            given = entry.args;
            continue;
        }
        let taken = default_args
            .set(&entry.name, entry.args.as_ref())
            .map_err(|source| Error::DefaultPluginArgs {
                profile: name.clone(),
                source,
            })?;
        if !taken && entry.args.is_some() {
            unused_args.push(entry.name);
        }
    }
    let decoded =
        NodeResourceTopologyMatchArgs::decode(given.as_ref()).map_err(|source| Error::Args {
            profile: name.clone(),
            source,
        })?;
    let mut profile = Profile {
        preemption: None,
        scheduler_name: name,
        percentage_of_nodes_to_score,
        plugins,
        topology_match: None,
        default_args,
        unused_args,
    };
    if profile.at(Point::QueueSort).is_empty() {
        return Err(Error::NoQueueSort {
            profile: profile.scheduler_name,
        });
    }
    if profile.at(Point::Bind).is_empty() {
        return Err(Error::NoBind {
            profile: profile.scheduler_name,
        });
    }
    let acts_at = [Point::Filter, Point::Score, Point::Reserve];
    if acts_at
        .iter()
        .any(|point| profile.runs(args::PLUGIN, *point))
    {
        profile.topology_match = Some(decoded);
    }
    if profile.runs(DefaultPreemptionArgs::PLUGIN, Point::PostFilter) {
        profile.preemption = Some(profile.default_args.preemption);
    }
    Ok(profile)
}

#[cfg(test)]
mod tests;
