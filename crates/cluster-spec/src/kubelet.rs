//! The settings of a kubelet, and the configuration file that they make.

use std::collections::BTreeMap;
use std::path::Path;

use fixtures::machines::{GIB, MIB, Machine, format_cpu_list};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::subnet::DNS_SERVICE;

/// Hard eviction threshold of memory; it is part of the reservation.
const EVICTION_THRESHOLD: u64 = 100 * MIB;
/// State files with which a kubelet refuses to start after a change of policy or reservation (kubelet-node.md 11).
pub const STATE_FILES: [&str; 2] = ["cpu_manager_state", "memory_manager_state"];

/// Topology manager policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TopologyPolicy {
    /// No alignment.
    None,
    /// Align where possible.
    BestEffort,
    /// Refuse pods whose preferred alignment is impossible.
    Restricted,
    /// Refuse pods that do not fit one zone.
    #[default]
    SingleNumaNode,
}

/// Topology manager scope.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TopologyScope {
    /// Each container is aligned separately.
    #[default]
    Container,
    /// All containers of a pod are aligned together.
    Pod,
}

/// CPU manager policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CpuPolicy {
    /// No exclusive CPUs.
    None,
    /// Exclusive CPUs for Guaranteed containers with whole CPUs.
    #[default]
    Static,
}

/// Memory manager policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub enum MemoryPolicy {
    /// No pinned memory.
    None,
    /// Memory of Guaranteed pods is pinned to zones.
    #[default]
    Static,
}

/// Settings of a kubelet, apart from those that depend on its place in the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct KubeletSettings {
    /// Topology manager policy.
    pub topology_manager_policy: TopologyPolicy,
    /// Topology manager scope.
    pub topology_manager_scope: TopologyScope,
    /// Topology manager policy options.
    pub topology_manager_policy_options: BTreeMap<String, String>,
    /// CPU manager policy.
    pub cpu_manager_policy: CpuPolicy,
    /// CPU manager policy options.
    pub cpu_manager_policy_options: BTreeMap<String, String>,
    /// CPUs reserved for the system; by default the first core of every zone.
    pub reserved_cpus: Option<Vec<u32>>,
    /// Memory manager policy.
    pub memory_manager_policy: MemoryPolicy,
    /// Memory in bytes reserved for the system in each zone; at least 100 MiB in total.
    pub reserved_memory_per_zone: u64,
    /// Any other field of a `KubeletConfiguration`; it overrides the generated fields.
    pub extra: BTreeMap<String, Value>,
}

impl Default for KubeletSettings {
    /// Returns the settings of a NUMA-aware worker: single-numa-node, static CPU and memory managers, one core and 1 GiB per zone reserved.
    fn default() -> Self {
        Self {
            topology_manager_policy: TopologyPolicy::default(),
            topology_manager_scope: TopologyScope::default(),
            topology_manager_policy_options: BTreeMap::new(),
            cpu_manager_policy: CpuPolicy::default(),
            cpu_manager_policy_options: BTreeMap::new(),
            reserved_cpus: None,
            memory_manager_policy: MemoryPolicy::default(),
            reserved_memory_per_zone: GIB,
            extra: BTreeMap::new(),
        }
    }
}

impl KubeletSettings {
    /// Returns the default with another scope.
    pub fn with_scope(scope: TopologyScope) -> Self {
        Self {
            topology_manager_scope: scope,
            ..Self::default()
        }
    }

    /// Returns the settings of a control plane node: no manager has a policy.
    pub fn unmanaged() -> Self {
        Self {
            topology_manager_policy: TopologyPolicy::None,
            cpu_manager_policy: CpuPolicy::None,
            memory_manager_policy: MemoryPolicy::None,
            ..Self::default()
        }
    }

    /// Returns the CPUs reserved for the system on this machine.
    pub fn reserved_cpus_of(&self, machine: &Machine) -> Vec<u32> {
        self.reserved_cpus
            .clone()
            .unwrap_or_else(|| machine.first_core_of_each_zone())
    }
    /// Returns the whole `KubeletConfiguration` (ARCHITECTURE.md 5) of a kubelet on this machine, with this socket of its container runtime, whose
    /// node registers with these taints.
    pub fn configuration(&self, machine: &Machine, cri_socket: &Path, taints: &[Taint]) -> Value {
        let endpoint = format!("unix://{}", cri_socket.display());
        let mut config = json!({
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "containerRuntimeEndpoint": endpoint,
            "imageServiceEndpoint": endpoint,
            // A simulated kubelet asks for a certificate all the same; the local lane sets this for its kubelets.
            "authentication": {
                "anonymous": { "enabled": true },
                "webhook": { "enabled": false },
            },
            "authorization": { "mode": "AlwaysAllow" },
            "clusterDomain": "cluster.local",
            "clusterDNS": [DNS_SERVICE.to_string()],
            "resolvConf": "/etc/resolv.conf",
            // The kubelet manages no control groups, so the host's stay unchanged and every kernel is suitable.
            "failCgroupV1": false,
            "cgroupDriver": "cgroupfs",
            "cgroupsPerQOS": false,
            "enforceNodeAllocatable": [],
            "failSwapOn": false,
            "makeIPTablesUtilChains": false,
            "healthzPort": 0,
            "readOnlyPort": 0,
            // The first period determines how soon device resources reach the node's status. The second limits how long a restarted kubelet
            // may wait before it reports that it is ready.
            "nodeStatusUpdateFrequency": "2s",
            "nodeStatusReportFrequency": "10s",
            "registryPullQPS": 0,
            "eventRecordQPS": 0,
            "serializeImagePulls": false,
            // A host whose disk is nearly full must not cost the nodes images that nothing can pull again.
            "imageGCHighThresholdPercent": 100,
            "registerWithTaints": taints.iter().map(|taint| json!({ "key": taint.key, "effect": taint.effect })).collect::<Vec<_>>(),
        });
        if let (Some(fields), Value::Object(managers)) =
            (config.as_object_mut(), self.managers(machine))
        {
            fields.extend(managers);
        }
        config
    }

