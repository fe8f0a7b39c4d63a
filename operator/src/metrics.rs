//! Metrics of the controllers, with the names and labels of the Go library that the original is written with (operator.md 8).
//!
//! What that library says of its queues' lengths and waits is not here: ours tells nothing of its queue.

use std::time::{Duration, Instant};

use daemon::metrics::Shared;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// Bounds of the time of a reconciliation, in seconds.
const RECONCILE_SECONDS: [f64; 40] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9,
    1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0,
    25.0, 30.0, 40.0, 50.0, 60.0,
];
/// Bounds of the time of a queue's work, in seconds.
const WORK_SECONDS: [f64; 12] = [
    1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0, 1000.0,
];

/// How a reconciliation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// Nothing is left to do.
    Well,
    /// It is to be done again after a while.
    Again,
    /// It failed, and is tried again.
    Failed,
}

impl Ended {
    const ALL: [Self; 3] = [Self::Well, Self::Again, Self::Failed];

    fn label(self) -> &'static str {
        match self {
            Self::Well => "success",
            Self::Again => "requeue_after",
            Self::Failed => "error",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reconciliation {
    controller: &'static str,
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Controller {
    controller: &'static str,
}

/// The queue of a controller has the controller's name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Queue {
    controller: &'static str,
    name: &'static str,
}

/// All metrics of the operator. Clones share the values.
#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    pub(crate) shared: Shared,
    reconciliations: Family<Reconciliation, Counter>,
    errors: Family<Controller, Counter>,
    seconds: Family<Controller, Histogram>,
    active: Family<Controller, Gauge>,
    concurrent: Family<Controller, Gauge>,
    /// Requests taken from the queues. Requests for the same object that wait at the same time count as one.
    adds: Family<Queue, Counter>,
    retries: Family<Queue, Counter>,
    work_seconds: Family<Queue, Histogram>,
    pub(crate) lost_events: Counter,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            shared: Shared::default(),
            reconciliations: Family::default(),
            errors: Family::default(),
            seconds: Family::new_with_constructor(|| Histogram::new(RECONCILE_SECONDS)),
            active: Family::default(),
            concurrent: Family::default(),
            adds: Family::default(),
            retries: Family::default(),
            work_seconds: Family::new_with_constructor(|| Histogram::new(WORK_SECONDS)),
            lost_events: Counter::default(),
        }
    }
}

impl Metrics {
    pub(crate) fn register(&self, registry: &mut Registry) {
        self.shared.register(registry);
        registry.register(
            "controller_runtime_reconcile",
            "Reconciliations by controller and result",
            self.reconciliations.clone(),
        );
        registry.register(
            "controller_runtime_reconcile_errors",
            "Failed reconciliations by controller",
            self.errors.clone(),
        );
        registry.register(
            "controller_runtime_reconcile_time_seconds",
            "Time of a reconciliation by controller",
            self.seconds.clone(),
        );
        registry.register(
            "controller_runtime_active_workers",
            "Reconciliations in progress by controller",
            self.active.clone(),
        );
        registry.register(
            "controller_runtime_max_concurrent_reconciles",
            "Greatest number of reconciliations in progress by controller",
            self.concurrent.clone(),
        );
        registry.register(
            "workqueue_adds",
            "Requests that were handled by controller",
            self.adds.clone(),
        );
        registry.register(
            "workqueue_retries",
            "Requests that are handled again after a failure, by controller",
            self.retries.clone(),
        );
        registry.register(
            "workqueue_work_duration_seconds",
            "Time that a request takes to be handled, by controller",
            self.work_seconds.clone(),
        );
        registry.register(
            "numaresources_operator_lost_events",
            "Events about the resources that could not be written to the API server",
            self.lost_events.clone(),
        );
    }

