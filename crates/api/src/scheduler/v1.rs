//! Version v1, stored.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::operator::{LogLevel, NamespacedName, ObjectReference};

/// Resync period of the cache when none is given, as a Go duration.
pub const DEFAULT_CACHE_RESYNC_PERIOD: &str = "5s";

crate::object::custom_object!(
    /// Installs and maintains the NUMA-aware secondary scheduler of a cluster.
    NumaResourcesScheduler, NumaResourcesSchedulerSpec, NumaResourcesSchedulerStatus, crate::operator::GROUP, "v1", super::KIND, "numaresourcesschedulers"
);

/// What the administrator asks for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NumaResourcesSchedulerSpec {
    /// Image of the scheduler, pinned by digest.
    #[serde(rename = "imageSpec")]
    pub scheduler_image: String,
    /// Name of the profile that pods ask for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduler_name: Option<String>,
    /// Verbosity of the scheduler.
    #[serde(default)]
    pub log_level: LogLevel,
    /// Resync period of the topology cache as a Go duration; `5s` by default, 0 turns the cache off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_resync_period: Option<String>,
    /// Where the state of the cache is dumped; `DumpJSONFile` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_resync_debug: Option<CacheResyncDebugMode>,
    /// Which pod informer feeds the cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduler_informer: Option<SchedulerInformerMode>,
    /// Which pods of other schedulers make a node stale; `Relaxed` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_resync_detection: Option<CacheResyncDetectionMode>,
    /// How zones are scored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scoring_strategy: Option<ScoringStrategyParams>,
    /// Whether pods may be preempted to make room in a zone; off unless enabled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preemption_mode: Option<PreemptionMode>,
    /// Number of scheduler pods; computed from the control plane's size when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
}

/// Dump of the cache's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum CacheResyncDebugMode {
    /// None.
    Disabled,
    /// One JSON file a node.
    #[serde(rename = "DumpJSONFile")]
    DumpJsonFile,
}

/// Pod informer of the topology cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum SchedulerInformerMode {
    /// The pod informer of the scheduler.
    Shared,
    /// A separate pod informer, which also sees terminated pods.
    Dedicated,
}

/// Pods that other schedulers placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum CacheResyncDetectionMode {
    /// Only those with exclusive resources count.
    Relaxed,
    /// All count.
    Aggressive,
}

/// Whether placement may preempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PreemptionMode {
    /// It may.
    Enabled,
    /// It may not.
    Disabled,
}

/// Kind of score.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ScoringStrategyType {
    /// Fullest zone first.
    MostAllocated,
    /// Even use of resources first.
    BalancedAllocation,
    /// Emptiest zone first.
    #[default]
    LeastAllocated,
}

/// Weight of a resource in the score.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ResourceSpecParams {
    /// Name of the resource.
    pub name: String,
    /// Weight; 0 when left out, as in the original.
    #[serde(default)]
    #[schemars(extend("default" = null))]
    pub weight: i64,
}

/// How zones are scored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ScoringStrategyParams {
    /// Kind of score; `LeastAllocated` by default.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub strategy: Option<ScoringStrategyType>,
    /// Resources that count; the scheduler's defaults when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<ResourceSpecParams>,
}

/// What the operator saw and did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NumaResourcesSchedulerStatus {
    /// The scheduler's Deployment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deployment: Option<NamespacedName>,
    /// Profile name in effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduler_name: Option<String>,
    /// Resync period in effect, a Go duration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_resync_period: Option<String>,
    /// Conditions of the resource.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::conditions")]
    pub conditions: Vec<Condition>,
    /// Objects to look at when something is wrong.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub related_objects: Vec<ObjectReference>,
}
