//! Annotation keys and the values that switch something on (operator.md 3.1; rte.md 5).

/// On either custom resource: stop after the name check, leave the status alone. Value [`ENABLED`].
pub const PAUSE_RECONCILIATION: &str = "config.numa-operator.openshift.io/pause-reconciliation";
/// On the operator resource: with value [`CLUSTER`] the NRT definition is never installed or updated.
pub const NRT_API_DEFINITION: &str = "config.numa-operator.openshift.io/nrt-api-definition";
/// On the scheduler resource: with value [`GUARANTEED`] its container gets requests equal to limits.
pub const SCHEDULER_QOS_REQUEST: &str = "config.numa-operator.openshift.io/scheduler-qos-request";
/// On the operator resource: tolerate more than one machine config pool for a node group. Value [`ENABLED`].
pub const MULTIPLE_POOLS_PER_TREE: &str = "config.node.openshift-kni.io/multiple-pools-per-tree";
/// In a node group's `annotations`: legacy SELinux policy by a machine configuration. Value [`CUSTOM`].
pub const SELINUX_POLICY: &str = "config.node.openshift-kni.io/selinux-policy";

/// On the ConfigMap of a pool, plain Kubernetes only: nodes whose kubelets are set up otherwise than those of the others, and how; empty
/// when there are none.
pub const DIFFERING_KUBELETS: &str = "nodegroup.nodetopology.openshift.io/differing-kubelets";

/// Value of [`PAUSE_RECONCILIATION`] and [`MULTIPLE_POOLS_PER_TREE`].
pub const ENABLED: &str = "enabled";
/// Value of [`NRT_API_DEFINITION`].
pub const CLUSTER: &str = "cluster";
/// Value of [`SCHEDULER_QOS_REQUEST`].
pub const GUARANTEED: &str = "guaranteed";
/// Value of [`SELINUX_POLICY`].
pub const CUSTOM: &str = "custom";

/// On pod templates: hash of the configuration that the pods read, so that a change of it rolls them.
pub const CONFIG_MAP_HASH: &str = "configmap.hash";

/// On an NRT: what caused the last update, [`UPDATE_PERIODIC`] or [`UPDATE_REACTIVE`].
pub const RTE_UPDATE: &str = "k8stopoawareschedwg/rte-update";
/// Value of [`RTE_UPDATE`]: the timer.
pub const UPDATE_PERIODIC: &str = "periodic";
/// Value of [`RTE_UPDATE`]: start, or a notification.
pub const UPDATE_REACTIVE: &str = "reactive";
/// On an NRT: fingerprint of the pods that it accounts for (also an attribute).
pub const POD_FINGERPRINT: &str = "topology.node.k8s.io/fingerprint";
/// On an NRT, with exposed timing: time since the previous event (Go duration).
pub const SLEEP_DURATION: &str = "k8stopoawareschedwg/sleep-duration";
/// On an NRT, with exposed timing: timer interval of the event (Go duration).
pub const UPDATE_INTERVAL: &str = "k8stopoawareschedwg/update-interval";

/// Approval that the API server demands for definitions in the protected `k8s.io` groups.
pub const API_APPROVED: &str = "api-approved.kubernetes.io";
