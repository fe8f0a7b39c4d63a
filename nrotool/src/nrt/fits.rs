//! Which pending pod would fit where, computed from the zones and from what is requested on each node.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt as _;
use serde::Serialize;
use topology::fit::explain::{Trial, ZoneTrial, explain};
use topology::fit::{FreeZone, Subject};
use topology::policy::Policy;
use topology::request::{Pod as Request, Qos};
use topology::resource::{ResourceName, Resources};

use super::amount;
use super::place::{Known, Place};

/// Amounts of pods, as a resource of nodes.
const PODS: &str = "pods";

/// A pod that no scheduler has bound.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Pending {
    /// Namespace.
    pub(crate) namespace: String,
    /// Name.
    pub(crate) name: String,
    /// The scheduler that it names.
    pub(crate) scheduler_name: String,
    /// Quality of service class.
    pub(crate) qos: &'static str,
    /// What its node must have left.
    pub(crate) request: BTreeMap<String, String>,
    /// Its scheduling gates: while it has any, no scheduler looks at it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) gates: Vec<String>,
    /// What its scheduler said last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) message: Option<String>,
    /// The nodes with a NodeResourceTopology, by name.
    pub(crate) nodes: Vec<Fit>,
}

/// Whether a pod would fit on a node.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Fit {
    /// The node.
    pub(crate) node: String,
    /// Whether node and zones have room.
    pub(crate) fits: bool,
    /// The zones that it would get, in the order of its containers (a single one for a whole pod). Empty if the zones do not decide.
    pub(crate) zones: Vec<u8>,
    /// Why it would not fit, or why the zones do not decide.
    pub(crate) reasons: Vec<String>,
}

/// Tries a pod on every node.
pub(super) fn pending(known: &Known<'_>, places: &[Place<'_>]) -> Pending {
    let (pod, request) = (known.pod, &known.request);
    let spec = pod.spec.as_ref();
    let gates = spec.and_then(|spec| spec.scheduling_gates.clone());
    Pending {
        namespace: pod.namespace().unwrap_or_default(),
        name: pod.name_any(),
        scheduler_name: spec
            .and_then(|spec| spec.scheduler_name.clone())
            .unwrap_or_default(),
        qos: match request.qos() {
            Qos::Guaranteed => "Guaranteed",
            Qos::Burstable => "Burstable",
            Qos::BestEffort => "BestEffort",
        },
        request: amount::all_exact(&request.node_request()),
        gates: gates.into_iter().flatten().map(|gate| gate.name).collect(),
        message: message(pod),
        nodes: places.iter().map(|place| fit(request, place)).collect(),
    }
}

/// Returns the message of the pod's `PodScheduled=False` condition.
fn message(pod: &Pod) -> Option<String> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let mut conditions = conditions.iter();
    let condition = conditions
        .find(|condition| condition.type_ == "PodScheduled" && condition.status == "False")?;
    condition.message.clone().filter(|text| !text.is_empty())
}

fn fit(request: &Request, place: &Place<'_>) -> Fit {
    let mut reasons = place.node.map_or_else(
        || vec!["there is no such node".to_owned()],
        |node| short_of(request, node, place),
    );
    let (zones, obstacles, remark) = zones(request, place);
    reasons.extend(obstacles);
    let fits = reasons.is_empty();
    // a remark explains a fit; beside a reason it would only distract
    reasons.extend(remark.filter(|_| fits));
    Fit {
        node: place.name.clone(),
        fits,
        zones: if fits { zones } else { Vec::new() },
        reasons,
    }
}

