//! The explanation in the form that programs read.
//!
//! The JSON form is stable: fields are added, but never renamed or removed while [`FORMAT`] stays the same. Amounts are Kubernetes
//! quantities.

use std::collections::BTreeMap;

use serde::Serialize;

/// Version of the JSON form.
pub const FORMAT: &str = "explain.numaresources/v1";

/// The whole explanation.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// Version of this form.
    pub format: &'static str,
    /// The pod.
    pub pod: PodFacts,
    /// The profile whose filters and scores ran.
    pub profile: String,
    /// Whether any node fits.
    pub schedulable: bool,
    /// Nodes with the highest total, by name, or the nominated node. The pod would be placed on one of them.
    pub best: Vec<String>,
    /// Message of the event and the condition, if no node fits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The result of preemption, if no node fits and the profile preempts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preemption: Option<PreemptionVerdict>,
    /// Every node, by name.
    pub nodes: Vec<NodeVerdict>,
}

/// What preemption would do.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PreemptionVerdict {
    /// The node with the victims; absent if preemption helps nowhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The pods that would be evicted, the most important first.
    pub victims: Vec<VictimFacts>,
    /// How many of them a disruption budget protects.
    pub budgets_violated: usize,
    /// Why no pod would be evicted, in the words of the event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// A pod that would be evicted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VictimFacts {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Its priority, lower than that of the pod.
    pub priority: i32,
}

/// The relevant facts of the pod.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodFacts {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// The scheduler that it names.
    pub scheduler_name: String,
    /// Quality of service class.
    pub qos: &'static str,
    /// The node that it is already bound to; what it holds there counts as taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bound_to: Option<String>,
    /// The node on which pods were already preempted for it; it is chosen if it fits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nominated_to: Option<String>,
    /// Its priority.
    pub priority: i32,
    /// What its node must have left.
    pub request: BTreeMap<String, String>,
}

/// The verdict on one node.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeVerdict {
    /// Its name.
    pub name: String,
    /// Whether every filter accepts it.
    pub feasible: bool,
    /// The first filter that rejects it; the scheduler stops there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rejected_by: Option<&'static str>,
    /// The reasons of that filter, in the words of the event.
    pub reasons: Vec<String>,
    /// Explanation of the reasons for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Its zones, independent of the other filters.
    pub topology: Topology,
    /// Score and weight by plugin; empty unless feasible.
    pub scores: Vec<Score>,
    /// Sum of scores times weights; absent unless feasible.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<i64>,
}

/// The score of one plugin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Score {
    /// The plugin.
    pub plugin: &'static str,
    /// 0 to 100.
    pub score: i64,
    /// Its weight.
    pub weight: i64,
}

/// What is known of a node's zones.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Topology {
    /// `absent` (no NRT), `stale` (amounts cannot be trusted now) or `fresh`.
    pub state: &'static str,
    /// Policy of the topology manager.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// Its scope.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// Whether the filter considers zones: the policy is single-numa-node and the pod requests something that is aligned.
    pub decides: bool,
    /// The trials in order: the pod, or its containers up to the first that does not fit.
    pub trials: Vec<TrialVerdict>,
}

/// One subject tried on all zones.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TrialVerdict {
    /// `pod` or `container`.
    pub subject: &'static str,
    /// Name of the container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// `app`, `init` or `sidecar`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<&'static str>,
    /// Amounts that one zone has to provide.
    pub wanted: BTreeMap<String, String>,
    /// Resources that the node does not list at all.
    pub unknown: Vec<String>,
    /// The zone that the filter chooses; absent if none fits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone: Option<u8>,
    /// The obstacle other than the amounts, if no zone fits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub obstacle: Option<String>,
    /// All zones.
    pub zones: Vec<ZoneVerdict>,
}

/// One zone.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ZoneVerdict {
    /// Its id.
    pub id: u8,
    /// What it has left.
    pub available: BTreeMap<String, String>,
    /// Whether it has everything that is requested.
    pub fits: bool,
    /// Resources that it has too little of.
    pub lacking: Vec<Lack>,
}

/// A resource that a zone has too little of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Lack {
    /// The resource.
    pub resource: String,
    /// Requested amount.
    pub wanted: String,
    /// Amount left; absent if the zone does not hold the resource.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub available: Option<String>,
}
