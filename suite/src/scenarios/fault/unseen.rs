//! Pods that the kubelet of their node has not seen yet, or its exporter has not reported, and reports that nothing explains.

use api::annotations;
use api::attributes::POD_FINGERPRINT;
use api::nrt::v1alpha2::NodeResourceTopology;
use cluster_faults::{Fault, Part, Rule, Selector};
use kube::ResourceExt as _;
use kube::api::Api;

use super::{
    binding, is_placed_on, leave, leave_room_for_one, next_takes_its_place, plan, rule,
    stop_exporter, waits, with_faults, zone_accounts_for_pod,
};
use crate::context::Context;
use crate::context::padding::pinned_to;
use crate::context::settle::fingerprint;
use crate::ledger::Undo;
use crate::resources::Resources;
use crate::scenario::{Scenario, body};
use crate::step::StepError;
use crate::workload::{PodPlan, ResourceRequest};

/// What two pods ask for, and what the zones of their node have for them.
const LARGE: &str = "4c 4Gi";
const SMALL: &str = "3c 3Gi";
/// Less than both.
const LITTLE: &str = "2c 2Gi";
/// Why a node takes no pod while its zones cannot be known.
const CLOSED: &str = "invalid node topology data";

pub(super) fn scenarios() -> [Scenario; 3] {
    [
        with_faults(
            "fault/binding-slow",
            Part::ApiServer,
            body(|ctx| Box::pin(small_pod_overtakes_a_large_one(ctx))),
        ),
        with_faults(
            "fault/foreign-unreported",
            Part::Nodes,
            body(|ctx| Box::pin(foreign_pod_closes_its_node(ctx))),
        ),
        with_faults(
            "fault/nrt-unexplained",
            Part::Nodes,
            body(|ctx| Box::pin(topology_of_unknown_pods(ctx))),
        ),
    ]
}

/// The large pod fits one zone, the small one both. The kubelet gives the small one the large pod's zone if it sees the small one first.
async fn small_pod_overtakes_a_large_one(ctx: &Context) -> Result<(), StepError> {
    let (arena, before) = leave(ctx, [LARGE, SMALL], LITTLE).await?;
    let target = &before.node;
    let [large, small] = [("large", LARGE), ("small", SMALL)].map(|(name, request)| {
        let request = ResourceRequest::Limits(Resources::literal(request));
        arena.plan(ctx, name, [request])
    });
    let select = Selector {
        name: Some(large.name().to_owned()),
        ..binding()
    };
    let slow = Fault::Delay {
        milliseconds: 3_000,
    };
    let both_run = async {
        ctx.create(large.pod()).await?;
        ctx.create(small.pod()).await?;
        is_placed_on(ctx, large.name(), target).await?;
        is_placed_on(ctx, small.name(), target).await
    };
    ctx.step(
        format!("a pod of {SMALL} comes while the binding of one of {LARGE} takes its time, and both run on the target"),
        ctx.during(&rule(Rule::new(select, slow).times(1)), both_run),
    )
    .await
}

async fn foreign_pod_closes_its_node(ctx: &Context) -> Result<(), StepError> {
    let (arena, before) = leave_room_for_one(ctx).await?;
    let target = &before.node;
    let next = plan(ctx, &arena, "next");
    // nothing but a device, so that what it leaves is enough in any case
    let device = pinned_to(&Resources::default(), 0);
    let foreign = PodPlan::new("foreign", "", [ResourceRequest::Limits(device)]).bound_to(target);
    let exporter = ctx.exporter_on(target).await?;
    let stopped = stop_exporter(&exporter, target);
    let meanwhile = async {
        ctx.create(foreign.pod()).await?;
        ctx.pods_running(&[foreign.name().to_owned()]).await?;
        ctx.create(next.pod()).await?;
        ctx.stay_pending(&[next.name().to_owned()], CLOSED).await
    };
    ctx.step(
        "while the exporter stands still, a pod that no scheduler placed takes a device of the target, and the next pod waits",
        ctx.during(&stopped, meanwhile),
    )
    .await?;
    ctx.step(
        "once it is reported, the next pod is placed there",
        is_placed_on(ctx, next.name(), target),
    )
    .await
}

async fn topology_of_unknown_pods(ctx: &Context) -> Result<(), StepError> {
    let (arena, before) = leave_room_for_one(ctx).await?;
    let target = &before.node;
    let [first, next] = ["first", "next"].map(|name| plan(ctx, &arena, name));
    let exporter = ctx.exporter_on(target).await?;
    let stopped = stop_exporter(&exporter, target);
    let meanwhile = async {
        ctx.create(first.pod()).await?;
        is_placed_on(ctx, first.name(), target).await?;
        let undo = rename_pods(ctx, target).await?;
        ctx.create(next.pod()).await?;
        waits(ctx, next.name()).await?;
        ctx.undo(&undo).await
    };
    ctx.step(
        "while the exporter stands still, a pod is placed, the NRT gets the fingerprint of pods that nobody knows, and the next pod waits",
        ctx.during(&stopped, meanwhile),
    )
    .await?;
    zone_accounts_for_pod(ctx, &before).await?;
    next_takes_its_place(ctx, first.name(), next.name(), target).await
}

/// Gives the NRT of a node the fingerprint of pods that do not exist. Its zones stay as they are.
async fn rename_pods(ctx: &Context, node: &str) -> Result<Undo, StepError> {
    let published = Api::<NodeResourceTopology>::all(ctx.client())
        .get(node)
        .await?;
    let fingerprint = fingerprint(&[("nowhere".to_owned(), "nobody".to_owned())]);
    let mut written = published.clone();
    for attribute in &mut written.attributes {
        if attribute.name == POD_FINGERPRINT {
            attribute.value.clone_from(&fingerprint);
        }
    }
    if let Some(text) = written
        .annotations_mut()
        .get_mut(annotations::POD_FINGERPRINT)
    {
        text.clone_from(&fingerprint);
    }
    if written == published {
        return Err(StepError::fail(format!(
            "the NRT of {node} has no fingerprint"
        )));
    }
    ctx.replace_topology(&published, &written).await
}