    /// Makes the metrics of a controller begin at 0, so that the first failure is an increase.
    pub(crate) fn start(&self, controller: &'static str, concurrent: u16) {
        for ended in Ended::ALL {
            let result = ended.label();
            let labels = Reconciliation { controller, result };
            drop(self.reconciliations.get_or_create(&labels));
        }
        let labels = Controller { controller };
        drop(self.errors.get_or_create(&labels));
        drop(self.active.get_or_create(&labels));
        self.concurrent
            .get_or_create(&labels)
            .set(i64::from(concurrent));
    }

    /// Notes that a reconciliation begins.
    pub(crate) fn begin(&self, controller: &'static str) -> Running {
        let name = controller;
        self.adds.get_or_create(&Queue { controller, name }).inc();
        self.active.get_or_create(&Controller { controller }).inc();
        Running {
            metrics: self.clone(),
            controller,
            since: Instant::now(),
        }
    }

    fn end(&self, controller: &'static str, ended: Ended, time: Duration) {
        let (labels, name) = (Controller { controller }, controller);
        let queue = Queue { controller, name };
        let result = ended.label();
        self.reconciliations
            .get_or_create(&Reconciliation { controller, result })
            .inc();
        if ended == Ended::Failed {
            self.errors.get_or_create(&labels).inc();
            self.retries.get_or_create(&queue).inc();
        }
        let seconds = time.as_secs_f64();
        self.seconds.get_or_create(&labels).observe(seconds);
        self.work_seconds.get_or_create(&queue).observe(seconds);
    }
}

/// A reconciliation in progress; dropped, it is no longer.
#[derive(Debug)]
pub(crate) struct Running {
    metrics: Metrics,
    controller: &'static str,
    since: Instant,
}

impl Running {
    /// Notes how it ended.
    pub(crate) fn end(self, ended: Ended) {
        self.metrics
            .end(self.controller, ended, self.since.elapsed());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let controller = self.controller;
        self.metrics
            .active
            .get_or_create(&Controller { controller })
            .dec();
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;

    use super::*;

    fn text(metrics: &Metrics) -> String {
        let mut registry = Registry::default();
        metrics.register(&mut registry);
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        text
    }

    #[test]
    fn names_and_labels_are_those_of_the_go_library() {
        let metrics = Metrics::default();
        metrics.start("c", 1);
        let begun = text(&metrics);
        metrics.begin("c").end(Ended::Failed);
        metrics.begin("c").end(Ended::Again);
        let running = metrics.begin("c");
        let during = text(&metrics);
        drop(running);
        for (text, lines) in [
            (
                &begun,
                vec![
                    r#"controller_runtime_reconcile_total{controller="c",result="error"} 0"#,
                    r#"controller_runtime_reconcile_errors_total{controller="c"} 0"#,
                    r#"controller_runtime_max_concurrent_reconciles{controller="c"} 1"#,
                ],
            ),
            (
                &during,
                vec![
                    r#"controller_runtime_reconcile_total{controller="c",result="error"} 1"#,
                    r#"controller_runtime_reconcile_total{controller="c",result="requeue_after"} 1"#,
                    r#"controller_runtime_reconcile_total{controller="c",result="success"} 0"#,
                    r#"controller_runtime_reconcile_errors_total{controller="c"} 1"#,
                    r#"controller_runtime_reconcile_time_seconds_count{controller="c"} 2"#,
                    r#"controller_runtime_active_workers{controller="c"} 1"#,
                    r#"workqueue_adds_total{controller="c",name="c"} 3"#,
                    r#"workqueue_retries_total{controller="c",name="c"} 1"#,
                    r#"workqueue_work_duration_seconds_count{controller="c",name="c"} 2"#,
                ],
            ),
        ] {
            for line in lines {
                assert!(
                    text.lines().any(|found| found == line),
                    "{line} not in\n{text}"
                );
            }
        }
        let idle = r#"controller_runtime_active_workers{controller="c"} 0"#;
        assert!(self::text(&metrics).contains(idle));
    }
}
