//! Version v1alpha1: served, deprecated. With conversion strategy None the API server changes only the `apiVersion` of an object.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::operator::{LogLevel, NamespacedName};

crate::object::custom_object!(
    /// Installs and maintains the NUMA-aware secondary scheduler of a cluster.
    NumaResourcesScheduler, NumaResourcesSchedulerSpec, NumaResourcesSchedulerStatus, crate::operator::GROUP, "v1alpha1", super::KIND, "numaresourcesschedulers"
);

/// What the administrator asks for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NumaResourcesSchedulerSpec {
    /// Image of the scheduler.
    #[serde(rename = "imageSpec")]
    pub scheduler_image: String,
    /// Name of the profile that pods ask for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduler_name: Option<String>,
    /// Verbosity of the scheduler.
    #[serde(default)]
    pub log_level: LogLevel,
    /// Resync period of the topology cache as a Go duration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_resync_period: Option<String>,
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
    /// Conditions of the resource.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::conditions")]
    pub conditions: Vec<Condition>,
}
