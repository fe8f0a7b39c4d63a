//! Placement and accounting during faults. Not in the catalogue: the original's suite injects none.
//!
//! Each row leaves room for one pod on one node of several. A fault is injected and a pod is created. The pod must get exactly that room,
//! and every later pod must wait until the first is gone. A stack that forgets a pod, counts it twice or relies on missing reports fails
//! one of the two checks.
//!
//! `CONTRIBUTING.md` says how to add a fault.

mod gone;
mod restarts;
mod unseen;

use api::names;
use api::nrt::v1alpha2::NodeResourceTopology;
use cluster_faults::socket::SocketFault;
use cluster_faults::{Disturbance, Fault, Part, Process, Rule, Selector, WatchEnd};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;

use crate::context::Context;
use crate::context::arena::{Arena, Fit};
use crate::context::padding::in_both_zones;
use crate::ledger::{ObjectRef, Undo};
use crate::needs::Need;
use crate::observed::{NodeTopology, Scope, zones_difference};
use crate::resources::Resources;
use crate::scenario::{Body, Scenario, body};
use crate::scenarios::registry::scenario;
use crate::step::StepError;
use crate::targets::STACK;
use crate::workload::{PodPlan, ResourceRequest};

/// What a pod asks for.
const REQUEST: &str = "5c 5Gi";
/// What the zones of the target have for pods: one fits, and leaves too little for another one in both zones, but not in their sums. So
/// that the second waits shows that the scheduler knows the zones.
const ROOM: [&str; 2] = ["9c 9Gi", "4c 4Gi"];
/// What each zone of other nodes has: room for none.
const NO_ROOM: &str = "4c 4Gi";
/// Annotation of an NRT that means nothing.
const TOUCHED: &str = "e2e.numaresources/touched";

/// The fault during which a pod is placed.
struct Row {
    id: &'static str,
    part: Part,
    /// Whether the pod's node cannot report the pod meanwhile, so that the scheduler must rely on its own charge.
    unreported: bool,
    /// Whether the scheduler does not learn that it has bound the pod, so that there is no event about the binding.
    without_event: bool,
    fault: fn(&Pod, &str) -> Disturbance,
    /// A second fault, injected before the pod is created.
    second_fault: Option<fn() -> Disturbance>,
}

impl Row {
    /// Builds a row with a fault of the API server, during which the node's exporter can report the pod.
    const fn reported(id: &'static str, fault: fn(&Pod, &str) -> Disturbance) -> Self {
        Self {
            id,
            part: Part::ApiServer,
            unreported: false,
            without_event: false,
            fault,
            second_fault: None,
        }
    }

    /// Builds a row with a fault that keeps the node's exporter from reporting the pod, wherever it lies.
    const fn unreported(
        id: &'static str,
        part: Part,
        fault: fn(&Pod, &str) -> Disturbance,
    ) -> Self {
        Self {
            part,
            unreported: true,
            ..Self::reported(id, fault)
        }
    }
}

static ROWS: &[Row] = &[
    Row::unreported("fault/exporter-stands-still", Part::Nodes, stop_exporter),
    Row::unreported("fault/podresources-hangs", Part::PodResources, |_, node| {
        socket(node, SocketFault::Hangs)
    }),
    Row::unreported(
        "fault/podresources-garbage",
        Part::PodResources,
        |_, node| socket(node, SocketFault::Garbage),
    ),
    Row::reported("fault/binding-fails", |_, _| {
        rule(Rule::new(binding(), Fault::InternalError).times(2))
    }),
    Row {
        without_event: true,
        ..Row::reported("fault/binding-unanswered", |_, _| {
            rule(Rule::new(binding(), Fault::LoseAnswer).times(1))
        })
    },
    Row::reported("fault/nrt-conflicts", |_, _| {
        rule(Rule::new(published(), Fault::Conflict).times(5))
    }),
    Row::reported("fault/too-many-requests", |_, _| {
        let busy = Fault::TooManyRequests {
            retry_after_seconds: 1,
        };
        let some = Rule::new(Selector::default().user(STACK), busy);
        rule(some.probability(0.5, 1).times(20))
    }),
    Row {
        second_fault: Some(|| Disturbance::EndWatches {
            select: watches(),
            how: WatchEnd::Expired,
        }),
        ..Row::reported("fault/watches-expire", |_, _| {
            let expire = Fault::EndWatch {
                after_events: 1,
                how: WatchEnd::Expired,
            };
            rule(Rule::new(watches(), expire))
        })
    },
];

