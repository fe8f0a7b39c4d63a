//! Metrics, with the names of kube-scheduler where it has the same ones (scheduler.md 7.9).

use std::collections::BTreeMap;
use std::time::Duration;

use labels::{
    AttemptLabels, KindLabel, MoveLabels, PointLabels, QueueLabel, RejectionLabels, StateLabel,
    TriesLabel, TypeLabel, UnschedulableLabels, WriteLabels, class,
};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use crate::framework::queue::{Cause, Lengths, Part};
use crate::numa::cache::Stats;
use crate::plugins::plugin::Plugin;
use crate::plugins::rejection::Rejection;

mod labels;

pub use labels::{AttemptResult, Point, Status, Written};

/// Handles to every metric. Clones share them.
#[derive(Clone, Debug)]
pub struct Metrics {
    attempts: Family<AttemptLabels, Counter>,
    attempt_seconds: Family<AttemptLabels, Histogram>,
    algorithm_seconds: Histogram,
    point_seconds: Family<PointLabels, Histogram>,
    sli_seconds: Family<TriesLabel, Histogram>,
    attempts_per_pod: Histogram,
    preemption_attempts: Counter,
    preemption_victims: Histogram,
    pending: Family<QueueLabel, Gauge>,
    moves: Family<MoveLabels, Counter>,
    unschedulable: Family<UnschedulableLabels, Gauge>,
    cache_size: Family<TypeLabel, Gauge>,
    topology_nodes: Family<StateLabel, Gauge>,
    topology_charged: Gauge,
    topology_updates: Counter,
    rejections: Family<RejectionLabels, Counter>,
    writes: Family<WriteLabels, Counter>,
    watch_errors: Family<KindLabel, Counter>,
}

impl Metrics {
    /// Creates and registers all metrics.
    pub fn new(registry: &mut Registry) -> Self {
        let metrics = Self {
            attempts: Family::default(),
            attempt_seconds: Family::new_with_constructor(|| {
                Histogram::new(exponential_buckets(0.001, 2.0, 15))
            }),
            algorithm_seconds: Histogram::new(exponential_buckets(0.000_01, 2.0, 16)),
            point_seconds: Family::new_with_constructor(|| {
                Histogram::new(exponential_buckets(0.000_1, 2.0, 12))
            }),
            sli_seconds: Family::new_with_constructor(|| {
                Histogram::new(exponential_buckets(0.01, 2.0, 20))
            }),
            attempts_per_pod: Histogram::new(exponential_buckets(1.0, 2.0, 5)),
            preemption_attempts: Counter::default(),
            preemption_victims: Histogram::new(exponential_buckets(1.0, 2.0, 7)),
            pending: Family::default(),
            moves: Family::default(),
            unschedulable: Family::default(),
            cache_size: Family::default(),
            topology_nodes: Family::default(),
            topology_charged: Gauge::default(),
            topology_updates: Counter::default(),
            rejections: Family::default(),
            writes: Family::default(),
            watch_errors: Family::default(),
        };
        let registry = registry.sub_registry_with_prefix("scheduler");
        metrics.register_attempts(registry);
        metrics.register_queue(registry);
        metrics.register_state(registry);
        metrics
    }

    /// Registers the metrics of attempts.
    fn register_attempts(&self, registry: &mut Registry) {
        registry.register(
            "schedule_attempts",
            "Attempts to schedule pods, by result",
            self.attempts.clone(),
        );
        registry.register(
            "scheduling_attempt_duration_seconds",
            "Scheduling attempt latency (algorithm and binding)",
            self.attempt_seconds.clone(),
        );
        registry.register(
            "scheduling_algorithm_duration_seconds",
            "Scheduling algorithm latency",
            self.algorithm_seconds.clone(),
        );
        registry.register(
            "framework_extension_point_duration_seconds",
            "Time of all plugins of an extension point; Filter includes the scores that consider each node alone",
            self.point_seconds.clone(),
        );
        registry.register(
            "pod_scheduling_sli_duration_seconds",
            "Time from entering the queue to being bound",
            self.sli_seconds.clone(),
        );
        registry.register(
            "pod_scheduling_attempts",
            "Attempts that a scheduled pod needed",
            self.attempts_per_pod.clone(),
        );
        registry.register(
            "preemption_attempts",
            "Preemptions attempted",
            self.preemption_attempts.clone(),
        );
        registry.register(
            "preemption_victims",
            "Victims of a preemption",
            self.preemption_victims.clone(),
        );
    }

