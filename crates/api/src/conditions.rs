//! Condition types and reasons of the custom resources and of the exporter's pod (operator.md 3; rte.md 8.1).

/// The operands are in place and ready.
pub const AVAILABLE: &str = "Available";
/// The operator may be replaced by a newer one.
pub const UPGRADEABLE: &str = "Upgradeable";
/// Work is going on.
pub const PROGRESSING: &str = "Progressing";
/// Something is wrong; the message says what.
pub const DEGRADED: &str = "Degraded";
/// The four types that every status carries, in this order.
pub const BASE: [&str; 4] = [AVAILABLE, UPGRADEABLE, PROGRESSING, DEGRADED];

/// Extra condition of the operator resource: machine config pools that are paused.
pub const MACHINE_CONFIG_POOL_PAUSED: &str = "MachineConfigPoolPaused";
/// Extra condition of the scheduler resource: the scheduler has its own pod informer.
pub const DEDICATED_INFORMER_ACTIVE: &str = "DedicatedInformerActive";

/// Degraded because the operator resource has a name other than the singleton's.
pub const REASON_INCORRECT_OPERATOR_NAME: &str = "IncorrectNUMAResourcesOperatorResourceName";
/// Degraded because the scheduler resource has a name other than the singleton's.
pub const REASON_INCORRECT_SCHEDULER_NAME: &str = "IncorrectNUMAResourcesSchedulerResourceName";
/// Degraded because the node groups contradict themselves or select nothing.
pub const REASON_NODE_GROUPS: &str = "ValidationErrorUnderNodeGroups";
/// Degraded because an exporter image was given and that is not allowed.
pub const REASON_CUSTOM_USER_IMAGE: &str = "CustomUserImage";
/// Degraded because the scheduler image is not pinned to a trusted digest.
pub const REASON_INVALID_SCHEDULER_IMAGE: &str = "InvalidSchedulerImage";
/// Degraded because kubelets of one pool are set up differently (plain Kubernetes only).
pub const REASON_MIXED_POOL: &str = "MixedKubeletSettings";
/// Degraded because a call or an object failed.
pub const REASON_INTERNAL_ERROR: &str = "InternalError";

/// Readiness gate of exporter pods: the last scan of the node worked.
pub const POD_RESOURCES_FETCHED: &str = "PodresourcesFetched";
/// Readiness gate of exporter pods: the last write of the NRT worked.
pub const NODE_TOPOLOGY_UPDATED: &str = "NodeTopologyUpdated";
/// Reason when [`POD_RESOURCES_FETCHED`] is False.
pub const REASON_SCAN_FAILED: &str = "ScanFailed";
/// Reason when [`NODE_TOPOLOGY_UPDATED`] is False.
pub const REASON_UPDATE_FAILED: &str = "UpdateFailed";
