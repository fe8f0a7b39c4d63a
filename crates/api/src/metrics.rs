//! Names of the exporter's metrics, which dashboards and tests match (rte.md 8.2).

/// Port of the exporter's metrics, TCP.
pub const RTE_PORT: u16 = 2112;
/// Counter by `node`, `function_name`.
pub const POD_RESOURCES_FAILURES: &str = "rte_podresource_api_call_failures_total";
/// Counter by `node`, `operation`, `trigger`.
pub const NRT_WRITES: &str = "rte_noderesourcetopology_writes_total";
/// Gauge in milliseconds by `node`, `operation_name`, `trigger`.
pub const OPERATION_DELAY: &str = "rte_operation_delay_milliseconds";
/// Gauge in milliseconds by `node`, `trigger`.
pub const WAKEUP_DELAY: &str = "rte_wakeup_delay_milliseconds";
/// Counter by `node`, `trigger`.
pub const NRT_PATCH_FAILURES: &str = "rte_noderesourcetopology_patch_failures_total";
/// Histogram by `node`: bytes of the patch over bytes of the object.
pub const NRT_PATCH_SIZE_RATIO: &str = "rte_noderesourcetopology_patch_size_ratio";
