//! Counters of the controllers, under the names that dashboards for Kubernetes controllers know.

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

/// All metrics of the operator.
#[derive(Clone, Debug, Default)]
pub(crate) struct Metrics {
    pub(crate) reconciliations: Family<Reconciliation, Counter>,
}

impl Metrics {
    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register(
            "controller_runtime_reconcile",
            "Reconciliations by controller and result",
            self.reconciliations.clone(),
        );
    }

    pub(crate) fn count(&self, controller: &'static str, result: &'static str) {
        self.reconciliations
            .get_or_create(&Reconciliation { controller, result })
            .inc();
    }
}
