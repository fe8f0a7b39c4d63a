//! Label keys (operator.md 5.5, 6, 7).

/// On RTE ConfigMaps: name of the operator resource that they belong to.
pub const OPERATOR_NAME: &str = "numaresourcesoperator.nodetopology.openshift.io/name";
/// On RTE ConfigMaps: name of the node pool.
pub const POOL: &str = "nodegroup.nodetopology.openshift.io/machineconfigpool";
/// Prefix of node role labels; the rest is the role and the value is empty.
pub const NODE_ROLE_PREFIX: &str = "node-role.kubernetes.io/";
/// Nodes of the control plane.
pub const CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";
/// Worker nodes.
pub const WORKER: &str = "node-role.kubernetes.io/worker";
/// Name of the node, set by the kubelet.
pub const HOSTNAME: &str = "kubernetes.io/hostname";
/// Key that exporter pods carry, with value [`RTE_POD_VALUE`]; the same for all pools.
pub const RTE_POD: &str = "name";
/// Value of [`RTE_POD`].
pub const RTE_POD_VALUE: &str = "resource-topology";
/// Key that scheduler pods carry, with the Deployment's name as value.
pub const APP: &str = "app";

/// The label that makes a node a member of a pool on plain Kubernetes.
pub fn node_role(pool: &str) -> String {
    format!("{NODE_ROLE_PREFIX}{pool}")
}
