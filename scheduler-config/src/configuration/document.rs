//! The configuration in effect, written as a document for users who query a running scheduler.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use serde_json::{Value, json};

use super::{ClientConnection, Configuration, GROUP, KIND, LeaderElection, Profile};
use crate::args::{self, NodeResourceTopologyMatchArgs};
use crate::default_plugins::PluginArgs;
use crate::plugins::{Plugin, Point};

impl Configuration {
    /// Returns a document with every default and every plugin list written out. Parsing it gives this configuration again, except for
    /// [`Profile::unused_args`].
    pub fn document(&self) -> Value {
        let profiles: Vec<Value> = self.profiles.iter().map(profile).collect();
        json!({
            "apiVersion": format!("{GROUP}/v1"),
            "kind": KIND,
            "parallelism": self.parallelism,
            "leaderElection": leader_election(&self.leader_election),
            "clientConnection": client_connection(&self.client_connection),
            "podInitialBackoffSeconds": self.pod_initial_backoff.as_secs(),
            "podMaxBackoffSeconds": self.pod_max_backoff.as_secs(),
            "profiles": profiles,
        })
    }
}

fn leader_election(election: &LeaderElection) -> Value {
    json!({
        "leaderElect": election.enabled,
        "leaseDuration": go_duration(election.lease_duration),
        "renewDeadline": go_duration(election.renew_deadline),
        "retryPeriod": go_duration(election.retry_period),
        "resourceLock": "leases",
        "resourceName": election.resource_name,
        "resourceNamespace": election.resource_namespace,
    })
}

fn client_connection(connection: &ClientConnection) -> Value {
    json!({
        "kubeconfig": connection.kubeconfig.clone().unwrap_or_default(),
        "contentType": "application/json",
        "qps": connection.qps.unwrap_or(-1.0),
        "burst": connection.burst,
    })
}

/// Formats whole seconds as seconds, any other duration as nanoseconds.
fn go_duration(duration: Duration) -> String {
    if duration.subsec_nanos() == 0 {
        format!("{}s", duration.as_secs())
    } else {
        format!("{}ns", duration.as_nanos())
    }
}

fn profile(profile: &Profile) -> Value {
    let default = &profile.default_args;
    let mut config = vec![
        entry(&default.preemption),
        entry(&default.inter_pod_affinity),
        entry(&default.node_affinity),
        entry(&default.node_resources_fit),
        entry(&default.balanced_allocation),
        entry(&default.pod_topology_spread),
        entry(&default.volume_binding),
    ];
    if let Some(given) = &profile.topology_match {
        config.push(json!({"name": args::PLUGIN, "args": topology_match(given)}));
    }
    let plugins: BTreeMap<Point, Value> = profile
        .plugins
        .iter()
        .map(|(point, plugins)| (*point, exact_list(plugins)))
        .collect();
    json!({
        "schedulerName": profile.scheduler_name,
        "percentageOfNodesToScore": profile.percentage_of_nodes_to_score,
        "plugins": plugins,
        "pluginConfig": config,
    })
}

/// Returns a plugin list that has exactly these plugins, in this order.
fn exact_list(plugins: &[Plugin]) -> Value {
    json!({"disabled": [{"name": "*"}], "enabled": plugins})
}

fn entry<T: PluginArgs + Serialize>(args: &T) -> Value {
    json!({"name": T::PLUGIN, "args": args})
}

fn topology_match(args: &NodeResourceTopologyMatchArgs) -> Value {
    let resources: Vec<Value> = args
        .scoring_strategy
        .resources
        .iter()
        .map(|(name, weight)| json!({"name": name, "weight": weight}))
        .collect();
    json!({
        "scoringStrategy": {
            "type": args.scoring_strategy.kind.to_string(),
            "resources": resources,
        },
        "cacheResyncPeriodSeconds": args.cache_resync_period_seconds,
        "discardReservedNodes": args.discard_reserved_nodes,
        "cache": {
            "foreignPodsDetect": args.cache.foreign_pods_detect.to_string(),
            "resyncMethod": args.cache.resync_method.to_string(),
            "informerMode": args.cache.informer_mode.to_string(),
            "resyncScope": args.cache.resync_scope.to_string(),
        },
        "preemptionMode": args.preemption_mode.to_string(),
    })
}
