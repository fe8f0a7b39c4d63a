//! The file as it is written, before defaults are filled in.

use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use crate::duration;
use crate::plugins::Plugins;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Wire {
    #[serde(default)]
    pub(super) api_version: String,
    #[serde(default)]
    pub(super) kind: String,
    pub(super) parallelism: Option<i64>,
    #[serde(default)]
    pub(super) leader_election: WireLeaderElection,
    #[serde(default)]
    pub(super) client_connection: WireClientConnection,
    #[serde(rename = "enableProfiling")]
    _enable_profiling: Option<bool>,
    #[serde(rename = "enableContentionProfiling")]
    _enable_contention_profiling: Option<bool>,
    pub(super) percentage_of_nodes_to_score: Option<i64>,
    pub(super) pod_initial_backoff_seconds: Option<i64>,
    pub(super) pod_max_backoff_seconds: Option<i64>,
    #[serde(rename = "delayCacheUntilActive")]
    _delay_cache_until_active: Option<bool>,
    #[serde(default)]
    pub(super) profiles: Vec<WireProfile>,
    #[serde(default)]
    pub(super) extenders: Vec<Value>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct WireLeaderElection {
    pub(super) leader_elect: Option<bool>,
    #[serde(deserialize_with = "duration::option")]
    pub(super) lease_duration: Option<Duration>,
    #[serde(deserialize_with = "duration::option")]
    pub(super) renew_deadline: Option<Duration>,
    #[serde(deserialize_with = "duration::option")]
    pub(super) retry_period: Option<Duration>,
    pub(super) resource_lock: Option<String>,
    pub(super) resource_name: Option<String>,
    pub(super) resource_namespace: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct WireClientConnection {
    pub(super) kubeconfig: Option<String>,
    #[serde(rename = "acceptContentTypes")]
    _accept_content_types: Option<String>,
    pub(super) content_type: Option<String>,
    pub(super) qps: Option<f64>,
    pub(super) burst: Option<i64>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct WireProfile {
    pub(super) scheduler_name: Option<String>,
    pub(super) percentage_of_nodes_to_score: Option<i64>,
    pub(super) plugins: Option<Plugins>,
    pub(super) plugin_config: Vec<WirePluginConfig>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WirePluginConfig {
    pub(super) name: String,
    #[serde(default)]
    pub(super) args: Option<Value>,
}
