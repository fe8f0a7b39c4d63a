//! A pod in the form the scheduler needs: everything for placing it, computed once when the pod changes.
//!
//! In reading order: this file, `volumes` (those that restrict its nodes), `read` (how it is read from the object of the API).

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    NodeAffinity, PodAffinityTerm, Toleration, TopologySpreadConstraint, WeightedPodAffinityTerm,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use topology::request::Pod as Request;
use topology::resource::Resources;

use crate::state::group_kind::GroupKind;
use crate::state::images::ImageId;

mod read;
mod volumes;

pub use volumes::{Disk, VolumeClaim, Volumes};

/// Reason of the `DisruptionTarget` condition of preempted pods.
pub const PREEMPTION_BY_SCHEDULER: &str = "PreemptionByScheduler";

/// Namespace and name of a pod, or of another object.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodKey {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl PodKey {
    /// Returns namespace and name of an object, or `None` for objects without them, which no API server sends.
    pub fn of(metadata: &ObjectMeta) -> Option<Self> {
        Some(Self {
            namespace: metadata.namespace.clone()?,
            name: metadata.name.clone()?,
        })
    }

    /// Returns the key of a cluster-scoped object, whose namespace is empty.
    pub fn unscoped(name: impl Into<String>) -> Self {
        Self {
            namespace: String::new(),
            name: name.into(),
        }
    }
}

impl fmt::Display for PodKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// The phase of a pod, as far as resources are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Not yet running. The kubelet may or may not have admitted it.
    Pending,
    /// Running.
    Running,
    /// Succeeded or failed; it no longer holds anything.
    Terminal,
}

/// A pod.
#[derive(Clone, Debug)]
pub struct Pod {
    /// Namespace and name.
    pub key: PodKey,
    /// Distinguishes successive pods of the same name.
    pub uid: String,
    /// Resource version of the object that this was read from.
    pub resource_version: Option<String>,
    /// The scheduler name, which selects the profile that places it.
    pub scheduler: String,
    /// The node on which it is placed.
    pub node: Option<String>,
    /// Phase.
    pub phase: Phase,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// Priority; a higher one goes first.
    pub priority: i32,
    /// Whether it may preempt other pods.
    pub preempts: bool,
    /// The node where others were preempted for it, as its status says.
    pub nominated: Option<String>,
    /// When its kubelet acknowledged it (`status.startTime`).
    pub started: Option<Timestamp>,
    /// Whether it was chosen as a victim of preemption.
    pub is_victim: bool,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// When it was created.
    pub created: Option<Timestamp>,
    /// What it requests.
    pub request: Arc<Request>,
    /// What its node must have left, see [`Request::node_request`].
    pub node_request: Arc<Resources>,
    /// CPU (milli) and memory for scores, where containers without requests count with small defaults (scheduler.md 7.4).
    pub nonzero_request: (i64, i64),
    /// Its contribution to a fingerprint.
    pub hash: u64,
    /// Ports that it uses on the node.
    pub host_ports: Vec<HostPort>,
    /// Required anti-affinity to other pods, which those must respect too.
    pub anti_affinity: Vec<PodAffinityTerm>,
    /// Volumes that restrict its nodes; `None` for most pods.
    pub volumes: Option<Box<Volumes>>,
    /// What only matters until it is placed.
    pub constraints: SchedulingConstraints,
}

/// Scheduling constraints of a pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SchedulingConstraints {
    /// Scheduling gates.
    pub gates: Vec<String>,
    /// Labels that its node must have.
    pub node_selector: BTreeMap<String, String>,
    /// Node affinity, required and preferred.
    pub node_affinity: Option<NodeAffinity>,
    /// Tolerations.
    pub tolerations: Vec<Toleration>,
    /// Required affinity to other pods.
    pub affinity: Vec<PodAffinityTerm>,
    /// Preferred affinity and anti-affinity to other pods.
    pub preferences: Option<Box<Preferences>>,
    /// Spread constraints, required and preferred.
    pub spread: Vec<TopologySpreadConstraint>,
    /// Its controller, if it is of a kind that groups pods.
    pub controller: Option<(GroupKind, String)>,
    /// The images of its containers, one for each container.
    pub images: Vec<ImageId>,
    /// Reason and message of its `PodScheduled=False` condition.
    pub condition: Option<(String, String)>,
}

/// Preferred affinity and anti-affinity of a pod to other pods.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Preferences {
    /// Pods to be near.
    pub near: Vec<WeightedPodAffinityTerm>,
    /// Pods to be apart from.
    pub apart: Vec<WeightedPodAffinityTerm>,
}

/// A port on the node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostPort {
    /// TCP, UDP or SCTP.
    pub protocol: String,
    /// Address on the node; `0.0.0.0` for all.
    pub ip: String,
    /// Number.
    pub port: i32,
}

impl HostPort {
    /// Returns whether both cannot be used on one node.
    pub fn clashes(&self, other: &Self) -> bool {
        const ANY: &str = "0.0.0.0";
        self.protocol == other.protocol
            && self.port == other.port
            && (self.ip == other.ip || self.ip == ANY || other.ip == ANY)
    }
}

#[cfg(test)]
mod tests;