    /// Registers the metrics of the queue.
    fn register_queue(&self, registry: &mut Registry) {
        registry.register(
            "pending_pods",
            "Pending pods, by queue",
            self.pending.clone(),
        );
        registry.register(
            "queue_incoming_pods",
            "Pods added to a queue, by queue and event",
            self.moves.clone(),
        );
        registry.register(
            "unschedulable_pods",
            "Waiting pods for which a plugin ruled out nodes, by plugin and profile; a pod counts for each of its plugins",
            self.unschedulable.clone(),
        );
    }

    /// Registers the metrics of what is known, and of the traffic with the API server.
    fn register_state(&self, registry: &mut Registry) {
        registry.register(
            "cache_size",
            "Nodes, pods and assumed pods",
            self.cache_size.clone(),
        );
        registry.register(
            "topology_nodes",
            "Nodes with an NRT, by state: known, stale (closed to aligned pods), unmatched (newest NRT not understood)",
            self.topology_nodes.clone(),
        );
        registry.register(
            "topology_charged_pods",
            "Pods charged to zones because no NRT accounts for them yet",
            self.topology_charged.clone(),
        );
        registry.register(
            "topology_updates",
            "NRTs received",
            self.topology_updates.clone(),
        );
        registry.register(
            "node_rejections",
            "Nodes ruled out for a pod, by plugin and class of the first resource that was short: cpu, memory, hugepages, storage, device",
            self.rejections.clone(),
        );
        registry.register(
            "api_writes",
            "Events and conditions written, by result",
            self.writes.clone(),
        );
        registry.register(
            "watch_errors",
            "Failures of watches, by kind",
            self.watch_errors.clone(),
        );
    }

    /// Records a preemption with this number of victims.
    pub fn preemption(&self, victims: usize) {
        self.preemption_attempts.inc();
        self.preemption_victims.observe(victims as f64);
    }

    /// Records the end of an attempt; `duration` counts from popping the pod.
    pub fn attempt(&self, result: AttemptResult, profile: &str, duration: Duration) {
        let labels = AttemptLabels {
            result,
            profile: profile.to_owned(),
        };
        self.attempts.get_or_create(&labels).inc();
        let seconds = self.attempt_seconds.get_or_create(&labels);
        seconds.observe(duration.as_secs_f64());
    }

    /// Records that this many nodes were ruled out.
    pub fn rejection(&self, rejection: &Rejection, nodes: usize) {
        let labels = RejectionLabels {
            plugin: rejection.plugin.name(),
            resource: class(rejection.lacks.as_ref()),
        };
        self.rejections.get_or_create(&labels).inc_by(nodes as u64);
    }

    /// Records the duration of filtering and scoring.
    pub fn algorithm(&self, duration: Duration) {
        self.algorithm_seconds.observe(duration.as_secs_f64());
    }

    /// Records the duration of an extension point.
    pub fn point(&self, point: Point, status: Status, profile: &str, duration: Duration) {
        let labels = PointLabels {
            extension_point: point,
            status,
            profile: profile.to_owned(),
        };
        self.point_seconds
            .get_or_create(&labels)
            .observe(duration.as_secs_f64());
    }

    /// Records that a pod was bound, with the time since it was queued and the number of attempts.
    pub fn scheduled(&self, since_queued: Duration, attempts: u32) {
        let seconds = self.sli_seconds.get_or_create(&TriesLabel::new(attempts));
        seconds.observe(since_queued.as_secs_f64());
        self.attempts_per_pod.observe(f64::from(attempts));
    }

    /// Records whether an event or condition was written.
    pub fn write(&self, kind: Written, succeeded: bool) {
        let result = if succeeded { "success" } else { "failure" };
        self.writes
            .get_or_create(&WriteLabels { kind, result })
            .inc();
    }

    /// Records that an event or condition was not written, because too many wait to be.
    pub fn write_dropped(&self, kind: Written) {
        let result = "dropped";
        self.writes
            .get_or_create(&WriteLabels { kind, result })
            .inc();
    }

    /// Records that a watch failed and is restarted.
    pub fn watch_error(&self, kind: &'static str) {
        self.watch_errors.get_or_create(&KindLabel { kind }).inc();
    }

    /// Records that this number of pods moved to a part of the queue.
    pub fn moves(&self, part: Part, cause: Cause, count: u64) {
        let labels = MoveLabels {
            queue: part.label(),
            event: cause.label(),
        };
        self.moves.get_or_create(&labels).inc_by(count);
    }

