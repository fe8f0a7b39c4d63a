//! The overhead of a runtime class is accounted to the node and to no zone (scenarios-serial.md 8.7).

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::node::v1::{Overhead, RuntimeClass};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use kube::api::Api;

use crate::context::Context;
use crate::context::arena::{Arena, Fit};
use crate::context::padding::in_both_zones;
use crate::needs::Need;
use crate::observed::{NodeTopology, Scope};
use crate::resources::Resources;
use crate::scenario::{Scenario, body};
use crate::scenarios::registry::scenario;
use crate::scenarios::steps;
use crate::step::StepError;
use crate::workload::{PodPlan, ResourceRequest};

const NEEDS: &[Need] = &[Need::nodes(2)];
const CLASS: &str = "test-rtclass";
/// Runtime handlers that run containers unmodified.
const HANDLERS: [&str; 2] = ["crun", "runc"];
const REQUEST: &str = "6c 6Gi";
const LEAST: &str = "1c 1Gi";

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        scenario(
            "overhead/not-accounted-in-nrt",
            NEEDS,
            body(|ctx| Box::pin(not_accounted(ctx))),
        ),
        scenario(
            "overhead/pending-overhead-too-big",
            NEEDS,
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
        .plan(ctx, "test-dp", [resources])
        .of_runtime_class(CLASS)
}

async fn not_accounted(ctx: &Context) -> Result<(), StepError> {
    let arena = arena(ctx).await?;
    let overhead = Resources::literal("500m 500M");
    class(ctx, &arena.target().node, &overhead).await?;
    let nodes = steps::others_are_padded(ctx, &arena, &Resources::literal(LEAST)).await?;
    let before = arena.target_in(&nodes)?;
    let plan = plan(ctx, &arena);
    let pods = steps::deployment_is_complete(ctx, "the deployment is complete", &plan, 1).await?;
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
        steps::stack_placed(ctx, pod).await?;
    }
    let request = Resources::literal(REQUEST);
    ctx.step(
        format!("one zone of the target accounts for {request}, and not for the overhead"),
        ctx.accounted(before, &request, true, Scope::Pod),
    )
    .await?;
    let is_other = |node: &&NodeTopology| node.node != before.node;
    let others: Vec<NodeTopology> = nodes.iter().filter(is_other).cloned().collect();
    ctx.step(
        "the zones of all other nodes are as before",
        ctx.all_restored(&others),
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
    let others = in_both_zones(&least);
    let target = std::slice::from_ref(&least);
    let nodes = ctx
        .step(
            title,
            ctx.pad_target_and_others(&arena, target, &others, "others"),
        )
        .await?;
    let plan = plan(ctx, &arena);
    ctx.step("the pod of the deployment stays pending", async {
        ctx.create::<Deployment>(plan.deployment(1)).await?;
        let pods = ctx.pods_created(&plan.selector_labels(), 1).await?;
        let names: Vec<String> = pods.iter().map(ResourceExt::name_any).collect();
        ctx.stay_pending(&names, "Insufficient").await
    })
    .await?;
    steps::all_zones_are_as_before(ctx, &nodes).await
}
