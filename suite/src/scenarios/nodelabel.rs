//! Node selectors and node affinity in addition to NUMA zones (scenarios-serial.md 8.3).

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use crate::context::Context;
use crate::context::arena::{Arena, Fit};
use crate::needs::Need;
use crate::observed::NodeTopology;
use crate::resources::Resources;
use crate::scenario::{Scenario, body};
use crate::scenarios::registry::scenario;
use crate::scenarios::steps;
use crate::step::StepError;
use crate::workload::{PodPlan, ResourceRequest};

const NEEDS: &[Need] = &[
    Need::nodes(2),
    Need::Zone {
        count: 2,
        scope: None,
        request: REQUEST,
    },
];
/// Label of the nodes that the pod selects.
const SIZE: &str = "size";
const REQUEST: &str = "16c 16Gi";
const FREE: &str = "12c 12Gi";

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        scenario(
            "nodelabel/node-selector",
            NEEDS,
            body(|ctx| Box::pin(node_selector(ctx))),
        ),
        scenario(
            "nodelabel/affinity-required",
            NEEDS,
            body(|ctx| Box::pin(affinity(ctx, required))),
        ),
        scenario(
            "nodelabel/affinity-preferred",
            NEEDS,
            body(|ctx| Box::pin(affinity(ctx, preferred))),
        ),
    ]
}

/// Prepares the nodes: the target and another one have a size, and only the target has a zone with room for the pod.
async fn prepared(
    ctx: &Context,
    target: &str,
    other: &str,
) -> Result<(Arena, NodeTopology), StepError> {
    let request = Resources::literal(REQUEST);
    let arena = ctx
        .step(
            format!("two nodes have a zone with {request}"),
            ctx.arena(None, 2, &Fit::Zone(request)),
        )
        .await?;
    steps::others_are_padded(ctx, &arena, &Resources::literal(FREE)).await?;
    ctx.step(
        format!("the target has {SIZE}={target}, another node {SIZE}={other}"),
        async {
            ctx.label_node(&arena.target().node, SIZE, target).await?;
            match arena.others().next() {
                Some(node) => ctx.label_node(&node.node, SIZE, other).await,
                None => Ok(()),
            }
        },
    )
    .await?;
    let before = steps::target_is_last_choice(ctx, &arena).await?;
    Ok((arena, before))
}

fn plan(ctx: &Context, arena: &Arena, name: &str) -> PodPlan {
    let resources = ResourceRequest::Limits(Resources::literal(REQUEST));
    arena.plan(ctx, name, [resources])
}

async fn placed(ctx: &Context, pod: &Pod, before: &NodeTopology) -> Result<(), StepError> {
    steps::pod_is_on(ctx, "the pod is on the target", pod, &before.node).await?;
    steps::stack_placed(ctx, pod).await?;
    steps::one_zone_accounts_for(ctx, before, &Resources::literal(REQUEST)).await
}

async fn node_selector(ctx: &Context) -> Result<(), StepError> {
    let (arena, before) = prepared(ctx, "medium", "medium").await?;
    let plan = plan(ctx, &arena, "testpod").on_nodes_with(SIZE, "medium");
    let pod = steps::pod_runs(ctx, "the pod runs", &plan).await?;
    placed(ctx, &pod, &before).await
}

/// Returns a term that matches nodes of either size.
fn sizes() -> Value {
    json!({"matchExpressions": [{"key": SIZE, "operator": "In", "values": ["large", "medium"]}]})
}

fn required() -> Value {
    json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [sizes()]}})
}

fn preferred() -> Value {
    json!({"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": sizes()}]})
}

async fn affinity(ctx: &Context, affinity: fn() -> Value) -> Result<(), StepError> {
    let (arena, before) = prepared(ctx, "large", "medium").await?;
    let plan = plan(ctx, &arena, "test-dp").with_node_affinity(
        serde_json::from_value(affinity()).map_err(|error| StepError::fail(error.to_string()))?,
    );
    let pods = steps::deployment_is_complete(ctx, "the deployment is complete", &plan, 1).await?;
    for pod in &pods {
        placed(ctx, pod, &before).await?;
    }
    ctx.step("without the labels the pod stays where it is", async {
        for node in arena.names() {
            ctx.unlabel_node(&node, SIZE).await?;
        }
        // a component that evicts pods has seen the change once it has seen a pod that was created after it
        ctx.barrier(&before).await?;
        let now = ctx
            .deployment_complete(plan.name(), &plan.selector_labels())
            .await?;
        let uids = |pods: &[Pod]| -> Vec<_> {
            let mut uids: Vec<_> = pods.iter().map(|pod| pod.metadata.uid.clone()).collect();
            uids.sort();
            uids
        };
        if uids(&now) == uids(&pods) {
            Ok(())
        } else {
            Err(StepError::fail("the deployment has another pod"))
        }
    })
    .await
}
