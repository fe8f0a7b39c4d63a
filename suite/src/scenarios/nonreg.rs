//! Pods that no scheduler placed, pods that fit nowhere, and nodes that fill up (scenarios-serial.md 8.11).

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

use crate::arena::{Arena, Fit};
use crate::context::Context;
use crate::observed::NodeTopology;
use crate::resources::Resources;
use crate::scenario::{Body, Need, Scenario, Scope, StepError, body};
use crate::scenarios::fundamentals::all_scheduled;
use crate::scenarios::{labels, title};
use crate::workload::{PodPlan, ResourceRequest};

const CONTEXT: &str = "[serial][disruptive][scheduler] numaresources workload placement";
const LABELS: &[&str] = &["disruptive", "scheduler", "feature:nonreg"];
/// A scheduler that does not exist: a pod that has a node needs none.
const ABSENT_SCHEDULER: &str = "foo";
const BOUND: &str = "2c 100Mi";

pub(super) fn scenarios() -> Vec<Scenario> {
    let scenario = |id, test_id, own, text, body: Body| Scenario {
        id,
        test_id: Some(test_id),
        title: title(CONTEXT, Some(test_id), "", text),
        labels: labels(LABELS, own),
        needs: vec![Need::Nodes {
            count: 2,
            scope: None,
        }],
        body,
    };
    vec![
        scenario(
            "nonreg/pod-nodename",
            47584,
            "tier2",
            "should be able to schedule guaranteed pod in selective way",
            body(|ctx| Box::pin(pod_with_node_name(ctx))),
        ),
        scenario(
            "nonreg/dp-nodename",
            48964,
            "tier3",
            "should be able to schedule a guaranteed deployment pod to a specific node",
            body(|ctx| Box::pin(deployment_with_node_name(ctx))),
        ),
        scenario(
            "nonreg/over-allocatable",
            47613,
            "tier3 nonreg unsched feature:unsched",
            "should not schedule a pod requesting resources that are not allocatable at numa level",
            body(|ctx| Box::pin(over_allocatable(ctx))),
        ),
        scenario(
            "nonreg/dp-scaleup",
            85779,
            "tier2 nonreg",
            "should handle deployment scaleup such as nodes can be fully utilized",
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
    let nodes = ctx
        .step(
            format!("all nodes but the target are padded to {free} a zone"),
            ctx.pad_others(&arena, &free),
        )
        .await?;
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
    ctx.step("after the deletion the zones are as before", async {
        delete.await?;
        ctx.settle().await?;
        ctx.restored(before).await
    })
    .await
}

async fn pod_with_node_name(ctx: &Context) -> Result<(), StepError> {
    let before = padded(ctx).await?;
    let plan = PodPlan::new(
        "testpod",
        ABSENT_SCHEDULER,
        [ResourceRequest::Limits(Resources::literal(BOUND))],
    )
    .bound_to(&before.node);
    let pod = ctx
        .step("a pod that names a nearly full node runs", async {
            ctx.create(plan.pod()).await?;
            ctx.pods_running(&[plan.name().to_owned()]).await
        })
        .await?
        .remove(0);
    ctx.step("the pod is on that node", async {
        ctx.on_node(&pod, &before.node)
    })
    .await?;
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
    let pods = ctx
        .step(
            "a deployment that names a nearly full node is complete",
            async {
                ctx.create(plan.deployment(1)).await?;
                ctx.deployment_complete(plan.name(), &plan.selector_labels())
                    .await
            },
        )
        .await?;
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

/// Takes an arena with nodes of one scope, because the reason of a rejection depends on it.
async fn one_scope(ctx: &Context, title: &str, fit: &Fit) -> Result<(Arena, Scope), StepError> {
    let count = |scope| ctx.facts().candidates(Some(scope)).count();
    let scope = if count(Scope::Container) >= count(Scope::Pod) {
        Scope::Container
    } else {
        Scope::Pod
    };
    let arena = ctx.step(title, ctx.arena(Some(scope), 2, fit)).await?;
    Ok((arena, scope))
}

async fn over_allocatable(ctx: &Context) -> Result<(), StepError> {
    let (arena, scope) =
        one_scope(ctx, "two nodes with two zones are there", &Fit::Anything).await?;
    let padded = ctx
        .step(
            "all nodes but the target are full",
            ctx.pad_others(&arena, &Resources::literal("0c 0Gi")),
        )
        .await?;
    let target = &arena.target().node;
    let Some(before) = padded.into_iter().find(|node| node.node == *target) else {
        return Err(StepError::fail(format!("the NRT of {target} is gone")));
    };
    let zones = before.zones.iter().map(|zone| zone.allocatable().core());
    let largest = zones.reduce(|most, zone| most.highest(&zone));
    let request = largest
        .unwrap_or_default()
        .plus(&Resources::literal("1c 100Mi"));
    let plan = arena.confine(PodPlan::new(
        "testpod",
        ctx.scheduler(),
        [ResourceRequest::Limits(request.clone())],
    ));
    let reason = scope.alignment_failure();
    ctx.step(
        format!("a pod with {request}, more than a zone may give, stays pending: {reason}"),
        async {
            ctx.create(plan.pod()).await?;
            ctx.stay_pending(&[plan.name().to_owned()], reason).await
        },
    )
    .await?;
    ctx.step(
        "the zones of the target are as before",
        ctx.restored(&before),
    )
    .await
}

/// Fills all zones with pods that each take nearly a whole zone: every node has room for two.
async fn scale_up(ctx: &Context) -> Result<(), StepError> {
    let free = Resources::literal("6c 6Gi");
    let title = format!("two nodes have a zone with {free}");
    let (arena, _) = one_scope(ctx, &title, &Fit::Zone(free.clone())).await?;
    ctx.step("the cluster is settled", ctx.settle()).await?;
    let zones = arena.nodes().iter().flat_map(|node| &node.zones);
    let smallest = zones
        .map(|zone| zone.available().core())
        .reduce(|least, zone| least.lowest(&zone));
    let request = smallest.unwrap_or_default().minus(&free);
    let plan = arena.confine(PodPlan::new(
        "test-dp-scaleup",
        ctx.scheduler(),
        [ResourceRequest::Limits(request.clone())],
    ));
    let nodes = arena.nodes().len();
    let replicas = |count: usize| i32::try_from(count).unwrap_or(i32::MAX);
    let labels = plan.selector_labels();
    let pods = ctx
        .step(format!("{nodes} pods with {request} run"), async {
            ctx.create(plan.deployment(replicas(nodes))).await?;
            ctx.deployment_complete(plan.name(), &labels).await
        })
        .await?;
    all_scheduled(ctx, &pods).await?;
    let all = 2 * nodes;
    let pods = ctx
        .step(format!("{all} of them run, one in each zone"), async {
            ctx.scale_deployment(plan.name(), all).await?;
            ctx.deployment_complete(plan.name(), &labels).await
        })
        .await?;
    all_scheduled(ctx, &pods).await
}
