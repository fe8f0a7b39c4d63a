//! The overhead of a runtime class is accounted to the node and to no zone (scenarios-serial.md 8.7).

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::node::v1::{Overhead, RuntimeClass};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use kube::api::Api;

use crate::arena::{Arena, Fit};
use crate::context::Context;
use crate::observed::NodeTopology;
use crate::resources::Resources;
use crate::scenario::{Body, Need, Scenario, Scope, StepError, body};
use crate::scenarios::{labels, title};
use crate::workload::{PodPlan, ResourceRequest};

const CONTEXT: &str = "[serial][disruptive][scheduler] numaresources workload overhead";
const LABELS: &[&str] = &["disruptive", "scheduler", "feature:overhead"];
const CLASS: &str = "test-rtclass";
/// Runtime handlers that run containers unmodified.
const HANDLERS: [&str; 2] = ["crun", "runc"];
const REQUEST: &str = "6c 6Gi";
const LEAST: &str = "1c 1Gi";

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
            "overhead/not-accounted-in-nrt",
            47582,
            "tier2",
            "schedule a guaranteed Pod in a single NUMA zone and check overhead is not accounted in NRT",
            body(|ctx| Box::pin(not_accounted(ctx))),
        ),
        scenario(
            "overhead/pending-overhead-too-big",
            53819,
            "tier2 unsched feature:unsched",
            "Pod pending when resources requested + pod overhead don't fit on the target node; NRT objects are not updated",
            body(|ctx| Box::pin(too_big(ctx))),
        ),
    ]
}

async fn arena(ctx: &Context) -> Result<Arena, StepError> {
    // the pod, its overhead rounded up, and what is left for others
    let room = Resources::literal("9c 8Gi");
    let title = format!("two nodes have a zone with {room}");
    ctx.step(title, ctx.arena(None, 2, &Fit::Zone(room))).await
}

/// Creates a runtime class whose pods have this overhead on their node.
async fn class(ctx: &Context, node: &str, overhead: &Resources) -> Result<(), StepError> {
    let title = format!("runtime class {CLASS} has an overhead of {overhead}");
    ctx.step(title, async {
        let node = Api::<Node>::all(ctx.client()).get(node).await?;
        let handlers = node.status.and_then(|status| status.runtime_handlers);
        let handlers = handlers.unwrap_or_default();
        let mut names = handlers
            .iter()
            .filter_map(|handler| handler.name.as_deref());
        let Some(handler) = names.find(|name| HANDLERS.contains(name)) else {
            return Err(StepError::fail(format!(
                "the node has none of the runtime handlers {HANDLERS:?}"
            )));
        };
        let class = RuntimeClass {
            metadata: ObjectMeta {
                name: Some(CLASS.to_owned()),
                ..ObjectMeta::default()
            },
            handler: handler.to_owned(),
            overhead: Some(Overhead {
                pod_fixed: Some(overhead.to_quantities()),
            }),
            scheduling: None,
        };
        ctx.create_global(&class).await.map(drop)
    })
    .await
}

fn plan(ctx: &Context, arena: &Arena) -> PodPlan {
    let resources = ResourceRequest::Limits(Resources::literal(REQUEST));
    arena
        .confine(PodPlan::new("test-dp", ctx.scheduler(), [resources]))
        .of_runtime_class(CLASS)
}

fn zones_of<'a>(nodes: &'a [NodeTopology], arena: &Arena) -> Result<&'a NodeTopology, StepError> {
    let target = &arena.target().node;
    let found = nodes.iter().find(|node| node.node == *target);
    found.ok_or_else(|| StepError::fail(format!("the NRT of {target} is gone")))
}

async fn not_accounted(ctx: &Context) -> Result<(), StepError> {
    let arena = arena(ctx).await?;
    let overhead = Resources::literal("500m 500M");
    class(ctx, &arena.target().node, &overhead).await?;
    let least = Resources::literal(LEAST);
    let nodes = ctx
        .step(
            format!("all nodes but the target are padded to {least} a zone"),
            ctx.pad_others(&arena, &least),
        )
        .await?;
    let before = zones_of(&nodes, &arena)?;
    let plan = plan(ctx, &arena);
    let pods = ctx
        .step("the deployment is complete", async {
            ctx.create(plan.deployment(1)).await?;
            ctx.deployment_complete(plan.name(), &plan.selector_labels())
                .await
        })
        .await?;
    for pod in &pods {
        ctx.step("the pod is on the target, with the overhead", async {
            ctx.on_node(pod, &before.node)?;
            let seen = pod.spec.as_ref().and_then(|spec| spec.overhead.clone());
            let seen = Resources::from_quantities(&seen.unwrap_or_default())
                .map_err(|error| StepError::fail(error.to_string()))?;
            if seen == overhead {
                Ok(())
            } else {
                Err(StepError::mismatch("another overhead", &overhead, seen))
            }
        })
        .await?;
        ctx.step(
            "the scheduler under test placed it",
            ctx.scheduled_by_stack(pod),
        )
        .await?;
    }
    let request = Resources::literal(REQUEST);
    ctx.step(
        format!("one zone of the target accounts for {request}, and not for the overhead"),
        ctx.accounted(before, &request, true, Scope::Pod),
    )
    .await
}

async fn too_big(ctx: &Context) -> Result<(), StepError> {
    let arena = arena(ctx).await?;
    let zones = arena
        .target()
        .zones
        .iter()
        .map(|zone| zone.allocatable().core());
    let largest = zones
        .reduce(|most, zone| most.highest(&zone))
        .unwrap_or_default();
    class(ctx, &arena.target().node, &largest).await?;
    let least = Resources::literal(LEAST);
    let title = format!("all nodes but the target have {least} a zone, and so has its first zone");
    let nodes = ctx
        .step(title, async {
            let mut pads = ctx
                .pad(arena.target(), std::slice::from_ref(&least), "target")
                .await?;
            for node in arena.others() {
                pads.extend(
                    ctx.pad(node, &[least.clone(), least.clone()], "others")
                        .await?,
                );
            }
            ctx.padded(&pads).await
        })
        .await?;
    let before = zones_of(&nodes, &arena)?;
    let plan = plan(ctx, &arena);
    ctx.step("the pod of the deployment stays pending", async {
        ctx.create::<Deployment>(plan.deployment(1)).await?;
        let pods = ctx.pods_created(&plan.selector_labels(), 1).await?;
        let names: Vec<String> = pods.iter().map(ResourceExt::name_any).collect();
        ctx.stay_pending(&names, "Insufficient").await
    })
    .await?;
    ctx.step(
        "the zones of the target are as before",
        ctx.restored(before),
    )
    .await
}
