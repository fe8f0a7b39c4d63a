//! `machineconfiguration.openshift.io/v1`: pools of machines, and what is on their disks.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::operator::v1::PoolCondition;

/// API group.
pub const GROUP: &str = "machineconfiguration.openshift.io";
/// Condition of a pool: all of its machines have the current configuration.
pub const UPDATED: &str = "Updated";
/// Condition of a pool: machines are on their way to the current configuration.
pub const UPDATING: &str = "Updating";
/// Condition of a pool: a machine does not get there.
pub const DEGRADED: &str = "Degraded";

crate::object::custom_object!(
    /// Nodes that are kept at one configuration.
    MachineConfigPool, MachineConfigPoolSpec, MachineConfigPoolStatus, GROUP, "v1", "MachineConfigPool", "machineconfigpools"
);

/// What a pool consists of.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MachineConfigPoolSpec {
    /// Which machine configurations it takes in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine_config_selector: Option<LabelSelector>,
    /// Which nodes it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<LabelSelector>,
    /// Nothing is rolled out while this is set.
    #[serde(default)]
    pub paused: bool,
}

/// How far a pool is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MachineConfigPoolStatus {
    /// Generation that this was written for.
    #[serde(default)]
    pub observed_generation: i64,
    /// Configuration that all machines have.
    #[serde(default)]
    pub configuration: MachineConfigPoolConfiguration,
    /// Machines of the pool.
    #[serde(default)]
    pub machine_count: i32,
    /// Machines with the configuration that is wanted.
    #[serde(default)]
    pub updated_machine_count: i32,
    /// Of these, the ones that are ready.
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
    /// `True`, `False`, `Unknown`, or nothing where the condition is not there.
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
    /// Name of the rendered one.
    #[serde(default)]
    pub name: String,
    /// What it was rendered from.
    #[serde(default)]
    pub source: Vec<ConfigurationSource>,
}

/// A machine configuration that went into a rendered one.
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
    /// Files and units of machines.
    MachineConfig, MachineConfigSpec, Value, GROUP, "v1", "MachineConfig", "machineconfigs"
);

/// What is on the machines.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MachineConfigSpec {
    /// An Ignition configuration.
    #[serde(default)]
    pub config: Value,
}

crate::object::custom_object!(
    /// Settings of the kubelets of pools.
    KubeletConfig, KubeletConfigSpec, Value, GROUP, "v1", "KubeletConfig", "kubeletconfigs"
);

/// Which kubelets, and their settings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KubeletConfigSpec {
    /// Labels of the pools; none: no pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine_config_pool_selector: Option<LabelSelector>,
    /// A `KubeletConfiguration`, of which only the fields that are to differ from the defaults are given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubelet_config: Option<Value>,
}
