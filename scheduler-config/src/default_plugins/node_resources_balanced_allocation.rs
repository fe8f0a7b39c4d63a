//! Arguments of NodeResourcesBalancedAllocation.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::resources::{ResourceSpec, cpu_and_memory, resources_or_default};
use super::{PluginArgs, invalid};

/// The resources whose usage should be balanced.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct NodeResourcesBalancedAllocationArgs {
    /// The resources; their weights must be 1.
    #[serde(default = "cpu_and_memory", deserialize_with = "resources_or_default")]
    pub resources: Vec<ResourceSpec>,
}

impl Default for NodeResourcesBalancedAllocationArgs {
    fn default() -> Self {
        Self {
            resources: cpu_and_memory(),
        }
    }
}

impl PluginArgs for NodeResourcesBalancedAllocationArgs {
    const PLUGIN: &'static str = "NodeResourcesBalancedAllocation";

    fn validate(&self) -> Result<(), (String, String)> {
        let mut seen = BTreeSet::new();
        for (index, resource) in self.resources.iter().enumerate() {
            if !seen.insert(&resource.name) {
                return Err((
                    format!("resources[{index}].name"),
                    format!("Duplicate value: {:?}", resource.name),
                ));
            }
            if resource.weight != 1 {
                return invalid(
                    format!("resources[{index}].weight"),
                    resource.weight,
                    "must be 1",
                );
            }
        }
        Ok(())
    }
}
