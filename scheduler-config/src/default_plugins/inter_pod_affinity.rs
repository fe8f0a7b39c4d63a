//! Arguments of InterPodAffinity.

use serde::{Deserialize, Serialize};

use super::{PluginArgs, invalid};

/// How InterPodAffinity treats the terms of other pods.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct InterPodAffinityArgs {
    /// Score weight of a running pod's required affinity to pods like this one.
    pub hard_pod_affinity_weight: i64,
    /// Whether pods without preferences of their own ignore the preferences of running pods when they are scored.
    pub ignore_preferred_terms_of_existing_pods: bool,
}

impl Default for InterPodAffinityArgs {
    fn default() -> Self {
        Self {
            hard_pod_affinity_weight: 1,
            ignore_preferred_terms_of_existing_pods: false,
        }
    }
}

impl PluginArgs for InterPodAffinityArgs {
    const PLUGIN: &'static str = "InterPodAffinity";

    fn validate(&self) -> Result<(), (String, String)> {
        let weight = self.hard_pod_affinity_weight;
        if !(0..=100).contains(&weight) {
            return invalid(
                "hardPodAffinityWeight",
                weight,
                "not in valid range [0, 100]",
            );
        }
        Ok(())
    }
}
