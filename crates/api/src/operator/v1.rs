//! Version v1, stored.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Toleration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    InfoRefreshMode, InfoRefreshPause, LogLevel, NamespacedName, ObjectReference,
    PodsFingerprinting,
};

/// Refresh period of the exporter when none is given, as a Go duration.
pub const DEFAULT_REFRESH_PERIOD: &str = "10s";
/// Maximum number of annotations of a node group. The controller checks it, the schema does not (operator.md 4.2).
pub const MAX_ANNOTATIONS: usize = 8;

crate::object::custom_object!(
    /// Installs and maintains the topology exporters of a cluster.
    NumaResourcesOperator, NumaResourcesOperatorSpec, NumaResourcesOperatorStatus, super::GROUP, "v1", super::KIND, "numaresourcesoperators"
);

/// What the administrator asks for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NumaResourcesOperatorSpec {
    /// Groups of nodes that run an exporter, one DaemonSet each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub node_groups: Vec<NodeGroup>,
    /// Exporter image instead of the operator's own; deprecated and refused by default.
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

/// Nodes that share an exporter configuration; exactly one of the two selectors is given.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeGroup {
    /// Labels of machine config pools (OpenShift only).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::label_selector")]
    pub machine_config_pool_selector: Option<LabelSelector>,
    /// Name of a pool of nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool_name: Option<String>,
    /// Settings of the exporter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<NodeGroupConfig>,
    /// Special settings, by annotation key.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// Settings of the exporters of a node group; what is left out takes its default.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeGroupConfig {
    /// Fingerprint of the pods on a node; `EnabledExclusiveResources` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pods_fingerprinting: Option<PodsFingerprinting>,
    /// What triggers a new scan of the node; `Periodic` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub info_refresh_mode: Option<InfoRefreshMode>,
    /// Period as a Go duration such as `10s`, which is the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub info_refresh_period: Option<String>,
    /// Pauses publication; `Disabled` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub info_refresh_pause: Option<InfoRefreshPause>,
    /// Tolerations of the exporter pods, in place of any others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::tolerations")]
    pub tolerations: Vec<Toleration>,
}

impl NodeGroupConfig {
    /// Returns the defaults of this version (operator.md 1.1). They are never written back to the spec.
    pub fn defaults() -> Self {
        Self {
            pods_fingerprinting: Some(PodsFingerprinting::EnabledExclusiveResources),
            info_refresh_mode: Some(InfoRefreshMode::Periodic),
            info_refresh_period: Some(DEFAULT_REFRESH_PERIOD.into()),
            info_refresh_pause: Some(InfoRefreshPause::Disabled),
            tolerations: Vec::new(),
        }
    }
}

impl NodeGroup {
    /// Returns the settings of the group with defaults for the missing ones: every option of the result is set (operator.md 1.4).
    pub fn normalized_config(&self) -> NodeGroupConfig {
        let defaults = NodeGroupConfig::defaults();
        let given = self.config.clone().unwrap_or_default();
        NodeGroupConfig {
            pods_fingerprinting: given.pods_fingerprinting.or(defaults.pods_fingerprinting),
            info_refresh_mode: given.info_refresh_mode.or(defaults.info_refresh_mode),
            info_refresh_period: given.info_refresh_period.or(defaults.info_refresh_period),
            info_refresh_pause: given.info_refresh_pause.or(defaults.info_refresh_pause),
            tolerations: given.tolerations,
        }
    }
}

/// What the operator saw and did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NumaResourcesOperatorStatus {
    /// Exporter DaemonSets that are ready.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub daemonsets: Vec<NamespacedName>,
    /// Machine config pools that feed the exporters (OpenShift).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub machineconfigpools: Vec<MachineConfigPool>,
    /// Node groups with the configuration in effect; only when everything is ready.
    #[serde(rename = "nodeGroups", default, skip_serializing_if = "Vec::is_empty")]
    pub node_groups: Vec<NodeGroupStatus>,
    /// Conditions of the resource.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::conditions")]
    pub conditions: Vec<Condition>,
    /// Objects to look at when something is wrong.
    #[serde(
        rename = "relatedObjects",
        default,
        skip_serializing_if = "Vec::is_empty"
    )]
    pub related_objects: Vec<ObjectReference>,
}

/// State of one machine config pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MachineConfigPool {
    /// Name of the pool.
    pub name: String,
    /// Conditions of the pool, copied when that is asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::pool_conditions")]
    pub conditions: Vec<PoolCondition>,
    /// Exporter configuration in effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<NodeGroupConfig>,
}

/// Condition of a machine config pool, in the form of the machine config API.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolCondition {
    /// Type of the condition, such as `Updated`.
    #[serde(rename = "type", default)]
    pub condition_type: String,
    /// `True`, `False` or `Unknown`.
    #[serde(default)]
    pub status: String,
    /// When the status last changed, RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<String>,
    /// Machine-readable cause.
    #[serde(default)]
    pub reason: String,
    /// Human-readable cause.
    #[serde(default)]
    pub message: String,
}

/// State of one node group; the keys are those of the original's API.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NodeGroupStatus {
    /// The DaemonSet of the group; one object although the key is plural.
    #[serde(rename = "daemonsets")]
    pub daemon_set: NamespacedName,
    /// Exporter configuration in effect.
    pub config: NodeGroupConfig,
    /// Name of the pool, although the key is `selector`.
    #[serde(rename = "selector")]
    pub pool_name: String,
}
