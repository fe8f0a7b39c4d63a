//! Annotation keys, and the values that enable a behaviour (operator.md 3.1; rte.md 5).

/// On either custom resource: reconciliation stops after the name check and leaves the status alone. Value [`ENABLED`].
pub const PAUSE_RECONCILIATION: &str = "config.numa-operator.openshift.io/pause-reconciliation";
/// On the operator resource: with value [`CLUSTER`] the operator never installs or updates the NRT definition.
pub const NRT_API_DEFINITION: &str = "config.numa-operator.openshift.io/nrt-api-definition";
/// On the scheduler resource: with value [`GUARANTEED`] the scheduler container gets requests equal to its limits.
pub const SCHEDULER_QOS_REQUEST: &str = "config.numa-operator.openshift.io/scheduler-qos-request";
/// On the operator resource: a node group may select more than one machine config pool. Value [`ENABLED`].
pub const MULTIPLE_POOLS_PER_TREE: &str = "config.node.openshift-kni.io/multiple-pools-per-tree";
/// In a node group's `annotations`: a machine configuration installs the legacy SELinux policy. Value [`CUSTOM`].
pub const SELINUX_POLICY: &str = "config.node.openshift-kni.io/selinux-policy";

/// On the ConfigMap of a pool, plain Kubernetes only: the nodes whose kubelet settings differ from those of the other nodes, and how they
/// differ. Empty when there are none.
pub const DIFFERING_KUBELETS: &str = "nodegroup.nodetopology.openshift.io/differing-kubelets";

/// On the scheduler's Deployment: the image that this operator let in. A Deployment without it was written by another operator.
pub const TRUSTED_IMAGE: &str = "config.numa-operator.openshift.io/trusted-image";

/// Value of [`PAUSE_RECONCILIATION`] and [`MULTIPLE_POOLS_PER_TREE`].
pub const ENABLED: &str = "enabled";
/// Value of [`NRT_API_DEFINITION`].
pub const CLUSTER: &str = "cluster";
/// Value of [`SCHEDULER_QOS_REQUEST`].
pub const GUARANTEED: &str = "guaranteed";
/// Value of [`SELINUX_POLICY`].
pub const CUSTOM: &str = "custom";

/// On pod templates: hash of the configuration that the pods read. A changed configuration changes the template, which triggers a rollout.
pub const CONFIG_MAP_HASH: &str = "configmap.hash";

/// On an NRT: the trigger of the last update, [`UPDATE_PERIODIC`] or [`UPDATE_REACTIVE`].
pub const RTE_UPDATE: &str = "k8stopoawareschedwg/rte-update";
/// Value of [`RTE_UPDATE`]: the timer.
pub const UPDATE_PERIODIC: &str = "periodic";
/// Value of [`RTE_UPDATE`]: the start of the exporter, or a notification.
pub const UPDATE_REACTIVE: &str = "reactive";
/// On an NRT: fingerprint of the pods that the object accounts for (also published as an attribute).
pub const POD_FINGERPRINT: &str = "topology.node.k8s.io/fingerprint";
/// On an NRT, with exposed timing: time since the previous event (Go duration).
pub const SLEEP_DURATION: &str = "k8stopoawareschedwg/sleep-duration";
/// On an NRT, with exposed timing: timer interval of the event (Go duration).
pub const UPDATE_INTERVAL: &str = "k8stopoawareschedwg/update-interval";

/// Approval that the API server requires for definitions in the protected `k8s.io` groups.
pub const API_APPROVED: &str = "api-approved.kubernetes.io";
