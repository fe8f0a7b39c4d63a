//! Where scenarios run, as far as it decides which of them can.

use std::fmt;

use api::labels;
use serde::Deserialize;
use testbed::cli::RuntimeName;
use testbed::lane::Lane;

/// How a cluster came to be, and what its nodes are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// Of the embedded lane, brought up for the run.
    #[default]
    Embedded,
    /// Of the local lane, brought up for the run.
    Local,
    /// Of the local lane with containerd, brought up for the run.
    Containerd,
    /// Of the embedded lane, kept with the stack on it.
    KeptEmbedded,
    /// Of the local lane, kept with the stack on it.
    KeptLocal,
    /// Of the local lane with containerd, kept with the stack on it.
    KeptContainerd,
    /// Known by its kubeconfig alone.
    Kubeconfig,
}

impl Place {
    /// Returns that of a cluster of ours. A kept one was there before the run.
    pub fn of_ours(lane: Lane, runtime: RuntimeName, is_kept: bool) -> Self {
        match (lane, runtime, is_kept) {
            (Lane::Embedded, _, false) => Self::Embedded,
            (Lane::Embedded, _, true) => Self::KeptEmbedded,
            (Lane::Local, RuntimeName::Builtin, false) => Self::Local,
            (Lane::Local, RuntimeName::Builtin, true) => Self::KeptLocal,
            (Lane::Local, RuntimeName::Containerd, false) => Self::Containerd,
            (Lane::Local, RuntimeName::Containerd, true) => Self::KeptContainerd,
        }
    }

    /// Returns the name in the list of expected skips.
    pub fn name(self) -> &'static str {
        match self {
            Self::Embedded => "embedded",
            Self::Local => "local",
            Self::Containerd => "containerd",
            Self::KeptEmbedded => "kept-embedded",
            Self::KeptLocal => "kept-local",
            Self::KeptContainerd => "kept-containerd",
            Self::Kubeconfig => "kubeconfig",
        }
    }
}

/// The kind of cluster, as the operator tells them apart (operator.md 2.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Platform {
    /// None of the others.
    #[default]
    Kubernetes,
    /// Machines in pools, which an operator in the cluster configures.
    Openshift,
    /// An OpenShift with a hosted control plane: no pools of machines.
    Hypershift,
}

impl Platform {
    /// Returns the name for people.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Kubernetes => "Kubernetes",
            Self::Openshift => "OpenShift",
            Self::Hypershift => "HyperShift",
        }
    }

    /// Returns the label of the nodes of a pool, key and value: a hosted cluster has node pools in place of roles (operator.md 4.5).
    pub fn label_of_pool(self, pool: &str) -> (String, String) {
        match self {
            Self::Hypershift => (labels::HYPERSHIFT_NODE_POOL.to_owned(), pool.to_owned()),
            Self::Kubernetes | Self::Openshift => (labels::node_role(pool), String::new()),
        }
    }

    /// Returns the label of the nodes that the operator counts for the replicas of the scheduler (operator.md 5.5).
    pub fn label_of_schedulers(self) -> &'static str {
        match self {
            Self::Hypershift => labels::WORKER,
            Self::Kubernetes | Self::Openshift => labels::CONTROL_PLANE,
        }
    }
}

/// What decides which scenarios a cluster of the default size can run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    /// How the cluster came to be.
    pub place: Place,
    /// Its kind.
    pub platform: Platform,
    /// Whether the nodes of the control plane are workers, too.
    pub schedulable_control_plane: bool,
}

impl fmt::Display for Environment {
    /// Writes `local, OpenShift, schedulable control plane`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.place.name(), self.platform.as_str())?;
        if self.schedulable_control_plane {
            write!(f, ", schedulable control plane")?;
        }
        Ok(())
    }
}
