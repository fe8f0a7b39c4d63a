//! The kinds of OpenShift.

use serde::{Deserialize, Serialize};

/// Which OpenShift.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Flavour {
    /// Machines in pools, which an operator in the cluster configures.
    Openshift,
    /// A hosted control plane: pools of nodes, configured from outside.
    Hypershift,
}

impl Flavour {
    /// Returns its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Openshift => "openshift",
            Self::Hypershift => "hypershift",
        }
    }
}
