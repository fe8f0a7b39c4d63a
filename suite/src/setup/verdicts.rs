//! The scheduler's verdicts on pods whose place is certain on the unloaded cluster: what fits is bound, what fits nowhere is refused.
//!
//! A scheduler that ignores zones, taints or what a node has left places the first pods of most scenarios well, so that these look like failures of
//! whatever they are about. Its verdict on one pod takes milliseconds.

use k8s_openapi::api::core::v1::{
    Node, NodeAffinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Pod, Taint,
};
use k8s_openapi::api::node::v1::{Overhead, RuntimeClass};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt as _;
use kube::api::{Api, ListParams};
use regex::Regex;

use crate::context::Context;
use crate::context::checks::{describe, node_of};
use crate::ledger::{ObjectRef, Undo};
use crate::observed::{NodeTopology, Scope};
use crate::recorder::PollResult;
use crate::resources::{CPU, Resources, is_native};
use crate::step::StepError;
use crate::workload::{PodPlan, ResourceRequest};

/// One core, in thousandths.
const CORE: i64 = 1000;
/// Why `NodeResourcesFit` refuses a pod for its CPUs.
const NO_CPUS: &str = "Insufficient cpu";

/// A pod that fits nowhere.
struct Refused {
    plan: PodPlan,
    /// What the events of the scheduler say, as a regular expression.
    reason: Regex,
}

impl Refused {
    fn new(plan: PodPlan, reason: &str) -> Self {
        let reason = Regex::new(reason).expect("the reasons are in this file");
        Self { plan, reason }
    }
}

/// Has the scheduler look at pods of each kind while the probe runs on the node `busy`.
pub(super) async fn are_right(context: &Context, busy: &str) -> Result<(), StepError> {
    let nodes = Api::<Node>::all(context.client());
    let nodes = nodes.list(&ListParams::default()).await?.items;
    let class = runtime_class(context, busy).await?;
    let mut refused: Vec<Refused> = more_cpus(context, busy).into_iter().collect();
    refused.extend(more_devices(context, busy));
    refused.extend(left(context, busy));
    refused.extend(class.as_ref().map(|class| overhead(context, busy, class)));
    refused.extend(nodes.iter().find_map(|node| tainted(context, node)));
    let fitting = init_containers(context);
    for refused in &refused {
        context.create(refused.plan.pod()).await?;
    }
    let mut names: Vec<_> = refused.iter().map(|one| one.plan.name()).collect();
    if let Some(plan) = &fitting {
        let pod = context.create(plan.pod()).await?;
        context.scheduled_by_stack(&pod).await?;
        names.push(plan.name());
    }
    let limit = context.deadlines().running;
    let what = "the scheduler refuses each pod that fits nowhere";
    context
        .until(what, limit, async || {
            for refused in &refused {
                if let Some(missing) = not_refused(context, refused).await? {
                    return Ok(PollResult::NotYet(missing));
                }
            }
            Ok(PollResult::Ready(()))
        })
        .await?;
    context.recorder.saw(names.join(", "));
    match class {
        None => Ok(()),
        Some(object) => context.undo(&Undo::Delete { object }).await,
    }
}

/// Returns what is missing until the pod counts as refused. It is an error if the pod is bound.
async fn not_refused(context: &Context, refused: &Refused) -> Result<Option<String>, StepError> {
    let name = refused.plan.name();
    let pod: Pod = context.pod(name).await?;
    if node_of(&pod).is_some() {
        return Err(StepError::mismatch(
            format!("pod {name} is placed although it fits nowhere"),
            format!("pending: {}", refused.reason),
            describe(&pod),
        ));
    }
    let notes = context.rejections(&pod).await?;
    let mut notes = notes.iter().filter_map(|event| event.note.as_deref());
    let found = notes.clone().any(|note| refused.reason.is_match(note));
    Ok((!found).then(|| {
        format!(
            "pod {name} is not refused with {}; the last reason: {}",
            refused.reason,
            notes.next_back().unwrap_or("none")
        )
    }))
}

/// Plans a pod that needs more CPUs of one zone than the largest one has. Its node is not the busy one: a scheduler may look at the zones of nodes only
/// once these have pods.
fn more_cpus(context: &Context, busy: &str) -> Option<Refused> {
    idle(context, busy).find_map(|node| {
        let request = ResourceRequest::Limits(cpus(more_than_a_zone(node, CPU)?));
        Some(plan(context, "more-cpus-than-a-zone", node, request))
    })
}

/// Plans a pod that needs more devices of one zone, likewise. It is not Guaranteed: kubelets align devices of every pod.
fn more_devices(context: &Context, busy: &str) -> Option<Refused> {
    idle(context, busy).find_map(|node| {
        let (device, count) =
            devices(node).find_map(|name| Some((name, more_than_a_zone(node, name)?)))?;
        let mut request = Resources::new();
        request.set(device, count);
        let request = ResourceRequest::Limits(request);
        Some(plan(context, "more-devices-than-a-zone", node, request))
    })
}

