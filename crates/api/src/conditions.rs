//! Condition types and reasons of the custom resources and of the exporter pod (operator.md 3; rte.md 8.1).

/// The operands are in place and ready.
pub const AVAILABLE: &str = "Available";
/// A newer operator may replace this one.
pub const UPGRADEABLE: &str = "Upgradeable";
/// The operator is still working on the desired state.
pub const PROGRESSING: &str = "Progressing";
/// Something is wrong; the message names it.
pub const DEGRADED: &str = "Degraded";
/// The four types that every status carries, in this order.
pub const BASE: [&str; 4] = [AVAILABLE, UPGRADEABLE, PROGRESSING, DEGRADED];

/// Extra condition of the operator resource: some machine config pools are paused.
pub const MACHINE_CONFIG_POOL_PAUSED: &str = "MachineConfigPoolPaused";
/// Extra condition of the scheduler resource: the scheduler has its own pod informer.
pub const DEDICATED_INFORMER_ACTIVE: &str = "DedicatedInformerActive";

/// Degraded because the operator resource has a name other than the singleton's.
pub const REASON_INCORRECT_OPERATOR_NAME: &str = "IncorrectNUMAResourcesOperatorResourceName";
/// Degraded because the scheduler resource has a name other than the singleton's.
pub const REASON_INCORRECT_SCHEDULER_NAME: &str = "IncorrectNUMAResourcesSchedulerResourceName";
/// Degraded because the node groups contradict themselves or select nothing.
pub const REASON_NODE_GROUPS: &str = "ValidationErrorUnderNodeGroups";
/// Degraded because the spec sets an exporter image, which is not allowed.
pub const REASON_CUSTOM_USER_IMAGE: &str = "CustomUserImage";
/// Degraded because the scheduler image is not pinned to a trusted digest.
pub const REASON_INVALID_SCHEDULER_IMAGE: &str = "InvalidSchedulerImage";
/// Degraded because the kubelets of one pool have different settings (plain Kubernetes only).
pub const REASON_MIXED_POOL: &str = "MixedKubeletSettings";
/// Degraded because a call failed or an object could not be applied.
pub const REASON_INTERNAL_ERROR: &str = "InternalError";

/// Readiness gate of exporter pods: the last scan of the node succeeded.
pub const POD_RESOURCES_FETCHED: &str = "PodresourcesFetched";
/// Readiness gate of exporter pods: the last write of the NRT succeeded.
pub const NODE_TOPOLOGY_UPDATED: &str = "NodeTopologyUpdated";
/// Reason when [`POD_RESOURCES_FETCHED`] is False.
pub const REASON_SCAN_FAILED: &str = "ScanFailed";
/// Reason when [`NODE_TOPOLOGY_UPDATED`] is False.
pub const REASON_UPDATE_FAILED: &str = "UpdateFailed";