fn stop_exporter(exporter: &Pod, node: &str) -> Disturbance {
    Disturbance::Stop {
        process: Process {
            node: node.to_owned(),
            namespace: exporter.namespace().unwrap_or_default(),
            pod: exporter.name_any(),
            container: names::RTE_CONTAINER.to_owned(),
        },
    }
}

fn watches() -> Selector {
    Selector::default().user(STACK).verbs(&["watch"])
}

fn rule(rule: Rule) -> Disturbance {
    Disturbance::Api { rule }
}

fn socket(node: &str, fault: SocketFault) -> Disturbance {
    Disturbance::PodResources {
        node: node.to_owned(),
        fault,
    }
}

fn binding() -> Selector {
    Selector {
        subresource: Some("binding".to_owned()),
        ..Selector::resource("", "pods").user(STACK)
    }
}

fn published() -> Selector {
    Selector::resource("topology.node.k8s.io", "noderesourcetopologies")
        .user(STACK)
        .verbs(&["update", "patch"])
}

/// Builds a scenario that needs faults in this part of the cluster.
fn with_faults(id: &'static str, part: Part, body: Body) -> Scenario {
    let room = Need::Zone {
        count: 2,
        scope: Some(Scope::Container),
        request: ROOM[0],
    };
    scenario(id, &[room, Need::Faults(part)], body)
}

pub(super) fn scenarios() -> Vec<Scenario> {
    let placed = |row: &'static Row| {
        let run = body(move |ctx| Box::pin(placed_meanwhile(ctx, row)));
        with_faults(row.id, row.part, run)
    };
    let mut all: Vec<Scenario> = ROWS.iter().map(placed).collect();
    all.extend(gone::scenarios());
    all.extend(unseen::scenarios());
    all.extend(restarts::scenarios());
    all
}

/// Leaves room for one pod, in one zone of the target.
async fn leave_room_for_one(ctx: &Context) -> Result<(Arena, NodeTopology), StepError> {
    leave(ctx, ROOM, NO_ROOM).await
}

/// Pads the nodes: the zones of the target have these amounts left, and each zone of the others has `others`.
async fn leave(
    ctx: &Context,
    room: [&str; 2],
    others: &str,
) -> Result<(Arena, NodeTopology), StepError> {
    let (room, others) = (room.map(Resources::literal), Resources::literal(others));
    let fit = Fit::Zone(room[0].clone());
    let title = format!("two nodes have a zone with {}", room[0]);
    let arena = ctx
        .step(title, ctx.arena(Some(Scope::Container), 2, &fit))
        .await?;
    let title = format!(
        "the zones of the target have {} and {} left, those of others {others}",
        room[0], room[1]
    );
    let others = in_both_zones(&others);
    let padded = ctx
        .step(
            title,
            ctx.pad_target_and_others(&arena, &room, &others, "others"),
        )
        .await?;
    let before = arena.target_in(&padded)?.clone();
    Ok((arena, before))
}

fn plan(ctx: &Context, arena: &Arena, name: &str) -> PodPlan {
    let resources = [ResourceRequest::Limits(Resources::literal(REQUEST))];
    arena.plan(ctx, name, resources)
}

/// Checks that the pod runs on the node and that the scheduler under test placed it.
async fn is_placed_on(ctx: &Context, name: &str, node: &str) -> Result<(), StepError> {
    let pod = ctx.pods_running(&[name.to_owned()]).await?.remove(0);
    ctx.on_node(&pod, node)?;
    ctx.scheduled_by_stack(&pod).await
}

