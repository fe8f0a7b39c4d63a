//! Names of NRT attributes, of the object and of its zones (rte.md 5; scheduler.md 3.2).

/// Topology manager scope of the kubelet: `container` or `pod`.
pub const TOPOLOGY_MANAGER_SCOPE: &str = "topologyManagerScope";
/// Topology manager policy of the kubelet: `none`, `best-effort`, `restricted` or `single-numa-node`.
pub const TOPOLOGY_MANAGER_POLICY: &str = "topologyManagerPolicy";
/// Largest number of NUMA nodes that the topology manager aligns (decimal, above 1).
pub const TOPOLOGY_MANAGER_MAX_NUMA_NODES: &str = "topologyManagerMaxNUMANodes";
/// CPU manager policy of the kubelet: `none` or `static`. This attribute and the next three are ours: the original does not publish them.
pub const CPU_MANAGER_POLICY: &str = "cpuManagerPolicy";
/// Number of CPUs of a core (decimal); present with the CPU manager option `full-pcpus-only`.
pub const CPU_MANAGER_FULL_PCPUS_ONLY: &str = "cpuManagerFullPCPUsOnly";
/// Number of CPUs of a core (decimal); present where the CPU manager takes the whole cores of a zone in one order, whatever their number,
/// so that of two such requests to the same CPUs the larger one gets all that the smaller one gets (kubelet-node.md 6.4).
pub const CPU_MANAGER_PACKED_CORES: &str = "cpuManagerPackedCores";
/// Memory manager policy of the kubelet: `None` or `Static`.
pub const MEMORY_MANAGER_POLICY: &str = "memoryManagerPolicy";
/// Fingerprint of the pods that the object accounts for.
pub const POD_FINGERPRINT: &str = "nodeTopologyPodsFingerprint";
/// Which pods the fingerprint covers: [`FINGERPRINT_ALL`] or [`FINGERPRINT_EXCLUSIVE`].
pub const POD_FINGERPRINT_METHOD: &str = "nodeTopologyPodsFingerprintMethod";
/// Value of [`POD_FINGERPRINT_METHOD`]: every pod.
pub const FINGERPRINT_ALL: &str = "all";
/// Value of [`POD_FINGERPRINT_METHOD`]: only pods that hold exclusive resources.
pub const FINGERPRINT_EXCLUSIVE: &str = "with-exclusive-resources";
/// On the object: how the placement vectors of its zones are encoded.
pub const NUMA_PLACEMENT_METADATA: &str = "topology.node.k8s.io/numaplacement-metadata";
/// On a zone: the encoded placement of containers.
pub const NUMA_PLACEMENT_VECTOR: &str = "topology.node.k8s.io/numaplacement-vector";
