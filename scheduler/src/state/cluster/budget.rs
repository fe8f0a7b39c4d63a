//! Disruption budgets.

use std::collections::BTreeSet;

use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::Cluster;
use crate::state::pod::PodKey;

/// A PodDisruptionBudget.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Budget {
    /// Selector of the pods that it covers. An absent or empty one covers nothing.
    pub selector: Option<LabelSelector>,
    /// How many of them may be disrupted now.
    pub allowed: i32,
    /// Names of pods whose disruption is in progress and already counted.
    pub disrupted: BTreeSet<String>,
}

impl Budget {
    /// Reads a budget with its namespace and name. Returns `None` for objects without them, which no API server sends.
    pub fn read(wire: PodDisruptionBudget) -> Option<(PodKey, Self)> {
        let key = PodKey {
            namespace: wire.metadata.namespace?,
            name: wire.metadata.name?,
        };
        let status = wire.status.unwrap_or_default();
        let budget = Self {
            selector: wire.spec.and_then(|spec| spec.selector),
            allowed: status.disruptions_allowed,
            disrupted: status
                .disrupted_pods
                .into_iter()
                .flatten()
                .map(|(name, _)| name)
                .collect(),
        };
        Some((key, budget))
    }
}

impl Cluster {
    /// Iterates over all disruption budgets with their namespaces and names.
    pub fn budgets(&self) -> impl Iterator<Item = (&PodKey, &Budget)> {
        self.budgets.iter()
    }

    /// Adds or updates a disruption budget.
    pub fn apply_budget(&mut self, key: PodKey, budget: Budget) {
        self.budgets.insert(key, budget);
    }

    /// Removes a disruption budget.
    pub fn delete_budget(&mut self, key: &PodKey) {
        self.budgets.remove(key);
    }

    /// Keeps only the listed disruption budgets.
    pub fn retain_budgets(&mut self, keys: &BTreeSet<PodKey>) {
        self.budgets.retain(|key, _| keys.contains(key));
    }
}
