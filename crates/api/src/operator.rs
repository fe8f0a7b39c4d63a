//! `NUMAResourcesOperator`: which node pools get an exporter, and its settings (operator.md 1.1, 1.3).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub mod v1;
pub mod v1alpha1;

/// API group of both custom resources.
pub const GROUP: &str = "nodetopology.openshift.io";
/// Kind of the object.
pub const KIND: &str = "NUMAResourcesOperator";

/// How much a component writes to its log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum LogLevel {
    /// Not chosen: as `Normal`.
    #[serde(rename = "")]
    Unset,
    /// What an administrator needs.
    #[default]
    Normal,
    /// What a developer of a workload needs.
    Debug,
    /// What a developer of the component needs.
    Trace,
    /// Everything, with payloads.
    TraceAll,
}

impl LogLevel {
    /// Returns the value of the `-v=` flag (operator.md 5.4).
    pub fn verbosity(self) -> u8 {
        match self {
            Self::Unset | Self::Normal => 2,
            Self::Debug => 4,
            Self::Trace => 6,
            Self::TraceAll => 8,
        }
    }
}

/// A namespace and a name.
#[derive(
    Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
pub struct NamespacedName {
    /// Namespace, or a glob where patterns are meant.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Name, or a glob where patterns are meant.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
}

impl std::fmt::Display for NamespacedName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Whether and over which pods a fingerprint is published.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PodsFingerprinting {
    /// None.
    Disabled,
    /// Over all pods.
    Enabled,
    /// Over the pods that hold exclusive resources.
    EnabledExclusiveResources,
}

/// What triggers a new scan of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum InfoRefreshMode {
    /// A timer.
    Periodic,
    /// Notifications.
    Events,
    /// Both.
    PeriodicAndEvents,
}

/// Whether publication is paused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum InfoRefreshPause {
    /// It is not.
    Disabled,
    /// Scans continue, but nothing is written.
    Enabled,
}

/// Refers to an object of any kind, as must-gather tools expect it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ObjectReference {
    /// API group, empty for the core.
    pub group: String,
    /// Plural resource name.
    pub resource: String,
    /// Namespace, empty for cluster-wide objects.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Name; empty means all of them.
    pub name: String,
}
