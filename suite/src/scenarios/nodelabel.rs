//! Node selectors and node affinity in addition to NUMA zones (scenarios-serial.md 8.3).

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use crate::arena::{Arena, Fit};
use crate::context::Context;
use crate::observed::NodeTopology;
use crate::resources::Resources;
use crate::scenario::{Body, Need, Scenario, Scope, StepError, body};
use crate::scenarios::{labels, title};
use crate::workload::{PodPlan, ResourceRequest};

const CONTEXT: &str =
    "[serial][disruptive][scheduler] numaresources workload placement considering node selector";
const AFFINITY: &str = "[serial][disruptive][scheduler] numaresources workload placement considering node selector a guaranteed \
    deployment pod with nodeAffinity should be scheduled on one NUMA zone on a matching labeled node with enough resources";
const LABELS: &[&str] = &[
    "disruptive",
    "scheduler",
    "feature:wlplacement",
    "feature:nodelabel",
];
/// Label of the nodes that the pod selects.
const SIZE: &str = "size";
const REQUEST: &str = "16c 16Gi";
const FREE: &str = "12c 12Gi";

pub(super) fn scenarios() -> Vec<Scenario> {
    let scenario = |id, test_id, context, text, body: Body| Scenario {
        id,
        test_id: Some(test_id),
        title: title(context, Some(test_id), "", text),
        labels: labels(LABELS, "tier2"),
        needs: vec![
            Need::Nodes {
                count: 2,
                scope: None,
            },
            Need::Zone {
                count: 2,
                scope: None,
                request: REQUEST,
            },
        ],
        body,
    };
    vec![
        scenario(
            "nodelabel/node-selector",
            47598,
            CONTEXT,
            "should place the pod in the node with available resources in one NUMA zone and fulfilling node selector",
            body(|ctx| Box::pin(node_selector(ctx))),
        ),
        scenario(
            "nodelabel/affinity-required",
            47597,
            AFFINITY,
            "should be able to schedule pod with affinity property requiredDuringSchedulingIgnoredDuringExecution on the available node with feasible numa zone",
            body(|ctx| Box::pin(affinity(ctx, required))),
        ),
        scenario(
            "nodelabel/affinity-preferred",
            49843,
            AFFINITY,
            "should be able to schedule pod with affinity property prefferdDuringSchedulingIgnoredDuringExecution on the available node with feasible numa zone",
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
    let free = Resources::literal(FREE);
    ctx.step(
        format!("all nodes but the target are padded to {free} a zone"),
        ctx.pad_others(&arena, &free),
    )
    .await?;
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
    ctx.step(
        "the target is the last choice without NUMA knowledge",
        ctx.make_last_choice(&arena),
    )
    .await?;
    let before = ctx.baseline_of(&arena.target().node).await?;
    Ok((arena, before))
}

fn plan(ctx: &Context, arena: &Arena, name: &str) -> PodPlan {
    let resources = ResourceRequest::Limits(Resources::literal(REQUEST));
    arena.confine(PodPlan::new(name, ctx.scheduler(), [resources]))
}

async fn placed(ctx: &Context, pod: &Pod, before: &NodeTopology) -> Result<(), StepError> {
    ctx.step("the pod is on the target", async {
        ctx.on_node(pod, &before.node)
    })
    .await?;
    ctx.step(
        "the scheduler under test placed it",
        ctx.scheduled_by_stack(pod),
    )
    .await?;
    let request = Resources::literal(REQUEST);
    ctx.step(
        format!("one zone of the target accounts for {request}"),
        ctx.accounted(before, &request, true, Scope::Pod),
    )
    .await
}

async fn node_selector(ctx: &Context) -> Result<(), StepError> {
    let (arena, before) = prepared(ctx, "medium", "medium").await?;
    let plan = plan(ctx, &arena, "testpod").on_nodes_with(SIZE, "medium");
    let pod = ctx
        .step("the pod runs", async {
            ctx.create(plan.pod()).await?;
            ctx.pods_running(&[plan.name().to_owned()]).await
        })
        .await?
        .remove(0);
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
    let pods = ctx
        .step("the deployment is complete", async {
            ctx.create(plan.deployment(1)).await?;
            ctx.deployment_complete(plan.name(), &plan.selector_labels())
                .await
        })
        .await?;
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
