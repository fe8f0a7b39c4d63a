//! Arguments of DefaultPreemption.

use serde::{Deserialize, Serialize};

use super::{PluginArgs, invalid};

/// How many nodes DefaultPreemption tries.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct DefaultPreemptionArgs {
    /// Minimum number of candidates, in percent of the nodes.
    pub min_candidate_nodes_percentage: usize,
    /// Minimum number of candidates.
    pub min_candidate_nodes_absolute: usize,
}

impl Default for DefaultPreemptionArgs {
    fn default() -> Self {
        Self {
            min_candidate_nodes_percentage: 10,
            min_candidate_nodes_absolute: 100,
        }
    }
}

impl PluginArgs for DefaultPreemptionArgs {
    const PLUGIN: &'static str = "DefaultPreemption";

    fn validate(&self) -> Result<(), (String, String)> {
        let (percentage, absolute) = (
            self.min_candidate_nodes_percentage,
            self.min_candidate_nodes_absolute,
        );
        if percentage > 100 {
            return invalid(
                "minCandidateNodesPercentage",
                percentage,
                "not in valid range [0, 100]",
            );
        }
        if percentage == 0 && absolute == 0 {
            return invalid(
                "minCandidateNodesAbsolute",
                absolute,
                "cannot be zero at the same time as minCandidateNodesPercentage",
            );
        }
        Ok(())
    }
}