    /// Returns the fields of a `KubeletConfiguration` that set up the resource managers on this machine, with what they need to be reserved.
    pub fn managers(&self, machine: &Machine) -> Value {
        let reserved = self.reserved_memory_per_zone * machine.zones().len() as u64;
        let mut managers = json!({
            // Only memory, so that a full disk of the host does not matter.
            "evictionHard": { "memory.available": bytes(EVICTION_THRESHOLD) },
            "systemReserved": { "memory": bytes(reserved.saturating_sub(EVICTION_THRESHOLD)) },
            "reservedSystemCPUs": format_cpu_list(&self.reserved_cpus_of(machine)),
            "topologyManagerPolicy": self.topology_manager_policy,
            "topologyManagerScope": self.topology_manager_scope,
            "cpuManagerPolicy": self.cpu_manager_policy,
            "memoryManagerPolicy": self.memory_manager_policy,
        });
        if let Some(fields) = managers.as_object_mut() {
            add_conditional_fields(fields, self, machine);
            for (key, value) in &self.extra {
                fields.insert(key.clone(), value.clone());
            }
        }
        managers
    }
}

/// A taint that a node registers with.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Taint {
    /// Key.
    pub key: String,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: String,
}

/// Adds the fields that a kubelet rejects or validates if they are present without their policy.
fn add_conditional_fields(
    fields: &mut Map<String, Value>,
    settings: &KubeletSettings,
    machine: &Machine,
) {
    if settings.memory_manager_policy == MemoryPolicy::Static {
        let reserved: Vec<Value> = (0..machine.zones().len())
            .map(|zone| json!({ "numaNode": zone, "limits": { "memory": bytes(settings.reserved_memory_per_zone) } }))
            .collect();
        fields.insert("reservedMemory".to_owned(), Value::Array(reserved));
    }
    for (key, options) in [
        (
            "topologyManagerPolicyOptions",
            &settings.topology_manager_policy_options,
        ),
        (
            "cpuManagerPolicyOptions",
            &settings.cpu_manager_policy_options,
        ),
    ] {
        if !options.is_empty() {
            fields.insert(key.to_owned(), json!(options));
        }
    }
}

/// Formats a byte count as a quantity: in Mi if it is a multiple of that, otherwise in bytes.
fn bytes(count: u64) -> String {
    if count.is_multiple_of(MIB) {
        format!("{}Mi", count / MIB)
    } else {
        count.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(settings: &KubeletSettings) -> Value {
        let socket = Path::new("/c/nodes/n/cri.sock");
        settings.configuration(&Machine::default_profile(), socket, &[])
    }

    #[test]
    fn memory_reserved_in_zones_equals_system_reservation_and_eviction() {
        let config = rendered(&KubeletSettings::default());
        assert_eq!(config["systemReserved"]["memory"], "1948Mi");
        assert_eq!(config["evictionHard"]["memory.available"], "100Mi");
        assert_eq!(
            config["reservedMemory"][1],
            json!({ "numaNode": 1, "limits": { "memory": "1024Mi" } })
        );
        assert_eq!(config["reservedSystemCPUs"], "0,12,24,36");
        assert_eq!(config["topologyManagerPolicy"], "single-numa-node");
        assert_eq!(config["memoryManagerPolicy"], "Static");
    }

    #[test]
    fn kubelet_keeps_images_and_pods_however_full_the_host_is() {
        let config = rendered(&KubeletSettings::default());
        assert_eq!(config["imageGCHighThresholdPercent"], 100);
        let evictions = config["evictionHard"].as_object().unwrap();
        assert_eq!(evictions.keys().collect::<Vec<_>>(), ["memory.available"]);
    }

    #[test]
    fn unmanaged_kubelet_has_no_zone_reservations() {
        let config = rendered(&KubeletSettings::unmanaged());
        assert!(config.get("reservedMemory").is_none());
        assert_eq!(config["cpuManagerPolicy"], "none");
        assert_eq!(config["memoryManagerPolicy"], "None");
    }

    #[test]
    fn extra_fields_win() {
        let mut settings = KubeletSettings::with_scope(TopologyScope::Pod);
        settings.extra.insert("maxPods".to_owned(), json!(7));
        settings
            .extra
            .insert("readOnlyPort".to_owned(), json!(10255));
        let config = rendered(&settings);
        assert_eq!(config["topologyManagerScope"], "pod");
        assert_eq!(config["maxPods"], 7);
        assert_eq!(config["readOnlyPort"], 10255);
    }
}