    /// Sets the number of waiting pods for which each plugin ruled out nodes, by plugin and profile.
    pub fn unschedulable(&self, pods: &BTreeMap<(Plugin, &str), i64>) {
        self.unschedulable.clear();
        for ((plugin, profile), count) in pods {
            let labels = UnschedulableLabels {
                plugin: plugin.name(),
                profile: (*profile).to_owned(),
            };
            self.unschedulable.get_or_create(&labels).set(*count);
        }
    }

    /// Records that an NRT was received.
    pub fn topology_update(&self) {
        self.topology_updates.inc();
    }

    /// Sets the current sizes.
    pub fn sizes(
        &self,
        queue: Lengths,
        nodes: usize,
        pods: usize,
        assumed: usize,
        topology: Stats,
    ) {
        let set = |queue, length: usize| {
            self.pending
                .get_or_create(&QueueLabel { queue })
                .set(length as i64)
        };
        set("active", queue.active);
        set("backoff", queue.backoff);
        set("unschedulable", queue.unschedulable);
        set("gated", queue.gated);
        let set = |r#type, size: usize| {
            self.cache_size
                .get_or_create(&TypeLabel { r#type })
                .set(size as i64)
        };
        set("nodes", nodes);
        set("pods", pods);
        set("assumed_pods", assumed);
        let set = |state, count: usize| {
            self.topology_nodes
                .get_or_create(&StateLabel { state })
                .set(count as i64)
        };
        set("known", topology.nodes);
        set("stale", topology.stale);
        set("unmatched", topology.unmatched);
        self.topology_charged.set(topology.charged as i64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_labels_are_those_of_kube_scheduler() {
        let mut registry = Registry::default();
        let metrics = Metrics::new(&mut registry);
        metrics.attempt(
            AttemptResult::unschedulable,
            "topo",
            Duration::from_millis(1),
        );
        for attempts in [1, 14, 15, 90] {
            metrics.scheduled(Duration::from_secs(1), attempts);
        }
        metrics.sizes(
            Lengths {
                active: 2,
                ..Lengths::default()
            },
            3,
            4,
            1,
            Stats::default(),
        );
        metrics.point(Point::Bind, Status::Success, "topo", Duration::ZERO);
        metrics.moves(Part::Backoff, Cause::PodGone, 2);
        metrics.moves(Part::Backoff, Cause::PodGone, 1);
        metrics.unschedulable(&[((Plugin::NodeResourcesFit, "topo"), 7)].into());
        metrics.unschedulable(&[((Plugin::NodePorts, "topo"), 4)].into());
        for resource in ["cpu", "vendor.io/one", "vendor.io/two"] {
            let rejection = Rejection {
                lacks: Some(resource.into()),
                ..Rejection::new(Plugin::NodeResourceTopologyMatch, "cannot align pod")
            };
            metrics.rejection(&rejection, 2);
        }
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).expect("encodes");
        for line in [
            r#"scheduler_schedule_attempts_total{result="unschedulable",profile="topo"} 1"#,
            r#"scheduler_scheduling_attempt_duration_seconds_count{result="unschedulable",profile="topo"} 1"#,
            r#"scheduler_pod_scheduling_sli_duration_seconds_count{attempts="1"} 1"#,
            r#"scheduler_pod_scheduling_sli_duration_seconds_count{attempts="14"} 1"#,
            r#"scheduler_pod_scheduling_sli_duration_seconds_count{attempts="15+"} 2"#,
            "scheduler_pod_scheduling_attempts_count 4",
            r#"scheduler_pending_pods{queue="active"} 2"#,
            r#"scheduler_queue_incoming_pods_total{queue="backoff",event="AssignedPodDelete"} 3"#,
            r#"scheduler_unschedulable_pods{plugin="NodePorts",profile="topo"} 4"#,
            r#"scheduler_framework_extension_point_duration_seconds_count{extension_point="Bind",status="Success",profile="topo"} 1"#,
            r#"scheduler_cache_size{type="nodes"} 3"#,
            r#"scheduler_node_rejections_total{plugin="NodeResourceTopologyMatch",resource="cpu"} 2"#,
            r#"scheduler_node_rejections_total{plugin="NodeResourceTopologyMatch",resource="device"} 4"#,
        ] {
            assert!(text.contains(line), "{line} not in\n{text}");
        }
        assert!(!text.contains("NodeResourcesFit"), "no longer so:\n{text}");
    }
}
