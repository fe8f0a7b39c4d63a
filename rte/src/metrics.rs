//! The exporter's metrics (rte.md 8.2); `server` serves them. Unlike upstream, patches count as writes, failed and retried writes have counters, and the time of
//! the last successful publication is exported.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use api::metrics as names;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

pub(crate) mod server;

type Milliseconds = Gauge<f64, AtomicU64>;

/// Label `node`, and one or two others by metric.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Call {
    node: String,
    function_name: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Write {
    node: String,
    operation: &'static str,
    trigger: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
#[expect(
    clippy::struct_field_names,
    reason = "fields are label names, which others match"
)]
struct Operation {
    node: String,
    operation_name: &'static str,
    trigger: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Wakeup {
    node: String,
    trigger: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Failure {
    node: String,
    operation: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Unzoned {
    node: String,
    resource: String,
    kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct NodeOnly {
    node: String,
}

/// All metrics of one exporter. Clones share the values.
#[derive(Clone, Debug)]
pub struct Metrics {
    node: String,
    call_failures: Family<Call, Counter>,
    writes: Family<Write, Counter>,
    operation_delay: Family<Operation, Milliseconds>,
    wakeup_delay: Family<Wakeup, Milliseconds>,
    patch_failures: Family<Wakeup, Counter>,
    patch_size: Family<NodeOnly, Histogram>,
    write_failures: Family<Failure, Counter>,
    retries: Family<Failure, Counter>,
    last_publish: Family<NodeOnly, Milliseconds>,
    unzoned: Family<Unzoned, Gauge>,
}

impl Metrics {
    /// Creates the metrics of `node` and registers them.
    pub fn new(node: &str, registry: &mut Registry) -> Self {
        let metrics = Self {
            node: node.to_owned(),
            call_failures: Family::default(),
            writes: Family::default(),
            operation_delay: Family::default(),
            wakeup_delay: Family::default(),
            patch_failures: Family::default(),
            patch_size: Family::new_with_constructor(|| {
                Histogram::new((1..=10).map(|tenth| f64::from(tenth) / 10.0))
            }),
            write_failures: Family::default(),
            retries: Family::default(),
            last_publish: Family::default(),
            unzoned: Family::default(),
        };
        // the library appends `_total` to the names of counters
        let counter = |name: &str| name.strip_suffix("_total").unwrap_or(name).to_owned();
        registry.register(
            counter(names::POD_RESOURCES_FAILURES),
            "Failed calls of the podresources API",
            metrics.call_failures.clone(),
        );
        registry.register(
            counter(names::NRT_WRITES),
            "Writes of the NodeResourceTopology object",
            metrics.writes.clone(),
        );
        registry.register(
            names::OPERATION_DELAY,
            "Duration of the last operation, in milliseconds",
            metrics.operation_delay.clone(),
        );
        registry.register(
            names::WAKEUP_DELAY,
            "Time between the last two events, in milliseconds",
            metrics.wakeup_delay.clone(),
        );
        registry.register(
            counter(names::NRT_PATCH_FAILURES),
            "Failed patches of the NodeResourceTopology object",
            metrics.patch_failures.clone(),
        );
        registry.register(
            names::NRT_PATCH_SIZE_RATIO,
            "Size of patches relative to the whole object",
            metrics.patch_size.clone(),
        );
        registry.register(
            "rte_noderesourcetopology_write_failures",
            "Failed publications by last action",
            metrics.write_failures.clone(),
        );
        registry.register(
            "rte_retries",
            "Scans and publications that were tried again after a failure",
            metrics.retries.clone(),
        );
        registry.register(
            "rte_last_publish_timestamp_seconds",
            "When the published content was last known to be correct, in seconds since the epoch",
            metrics.last_publish.clone(),
        );
        registry.register(
            "rte_resources_without_numa_node",
            "Units of resources without a NUMA node, which no zone shows",
            metrics.unzoned.clone(),
        );
        metrics
    }

    /// Counts a failed call of the kubelet.
    pub fn call_failed(&self, function_name: &'static str) {
        let node = self.node.clone();
        self.call_failures
            .get_or_create(&Call {
                node,
                function_name,
            })
            .inc();
    }

    /// Counts a write of the object.
    pub fn count_write(&self, operation: &'static str, trigger: &'static str) {
        let node = self.node.clone();
        self.writes
            .get_or_create(&Write {
                node,
                operation,
                trigger,
            })
            .inc();
    }

    /// Records the duration of a step.
    pub fn record_duration(
        &self,
        operation_name: &'static str,
        trigger: &'static str,
        time: Duration,
    ) {
        let node = self.node.clone();
        self.operation_delay
            .get_or_create(&Operation {
                node,
                operation_name,
                trigger,
            })
            .set(time.as_secs_f64() * 1000.0);
    }

    /// Records the time between an event and the previous one.
    pub fn record_wakeup(&self, trigger: &'static str, since_previous: Duration) {
        let node = self.node.clone();
        self.wakeup_delay
            .get_or_create(&Wakeup { node, trigger })
            .set(since_previous.as_secs_f64() * 1000.0);
    }

    /// Counts a patch that could not be computed or sent.
    pub fn patch_failed(&self, reason: &'static str) {
        let node = self.node.clone();
        self.patch_failures
            .get_or_create(&Wakeup {
                node,
                trigger: reason,
            })
            .inc();
    }

    /// Records the size of a patch relative to the size of the object, both in bytes.
    pub fn record_patch_size(&self, patch: usize, whole: usize) {
        let node = self.node.clone();
        self.patch_size
            .get_or_create(&NodeOnly { node })
            .observe(patch as f64 / whole.max(1) as f64);
    }

    /// Counts a failed publication.
    pub fn write_failed(&self, operation: &'static str) {
        let node = self.node.clone();
        self.write_failures
            .get_or_create(&Failure { node, operation })
            .inc();
    }

    /// Counts a retry of a scan or publication.
    pub fn retried(&self, operation: &'static str) {
        let node = self.node.clone();
        self.retries
            .get_or_create(&Failure { node, operation })
            .inc();
    }

    /// Records by resource the units without a NUMA node: how many are allocatable, and how many are held.
    pub fn unzoned(&self, amounts: &BTreeMap<String, (i64, i64)>) {
        self.unzoned.clear();
        for (resource, (allocatable, held)) in amounts {
            for (kind, amount) in [("allocatable", allocatable), ("held", held)] {
                self.unzoned
                    .get_or_create(&Unzoned {
                        node: self.node.clone(),
                        resource: resource.clone(),
                        kind,
                    })
                    .set(*amount);
            }
        }
    }

    /// Records that the published content was correct at `now`.
    pub fn published(&self, now: SystemTime) {
        let node = self.node.clone();
        let since_epoch = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        self.last_publish
            .get_or_create(&NodeOnly { node })
            .set(since_epoch.as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_labels_are_those_that_dashboards_know() {
        let mut registry = Registry::default();
        let metrics = Metrics::new("worker-0", &mut registry);
        metrics.call_failed("list");
        metrics.count_write("create", "reactive");
        metrics.record_duration("podresources_scan", "periodic", Duration::from_millis(1500));
        metrics.record_wakeup("periodic", Duration::from_secs(10));
        metrics.patch_failed("send_patch");
        metrics.record_patch_size(25, 100);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for line in [
            "rte_podresource_api_call_failures_total{node=\"worker-0\",function_name=\"list\"} 1",
            "rte_noderesourcetopology_writes_total{node=\"worker-0\",operation=\"create\",trigger=\"reactive\"} 1",
            "rte_operation_delay_milliseconds{node=\"worker-0\",operation_name=\"podresources_scan\",trigger=\"periodic\"} 1500.0",
            "rte_wakeup_delay_milliseconds{node=\"worker-0\",trigger=\"periodic\"} 10000.0",
            "rte_noderesourcetopology_patch_failures_total{node=\"worker-0\",trigger=\"send_patch\"} 1",
            "rte_noderesourcetopology_patch_size_ratio_bucket{le=\"0.3\",node=\"worker-0\"} 1",
        ] {
            assert!(
                text.lines().any(|found| found == line),
                "{line} not in\n{text}"
            );
        }
    }
}