async fn waits(ctx: &Context, name: &str) -> Result<(), StepError> {
    let reason = Scope::Container.alignment_failure();
    ctx.stay_pending(&[name.to_owned()], reason).await
}

/// Checks that one zone of the target accounts for one pod more than before.
async fn zone_accounts_for_pod(ctx: &Context, before: &NodeTopology) -> Result<(), StepError> {
    let accounted = is_accounted_for(ctx, before);
    ctx.step("one zone of the target accounts for it", accounted)
        .await
}

async fn is_accounted_for(ctx: &Context, before: &NodeTopology) -> Result<(), StepError> {
    let request = Resources::literal(REQUEST);
    ctx.accounted(before, &request, true, Scope::Container)
        .await
}

/// Deletes the first pod and checks that the second is placed there.
async fn next_takes_its_place(
    ctx: &Context,
    first: &str,
    next: &str,
    node: &str,
) -> Result<(), StepError> {
    ctx.step(format!("{first} goes, and {next} takes its place"), async {
        ctx.delete::<Pod>(first).await?;
        is_placed_on(ctx, next, node).await
    })
    .await
}

/// Changes an NRT in a way that says nothing about pods: what a scheduler then gets is no newer report.
async fn touch(ctx: &Context, node: &str) -> Result<(), StepError> {
    let nrts = Api::<NodeResourceTopology>::all(ctx.client());
    let object = ObjectRef::of(&nrts.get(node).await?);
    let annotate = |value: Option<&str>| json!({"metadata": {"annotations": {TOUCHED: value}}});
    let undo = Undo::Patch {
        object,
        patch: annotate(None),
    };
    ctx.recorder
        .plan(&format!("annotate the NRT of {node}"), undo)?;
    let patch = Patch::Merge(annotate(Some("by a scenario")));
    nrts.patch(node, &PatchParams::default(), &patch).await?;
    Ok(())
}

async fn placed_meanwhile(ctx: &Context, row: &Row) -> Result<(), StepError> {
    let (arena, before) = leave_room_for_one(ctx).await?;
    let target = &before.node;
    let [first, next] = ["first", "next"].map(|name| plan(ctx, &arena, name));
    let exporter = ctx.exporter_on(target).await?;
    let meanwhile = async {
        if let Some(second_fault) = row.second_fault {
            ctx.inject(&second_fault()).await?;
        }
        ctx.create(first.pod()).await?;
        if row.without_event {
            let pods = ctx.pods_running(&[first.name().to_owned()]).await?;
            ctx.on_node(&pods[0], target)?;
        } else {
            is_placed_on(ctx, first.name(), target).await?;
        }
        if row.unreported {
            touch(ctx, target).await?;
            ctx.create(next.pod()).await?;
            waits(ctx, next.name()).await?;
            let now = ctx.topology(target).await?;
            if let Some(difference) = zones_difference(&before, &now) {
                let message =
                    format!("the NRT of {target} changed although its exporter cannot see the pod");
                return Err(StepError::mismatch(
                    message,
                    "the zones as they were before",
                    difference,
                ));
            }
            return Ok(());
        }
        // an exporter on a busy machine may report only now, and must meet the fault, too
        is_accounted_for(ctx, &before).await
    };
    let fault = (row.fault)(&exporter, target);
    ctx.step(
        if row.unreported {
            "the pod is placed during the fault"
        } else {
            "the pod is placed and accounted for during the fault"
        },
        ctx.during(&fault, meanwhile),
    )
    .await?;
    if row.unreported {
        zone_accounts_for_pod(ctx, &before).await?;
    }
    ctx.step("the next pod waits", async {
        if !row.unreported {
            ctx.create(next.pod()).await?;
        }
        waits(ctx, next.name()).await
    })
    .await?;
    next_takes_its_place(ctx, first.name(), next.name(), target).await
}
