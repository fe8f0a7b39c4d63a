//! What is accounted, and what is not (scenarios-serial.md 8.8).

use k8s_openapi::api::core::v1::Pod;

use crate::arena::{Arena, Fit};
use crate::context::Context;
use crate::observed::{NodeTopology, difference};
use crate::padding::NUMACELL;
use crate::resources::{CPU, MEMORY, Resources};
use crate::scenario::{Body, Need, Scenario, Scope, Stop, body};
use crate::scenarios::{labels, title};
use crate::workload::{Asks, PodPlan};

const CONTEXT: &str =
    "[serial][disruptive][scheduler][resacct] numaresources workload resource accounting";
const LABELS: &[&str] = &["disruptive", "scheduler", "resacct", "feature:resacct"];

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
            "resacct/pending-then-scheduled",
            49068,
            "tier2 placement",
            "should keep the pod pending if not enough resources available, then schedule when resources are freed",
            body(|ctx| Box::pin(pending_then_scheduled(ctx))),
        ),
        scenario(
            "resacct/best-effort",
            48685,
            "tier1",
            "should properly schedule a best-effort pod with no changes in NRTs",
            body(|ctx| Box::pin(not_accounted(ctx, false))),
        ),
        scenario(
            "resacct/burstable",
            48686,
            "tier1",
            "should properly schedule a burstable pod with no changes in NRTs",
            body(|ctx| Box::pin(not_accounted(ctx, true))),
        ),
    ]
}

async fn pending_then_scheduled(ctx: &Context) -> Result<(), Stop> {
    let request = Resources::literal("4c 8Gi");
    let title = format!("two nodes have a zone with {request}");
    let (arena, scope) = one_scope(ctx, &title, &Fit::Zone(request.clone())).await?;
    let small = Resources::literal("2c 4Gi");
    let title = format!("the target has {request} left in each zone, all other nodes {small}");
    let padded = ctx
        .step(title, async {
            let mut pads = ctx
                .pad(
                    arena.target(),
                    &[request.clone(), request.clone()],
                    "target",
                )
                .await?;
            for node in arena.others() {
                pads.extend(
                    ctx.pad(node, &[small.clone(), small.clone()], "others")
                        .await?,
                );
            }
            ctx.padded(&pads).await
        })
        .await?;
    let Some(before) = padded.iter().find(|node| node.node == arena.target().node) else {
        return Err(Stop::fail(format!(
            "the NRT of {} is gone",
            arena.target().node
        )));
    };
    let holders = ctx
        .step(
            "a small pod in each zone of the target leaves none that fits",
            hold_zones(ctx, before),
        )
        .await?;
    let Some((last, before_last)) = holders else {
        return Err(Stop::fail("the target has no zones"));
    };

    let plan = arena.confine(PodPlan::new(
        "testpod",
        ctx.scheduler(),
        [Asks::Limits(request.clone())],
    ));
    ctx.step(
        format!("the pod stays pending: {}", scope.alignment_failure()),
        async {
            ctx.create(plan.pod()).await?;
            ctx.stay_pending(&[plan.name().to_owned()], scope.alignment_failure())
                .await
        },
    )
    .await?;
    ctx.step("one of the small pods is deleted", ctx.delete::<Pod>(&last))
        .await?;
    let pod = ctx
        .step("the pod runs", ctx.pods_running(&[plan.name().to_owned()]))
        .await?
        .remove(0);
    ctx.step("the pod is on the target", async {
        ctx.on_node(&pod, &before.node)
    })
    .await?;
    ctx.step(
        "the scheduler under test placed it",
        ctx.scheduled_by_us(&pod),
    )
    .await?;
    ctx.step(
        format!("one zone of the target accounts for {request}"),
        ctx.accounted(&before_last, &request, true, Scope::Pod),
    )
    .await
}

/// Puts a small pinned pod into each zone of a node. Returns the last one's name and the node's state before it.
async fn hold_zones(
    ctx: &Context,
    node: &NodeTopology,
) -> Result<Option<(String, NodeTopology)>, Stop> {
    let mut last = None;
    for zone in &node.zones {
        let before = ctx.baseline_of(&node.node).await?;
        let name = format!("tgtpadpod-{}", zone.name);
        let mut limits = Resources::literal("1c 1Gi");
        limits.set(&format!("{NUMACELL}{:02}", zone.id), 1000);
        ctx.create(
            PodPlan::new(&name, "", [Asks::Limits(limits)])
                .bound_to(&node.node)
                .pod(),
        )
        .await?;
        ctx.pods_running(std::slice::from_ref(&name)).await?;
        ctx.settle().await?;
        last = Some((name, before));
    }
    Ok(last)
}

/// A pod that is not Guaranteed runs on the target, whose zones do not change.
async fn not_accounted(ctx: &Context, burstable: bool) -> Result<(), Stop> {
    let (arena, _) = one_scope(ctx, "two nodes with two zones are there", &Fit::Anything).await?;
    let target = arena.target().clone();
    let base = ctx.base_load(&target.node).await?.core();
    let request = target
        .available()
        .filtered(|name, _| name == CPU || name == MEMORY)
        .minus(&base);
    let reference = ctx
        .step("all nodes but the target are full", async {
            let nothing = Resources::literal("0c 0Gi");
            let mut pads = Vec::new();
            for node in arena.others() {
                pads.extend(
                    ctx.pad(node, &[nothing.clone(), nothing.clone()], "full")
                        .await?,
                );
            }
            ctx.padded(&pads).await
        })
        .await?;
    let asks = if burstable {
        Asks::Requests(request.clone())
    } else {
        Asks::Nothing
    };
    let plan = arena.confine(PodPlan::new("testpod", ctx.scheduler(), [asks]));
    let title = if burstable {
        format!("a pod that requests {request} runs")
    } else {
        "a best-effort pod runs".to_owned()
    };
    let pod = ctx
        .step(title, async {
            ctx.create(plan.pod()).await?;
            ctx.pods_running(&[plan.name().to_owned()]).await
        })
        .await?
        .remove(0);
    if burstable {
        ctx.step("the pod is on the target", async {
            ctx.on_node(&pod, &target.node)
        })
        .await?;
    }
    ctx.step(
        "the scheduler under test placed it",
        ctx.scheduled_by_us(&pod),
    )
    .await?;
    ctx.step(
        "the exporter has seen the pod and no zone of any node changed",
        async {
            let node = crate::checks::node_of(&pod).unwrap_or_default().to_owned();
            let Some(node) = reference.iter().find(|topology| topology.node == node) else {
                return Err(Stop::fail(format!("node {node} has no NRT")));
            };
            let nodes = ctx.barrier(node).await?;
            match difference(&reference, &nodes) {
                None => Ok(()),
                Some(seen) => Err(Stop::mismatch("an NRT changed", "no change", seen)),
            }
        },
    )
    .await
}

/// Two nodes of one scope: that of which there are more.
async fn one_scope(ctx: &Context, title: &str, fit: &Fit) -> Result<(Arena, Scope), Stop> {
    let count = |scope| ctx.facts().candidates(Some(scope)).count();
    let scope = if count(Scope::Pod) > count(Scope::Container) {
        Scope::Pod
    } else {
        Scope::Container
    };
    let arena = ctx.step(title, ctx.arena(Some(scope), 2, fit)).await?;
    Ok((arena, scope))
}
