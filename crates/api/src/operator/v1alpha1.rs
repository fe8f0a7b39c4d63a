//! Version v1alpha1: served, deprecated. With conversion strategy None the API server changes only the `apiVersion` of an object.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{InfoRefreshMode, LogLevel, NamespacedName, PodsFingerprinting};

crate::object::custom_object!(
    /// Installs and maintains the topology exporters of a cluster.
    NumaResourcesOperator, NumaResourcesOperatorSpec, NumaResourcesOperatorStatus, super::GROUP, "v1alpha1", super::KIND, "numaresourcesoperators"
);

/// What the administrator asks for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NumaResourcesOperatorSpec {
    /// Groups of nodes that run an exporter, one DaemonSet each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub node_groups: Vec<NodeGroup>,
    /// Exporter image instead of the operator's own.
    #[serde(
        rename = "imageSpec",
        default,
        skip_serializing_if = "String::is_empty"
    )]
    pub exporter_image: String,
    /// Verbosity of the exporters.
    #[serde(default)]
    pub log_level: LogLevel,
    /// Glob patterns of pods that the exporters leave out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pod_excludes: Vec<NamespacedName>,
}

/// Nodes that share an exporter configuration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeGroup {
    /// Labels of machine config pools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::label_selector")]
    pub machine_config_pool_selector: Option<LabelSelector>,
    /// Deprecated: `config.podsFingerprinting` wins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disable_pods_fingerprinting: Option<bool>,
    /// Settings of the exporter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<NodeGroupConfig>,
}

/// Settings of the exporters of a node group.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeGroupConfig {
    /// Fingerprint of the pods on a node; `Enabled` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pods_fingerprinting: Option<PodsFingerprinting>,
    /// What triggers a new scan of the node; `PeriodicAndEvents` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub info_refresh_mode: Option<InfoRefreshMode>,
    /// Period as a Go duration such as `10s`, which is the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub info_refresh_period: Option<String>,
}

/// What the operator saw and did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NumaResourcesOperatorStatus {
    /// Exporter DaemonSets that are ready.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub daemonsets: Vec<NamespacedName>,
    /// Machine config pools that feed the exporters.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub machineconfigpools: Vec<MachineConfigPool>,
    /// Conditions of the resource.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::conditions")]
    pub conditions: Vec<Condition>,
}

/// State of one machine config pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MachineConfigPool {
    /// Name of the pool.
    pub name: String,
    /// Conditions of the pool.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::pool_conditions")]
    pub conditions: Vec<super::v1::PoolCondition>,
    /// Exporter configuration in effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<NodeGroupConfig>,
}
