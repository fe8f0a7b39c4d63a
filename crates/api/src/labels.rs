//! Label keys (operator.md 5.5, 6, 7).

/// On RTE ConfigMaps: name of the operator resource that they belong to.
pub const OPERATOR_NAME: &str = "numaresourcesoperator.nodetopology.openshift.io/name";
/// On RTE ConfigMaps: name of the node pool.
pub const POOL: &str = "nodegroup.nodetopology.openshift.io/machineconfigpool";
/// On nodes of a hosted cluster and on the objects for them: name of their pool (operator.md 4.5, 7).
pub const HYPERSHIFT_NODE_POOL: &str = "hypershift.openshift.io/nodePool";
/// On the ConfigMaps of a hosted cluster that hold a `KubeletConfig` (operator.md 7).
pub const HYPERSHIFT_KUBELET_CONFIG: &str = "hypershift.openshift.io/kubeletconfig-config";
/// On machine configurations: the role whose pool includes them.
pub const MACHINE_CONFIG_ROLE: &str = "machineconfiguration.openshift.io/role";
/// Prefix of node role labels. The rest of the key is the role; the value is empty.
pub const NODE_ROLE_PREFIX: &str = "node-role.kubernetes.io/";
/// Nodes of the control plane.
pub const CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";
/// Nodes of the control plane, as `OpenShift` calls them.
pub const MASTER: &str = "node-role.kubernetes.io/master";
/// Worker nodes.
pub const WORKER: &str = "node-role.kubernetes.io/worker";
/// Name of the node, set by the kubelet.
pub const HOSTNAME: &str = "kubernetes.io/hostname";
/// Label key of exporter pods, with value [`RTE_POD_VALUE`]; the same for all pools.
pub const RTE_POD: &str = "name";
/// Value of [`RTE_POD`].
pub const RTE_POD_VALUE: &str = "resource-topology";
/// Label key of scheduler pods; the value is the name of the Deployment.
pub const APP: &str = "app";

/// Returns the label that makes a node a member of a pool on plain Kubernetes.
pub fn node_role(pool: &str) -> String {
    format!("{NODE_ROLE_PREFIX}{pool}")
}
