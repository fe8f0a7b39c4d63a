//! Pods that no scheduler placed, pods that fit nowhere, and nodes that fill up (scenarios-serial.md 8.11).

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

use crate::context::Context;
use crate::context::arena::Fit;
use crate::needs::Need;
use crate::observed::{NodeTopology, Scope};
use crate::resources::Resources;
use crate::scenario::{Scenario, body};
use crate::scenarios::registry::scenario;
use crate::scenarios::steps;
use crate::step::StepError;
use crate::workload::{PodPlan, ResourceRequest};

const NEEDS: &[Need] = &[Need::nodes(2)];
/// A scheduler that does not exist: a pod that has a node needs none.
const ABSENT_SCHEDULER: &str = "foo";
const BOUND: &str = "2c 100Mi";

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        scenario(
            "nonreg/pod-nodename",
            NEEDS,
            body(|ctx| Box::pin(pod_with_node_name(ctx))),
        ),
        scenario(
            "nonreg/dp-nodename",
            NEEDS,
            body(|ctx| Box::pin(deployment_with_node_name(ctx))),
        ),
        scenario(
            "nonreg/over-allocatable",
            NEEDS,
            body(|ctx| Box::pin(over_allocatable(ctx))),
        ),
        scenario(
            "nonreg/dp-scaleup",
            NEEDS,
            body(|ctx| Box::pin(scale_up(ctx))),
        ),
    ]
}

/// Pads all nodes but the target until they are nearly full. Returns the state of one of those.
async fn padded(ctx: &Context) -> Result<NodeTopology, StepError> {
    let arena = ctx
        .step(
            "two nodes with two zones are there",
            ctx.arena(None, 2, &Fit::Anything),
        )
        .await?;
    let free = Resources::literal("2c 4G");
    let nodes = steps::others_are_padded(ctx, &arena, &free).await?;
    let chosen = arena.others().next();
    let chosen = chosen.and_then(|chosen| nodes.into_iter().find(|node| node.node == chosen.node));
    chosen.ok_or_else(|| StepError::fail("the NRT of a node is gone"))
}

/// Checks that the zones of the node account for the pod, and no longer do so when it is deleted.
async fn accounted_for(
    ctx: &Context,
    before: &NodeTopology,
    delete: impl Future<Output = Result<(), StepError>>,
) -> Result<(), StepError> {
    let bound = Resources::literal(BOUND);
    ctx.step(
        format!("one zone of the node accounts for {bound}"),
        ctx.accounted(before, &bound, true, Scope::Pod),
    )
    .await?;
    let title = "after the deletion the zones are as before";
    steps::zones_are_restored_after(ctx, title, delete, before).await
}

async fn pod_with_node_name(ctx: &Context) -> Result<(), StepError> {
    let before = padded(ctx).await?;
    let plan = PodPlan::new(
        "testpod",
        ABSENT_SCHEDULER,
        [ResourceRequest::Limits(Resources::literal(BOUND))],
    )
    .bound_to(&before.node);
    let title = "a pod that names a nearly full node runs";
    let pod = steps::pod_runs(ctx, title, &plan).await?;
    steps::pod_is_on(ctx, "the pod is on that node", &pod, &before.node).await?;
    accounted_for(ctx, &before, ctx.delete::<Pod>(plan.name())).await
}

async fn deployment_with_node_name(ctx: &Context) -> Result<(), StepError> {
    let before = padded(ctx).await?;
    let plan = PodPlan::new(
        "testdp",
        ABSENT_SCHEDULER,
        [ResourceRequest::Limits(Resources::literal(BOUND))],
    )
    .bound_to(&before.node);
    let title = "a deployment that names a nearly full node is complete";
    let pods = steps::deployment_is_complete(ctx, title, &plan, 1).await?;
    ctx.step("its pod is on that node, and nobody scheduled it", async {
        for pod in &pods {
            ctx.on_node(pod, &before.node)?;
            let events = ctx.events(pod).await?;
            let scheduled = |reason: &str| reason == "Scheduled";
            if events
                .iter()
                .any(|event| event.reason.as_deref().is_some_and(scheduled))
            {
                return Err(StepError::fail(format!("{} was scheduled", pod.name_any())));
            }
        }
        Ok(())
    })
    .await?;
    accounted_for(ctx, &before, async {
        ctx.delete::<Deployment>(plan.name()).await?;
        ctx.pods_created(&plan.selector_labels(), 0).await.map(drop)
    })
    .await
}

async fn over_allocatable(ctx: &Context) -> Result<(), StepError> {
    let title = "two nodes with two zones are there";
    let (arena, scope) = steps::arena_of_one_scope(ctx, title, &Fit::Anything).await?;
    let padded = ctx
        .step(
            "all nodes but the target are full",
            ctx.pad_others(&arena, &Resources::literal("0c 0Gi")),
        )
        .await?;
    let before = arena.target_in(&padded)?;
    let zones = before.zones.iter().map(|zone| zone.allocatable().core());
    let largest = zones.reduce(|most, zone| most.highest(&zone));
    let request = largest
        .unwrap_or_default()
        .plus(&Resources::literal("1c 100Mi"));
    let plan = arena.plan(ctx, "testpod", [ResourceRequest::Limits(request.clone())]);
    let reason = scope.alignment_failure();
    let title = format!("a pod with {request}, more than a zone may give, stays pending: {reason}");
    steps::pod_stays_pending(ctx, title, &plan, reason).await?;
    steps::zones_are_as_before(ctx, before).await
}

/// Fills all zones with pods that each take nearly a whole zone: every node has room for two.
async fn scale_up(ctx: &Context) -> Result<(), StepError> {
    let free = Resources::literal("6c 6Gi");
    let title = format!("two nodes have a zone with {free}");
    let (arena, _) = steps::arena_of_one_scope(ctx, &title, &Fit::Zone(free.clone())).await?;
    ctx.step("the cluster is settled", ctx.settle()).await?;
    let zones = arena.nodes().iter().flat_map(|node| &node.zones);
    let smallest = zones
        .map(|zone| zone.available().core())
        .reduce(|least, zone| least.lowest(&zone));
    let request = smallest.unwrap_or_default().minus(&free);
    let resources = [ResourceRequest::Limits(request.clone())];
    let plan = arena.plan(ctx, "test-dp-scaleup", resources);
    let nodes = arena.nodes().len();
    let replicas = i32::try_from(nodes).unwrap_or(i32::MAX);
    let labels = plan.selector_labels();
    let title = format!("{nodes} pods with {request} run");
    let pods = steps::deployment_is_complete(ctx, title, &plan, replicas).await?;
    steps::stack_placed_all(ctx, &pods).await?;
    let all = 2 * nodes;
    let pods = ctx
        .step(format!("{all} of them run, one in each zone"), async {
            ctx.scale_deployment(plan.name(), all).await?;
            ctx.deployment_complete(plan.name(), &labels).await
        })
        .await?;
    steps::stack_placed_all(ctx, &pods).await
}