/// Returns what the node as a whole has too little of (scheduler.md 7.4).
fn short_of(request: &Request, node: &Node, place: &Place<'_>) -> Vec<String> {
    let allocatable = node.status.as_ref().and_then(|it| it.allocatable.as_ref());
    let mut left = nrt::request::resources(allocatable);
    for known in &place.pods {
        left.subtract_listed(&known.request.node_request());
        left.subtract_listed(&Resources::from_iter([(PODS, 1)]));
    }
    let mut wanted = request.node_request();
    wanted.set(PODS, 1);
    wanted
        .iter()
        .filter(|(name, wanted)| left.amount(name.as_str()) < *wanted)
        .map(|(name, wanted)| {
            let left = left
                .get(name.as_str())
                .map_or_else(|| "none".to_owned(), |left| amount::rounded(name, left));
            let wanted = amount::rounded(name, wanted);
            format!("the node: {name} {left} left, wanted {wanted}")
        })
        .collect()
}

/// Tries the zones. Returns the chosen ones, what is in the way, and a remark where the zones do not decide.
fn zones(request: &Request, place: &Place<'_>) -> (Vec<u8>, Vec<String>, Option<String>) {
    let config = &place.topology.config;
    let undecided = |why: String| (Vec::new(), Vec::new(), Some(why));
    if config.policy != Policy::SingleNumaNode {
        return undecided(format!("any zone: its policy is {}", config.policy));
    }
    if request.qos() == Qos::BestEffort && !request.asks_for_devices() {
        return undecided("any zone: the pod is BestEffort".to_owned());
    }
    let free: Vec<FreeZone> = place
        .topology
        .zones
        .iter()
        .map(|zone| {
            let left = zone.resources.iter();
            let left = left.map(|(name, amounts)| (name.clone(), amounts.available));
            FreeZone::exactly(zone.id, left.collect())
        })
        .collect();
    let allocatable = place
        .node
        .and_then(|node| node.status.as_ref()?.allocatable.as_ref());
    let node_has = |name: &str| allocatable.is_some_and(|list| list.contains_key(name));
    let trials = explain(request, config, &free, node_has);
    let chosen = trials.iter().filter_map(|trial| trial.chosen);
    let chosen = chosen.map(topology::mask::ZoneId::get).collect();
    let failed = trials.last().filter(|trial| trial.chosen.is_none());
    (chosen, failed.map(obstacles).unwrap_or_default(), None)
}

fn obstacles(trial: &Trial) -> Vec<String> {
    let subject = match &trial.subject {
        Subject::Pod => "the pod".to_owned(),
        Subject::Container { name, .. } => format!("container {name}"),
    };
    let unknown = trial
        .unknown
        .iter()
        .map(|name| format!("the node has no {name}"));
    // zones that lack the same are told together
    let mut lacks: Vec<(Vec<String>, String)> = Vec::new();
    for zone in trial.zones.iter().filter(|zone| !zone.lacking.is_empty()) {
        let (id, lack) = (zone.id.to_string(), lack(zone));
        match lacks.iter_mut().find(|(_, other)| *other == lack) {
            Some((ids, _)) => ids.push(id),
            None => lacks.push((vec![id], lack)),
        }
    }
    let zones = lacks.iter().map(|(ids, lack)| {
        let plural = if ids.len() == 1 { "" } else { "s" };
        format!("zone{plural} {} for {subject}: {lack}", ids.join(", "))
    });
    let other = trial
        .obstacle
        .map(|obstacle| format!("{subject}: {obstacle}"));
    let mut all: Vec<String> = unknown.chain(zones).chain(other).collect();
    if all.is_empty() {
        all.push(format!("no zone has room for {subject}"));
    }
    all
}

/// Returns what a zone has too little of.
fn lack(zone: &ZoneTrial) -> String {
    let lacking: Vec<String> = zone
        .lacking
        .iter()
        .map(|lacking| {
            let name: &ResourceName = &lacking.resource;
            let wanted = amount::rounded(name, lacking.wanted);
            match lacking.available {
                Some(left) => {
                    let left = amount::rounded(name, left);
                    format!("{name} {left} left, wanted {wanted}")
                }
                None => format!("no {name}, wanted {wanted}"),
            }
        })
        .collect();
    lacking.join(", ")
}
