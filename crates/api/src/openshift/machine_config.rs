//! `machineconfiguration.openshift.io/v1`: pools of machines, and the files on their disks.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::operator::v1::PoolCondition;

/// API group.
pub const GROUP: &str = "machineconfiguration.openshift.io";
/// Condition of a pool: all of its machines have the current configuration.
pub const UPDATED: &str = "Updated";
/// Condition of a pool: machines are changing to the current configuration.
pub const UPDATING: &str = "Updating";
/// Condition of a pool: a machine cannot get the current configuration.
pub const DEGRADED: &str = "Degraded";

crate::object::custom_object!(
    /// Nodes that share one configuration.
    MachineConfigPool, MachineConfigPoolSpec, MachineConfigPoolStatus, GROUP, "v1", "MachineConfigPool", "machineconfigpools"
);

/// Members and configuration of a pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MachineConfigPoolSpec {
    /// Selects the machine configurations of the pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine_config_selector: Option<LabelSelector>,
    /// Selects the nodes of the pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<LabelSelector>,
    /// Stops the rollout of configurations.
    #[serde(default)]
    pub paused: bool,
}

/// State of a pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MachineConfigPoolStatus {
    /// Generation of the spec that this status describes.
    #[serde(default)]
    pub observed_generation: i64,
    /// Configuration that all machines have.
    #[serde(default)]
    pub configuration: MachineConfigPoolConfiguration,
    /// Machines of the pool.
    #[serde(default)]
    pub machine_count: i32,
    /// Machines that have the desired configuration.
    #[serde(default)]
    pub updated_machine_count: i32,
    /// Updated machines that are ready.
    #[serde(default)]
    pub ready_machine_count: i32,
    /// Machines that are not available.
    #[serde(default)]
    pub unavailable_machine_count: i32,
    /// Machines that cannot get the configuration.
    #[serde(default)]
    pub degraded_machine_count: i32,
    /// [`UPDATED`], [`UPDATING`], [`DEGRADED`] and others.
    #[serde(default)]
    pub conditions: Vec<PoolCondition>,
}

impl MachineConfigPoolStatus {
    /// Returns the status of a condition: `True`, `False` or `Unknown`. `None` if the pool does not have the condition.
    pub fn condition(&self, name: &str) -> Option<&str> {
        let mut conditions = self.conditions.iter();
        let found = conditions.find(|condition| condition.condition_type == name)?;
        Some(&found.status)
    }
}

/// A rendered configuration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MachineConfigPoolConfiguration {
    /// Name of the rendered configuration.
    #[serde(default)]
    pub name: String,
    /// The machine configurations that it was rendered from.
    #[serde(default)]
    pub source: Vec<ConfigurationSource>,
}

/// A machine configuration that is part of a rendered one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConfigurationSource {
    /// API group and version.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    /// Kind.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// Name.
    #[serde(default)]
    pub name: String,
}

crate::object::custom_object!(
    /// Files and systemd units of machines.
    MachineConfig, MachineConfigSpec, Value, GROUP, "v1", "MachineConfig", "machineconfigs"
);

/// Content of a machine configuration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MachineConfigSpec {
    /// An Ignition configuration.
    #[serde(default)]
    pub config: Value,
}

crate::object::custom_object!(
    /// Settings for the kubelets of some pools.
    KubeletConfig, KubeletConfigSpec, Value, GROUP, "v1", "KubeletConfig", "kubeletconfigs"
);

/// Selects the pools and gives the settings of their kubelets.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KubeletConfigSpec {
    /// Selects pools by their labels; without a selector no pool matches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine_config_pool_selector: Option<LabelSelector>,
    /// A `KubeletConfiguration` that contains only the fields that differ from the defaults.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubelet_config: Option<Value>,
}
