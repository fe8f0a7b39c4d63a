//! Counters of the controllers, with the names that dashboards for Kubernetes controllers expect.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

/// Labels of [`Metrics::reconciliations`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Reconciliation {
    pub(crate) controller: &'static str,
    pub(crate) result: &'static str,
}

/// Labels of [`Metrics::adds`]. The queue of a controller has the controller's name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Queue {
    pub(crate) controller: &'static str,
    pub(crate) name: &'static str,
}

/// All metrics of the operator.
#[derive(Clone, Debug, Default)]
pub(crate) struct Metrics {
    pub(crate) reconciliations: Family<Reconciliation, Counter>,
    /// Requests taken from the queues. Requests for the same object that wait at the same time count as one.
    pub(crate) adds: Family<Queue, Counter>,
    pub(crate) lost_events: Counter,
}

impl Metrics {
    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register(
            "controller_runtime_reconcile",
            "Reconciliations by controller and result",
            self.reconciliations.clone(),
        );
        registry.register(
            "workqueue_adds",
            "Requests that were handled by controller",
            self.adds.clone(),
        );
        registry.register(
            "numaresources_operator_lost_events",
            "Events about the resources that could not be written to the API server",
            self.lost_events.clone(),
        );
    }

    pub(crate) fn count(&self, controller: &'static str, result: &'static str) {
        let queue = Queue {
            controller,
            name: controller,
        };
        self.adds.get_or_create(&queue).inc();
        self.reconciliations
            .get_or_create(&Reconciliation { controller, result })
            .inc();
    }
}