fn idle<'a>(context: &'a Context, busy: &'a str) -> impl Iterator<Item = &'a NodeTopology> {
    let all = context.facts().candidates(None);
    all.filter(move |node| node.node != busy)
}

fn plan(context: &Context, name: &str, node: &NodeTopology, request: ResourceRequest) -> Refused {
    let scope = node.scope().unwrap_or(Scope::Container);
    let plan = on(context, name, &node.node, request);
    Refused::new(plan, scope.alignment_failure())
}

/// Plans a pod that needs all CPUs of the busy node. It is Burstable, so that only the node's sum is against it.
fn left(context: &Context, busy: &str) -> Option<Refused> {
    let request = ResourceRequest::Requests(all_cpus(context, busy)?);
    let plan = on(context, "more-cpus-than-are-left", busy, request);
    Some(Refused::new(plan, NO_CPUS))
}

/// Creates a runtime class with an overhead of all CPUs of the busy node. No pod of it ever runs, so its handler need not exist.
async fn runtime_class(context: &Context, busy: &str) -> Result<Option<ObjectRef>, StepError> {
    let Some(cpus) = all_cpus(context, busy) else {
        return Ok(None);
    };
    let class = RuntimeClass {
        metadata: ObjectMeta {
            name: Some(context.namespace.clone()),
            ..ObjectMeta::default()
        },
        handler: "none".to_owned(),
        overhead: Some(Overhead {
            pod_fixed: Some(cpus.to_quantities()),
        }),
        scheduling: None,
    };
    let class = context.create_global(&class).await?;
    Ok(Some(ObjectRef::of(&class)))
}

fn overhead(context: &Context, busy: &str, class: &ObjectRef) -> Refused {
    let request = ResourceRequest::Limits(Resources::literal("1c 64Mi"));
    let plan = on(context, "overhead-of-a-whole-node", busy, request).of_runtime_class(&class.name);
    Refused::new(plan, NO_CPUS)
}

/// Plans a pod for a node that somebody keeps for others. Taints of the node's state are not told of as taints.
fn tainted(context: &Context, node: &Node) -> Option<Refused> {
    let keeps_off = |taint: &Taint| {
        taint.effect == "NoSchedule" && !taint.key.starts_with("node.kubernetes.io/")
    };
    let spec = node.spec.as_ref()?;
    let taints = spec.taints.as_ref()?;
    if spec.unschedulable == Some(true) || !taints.iter().any(keeps_off) {
        return None;
    }
    let request = ResourceRequest::Nothing;
    let plan = on(context, "not-tolerating", &node.name_any(), request);
    Some(Refused::new(plan, "taint"))
}

/// Plans a pod that fits because its containers start one after another: each needs more than half of a zone, and they are one more than the zones. Where
/// each container is aligned by itself, a scheduler has to know that init containers end.
fn init_containers(context: &Context) -> Option<PodPlan> {
    let facts = context.facts();
    let node = facts.candidates(Some(Scope::Container)).next()?;
    let largest = largest_zone(node, CPU)? / CORE;
    let half = largest / 2 + 1;
    // the probe may be here, with one CPU
    let request = (half < largest).then(|| ResourceRequest::Limits(cpus(half * CORE)))?;
    let plan = on(context, "init-containers", &node.node, request.clone());
    Some(plan.with_init_containers(vec![request; node.zones.len()]))
}

/// Returns one unit more than the largest zone has, if the zones have it together.
fn more_than_a_zone(node: &NodeTopology, resource: &str) -> Option<i64> {
    let more = (largest_zone(node, resource)? / CORE + 1) * CORE;
    (node.available().milli(resource) >= more).then_some(more)
}

fn largest_zone(node: &NodeTopology, resource: &str) -> Option<i64> {
    let zones = node.zones.iter();
    zones.map(|zone| zone.available().milli(resource)).max()
}

fn devices(node: &NodeTopology) -> impl Iterator<Item = &str> {
    let all = node.zones.iter().flat_map(|zone| zone.resources.keys());
    all.map(String::as_str).filter(|name| !is_native(name))
}

fn all_cpus(context: &Context, node: &str) -> Option<Resources> {
    let all = context.facts().allocatable.get(node)?;
    Some(all.filtered(|name, _| name == CPU))
}

/// Returns CPUs, in thousandths, with a little memory.
fn cpus(milli: i64) -> Resources {
    let mut list = Resources::literal("64Mi");
    list.set(CPU, milli);
    list
}

/// Plans a pod for this node only.
fn on(context: &Context, name: &str, node: &str, request: ResourceRequest) -> PodPlan {
    let affinity = NodeAffinity {
        required_during_scheduling_ignored_during_execution: Some(NodeSelector {
            node_selector_terms: vec![NodeSelectorTerm {
                match_fields: Some(vec![NodeSelectorRequirement {
                    key: "metadata.name".to_owned(),
                    operator: "In".to_owned(),
                    values: Some(vec![node.to_owned()]),
                }]),
                ..NodeSelectorTerm::default()
            }],
        }),
        ..NodeAffinity::default()
    };
    PodPlan::new(name, context.scheduler(), [request]).with_node_affinity(affinity)
}
