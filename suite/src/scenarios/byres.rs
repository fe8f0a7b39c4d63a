//! Pods for which a single resource decides the placement (scenarios-serial.md 8.4).

use crate::arena::Fit;
use crate::context::Context;
use crate::resources::Resources;
use crate::scenario::{Need, Scenario, Scope, StepError, body};
use crate::scenarios::{labels, title};
use crate::workload::{PodPlan, ResourceRequest};

const CONTEXT: &str = "[serial][disruptive][scheduler][byres] numaresources workload placement considering specific resources \
    requests a guaranteed pod with one container should be placed and aligned on the node";
const LABELS: &[&str] = &[
    "disruptive",
    "scheduler",
    "byres",
    "feature:wlplacement",
    "feature:byres",
    "tier0",
    "ressched",
];
const REQUEST: &str = "16c 16Gi";

struct Row {
    id: &'static str,
    test_id: u32,
    free: &'static str,
    text: &'static str,
}

static ROWS: &[Row] = &[
    Row {
        id: "byres/memory-decides",
        test_id: 85792,
        free: "16c 8Gi",
        text: "with topology-manager-scope: pod, using memory as deciding factor",
    },
    Row {
        id: "byres/cpu-decides",
        test_id: 85793,
        free: "8c 16Gi",
        text: "with topology-manager-scope: pod, using CPU as the deciding factor",
    },
];

pub(super) fn scenarios() -> Vec<Scenario> {
    ROWS.iter()
        .map(|row| Scenario {
            id: row.id,
            test_id: Some(row.test_id),
            title: title(CONTEXT, Some(row.test_id), "[tmscope:pod]", row.text),
            labels: labels(LABELS, "tmscope:pod"),
            needs: vec![
                Need::Nodes {
                    count: 2,
                    scope: Some(Scope::Pod),
                },
                Need::Zone {
                    count: 2,
                    scope: Some(Scope::Pod),
                    request: REQUEST,
                },
            ],
            body: body(move |ctx| Box::pin(run(ctx, row))),
        })
        .collect()
}

async fn run(ctx: &Context, row: &Row) -> Result<(), StepError> {
    let request = Resources::literal(REQUEST);
    let title = format!("two nodes of scope pod have a zone with {request}");
    let arena = ctx
        .step(
            title,
            ctx.arena(Some(Scope::Pod), 2, &Fit::Zone(request.clone())),
        )
        .await?;
    let free = Resources::literal(row.free);
    ctx.step(
        format!(
            "one zone of one node has exactly {request} left, all other nodes have {free} a zone"
        ),
        async {
            let mut pads = ctx
                .pad(
                    arena.target(),
                    &[Resources::literal("0c 0Gi"), request.clone()],
                    "target",
                )
                .await?;
            for node in arena.others() {
                pads.extend(
                    ctx.pad(node, &[free.clone(), free.clone()], "others")
                        .await?,
                );
            }
            ctx.padded(&pads).await
        },
    )
    .await?;
    ctx.step(
        "the target is the last choice without NUMA knowledge",
        ctx.make_last_choice(&arena),
    )
    .await?;
    let before = ctx.baseline_of(&arena.target().node).await?;
    let plan = arena.confine(PodPlan::new(
        "testpod",
        ctx.scheduler(),
        [ResourceRequest::Limits(request.clone())],
    ));
    let pod = ctx
        .step("the pod runs", async {
            ctx.create(plan.pod()).await?;
            ctx.pods_running(&[plan.name().to_owned()]).await
        })
        .await?
        .remove(0);
    ctx.step("the pod is on the one node with a zone for it", async {
        ctx.on_node(&pod, &before.node)
    })
    .await?;
    ctx.step(
        "the scheduler under test placed it",
        ctx.scheduled_by_stack(&pod),
    )
    .await?;
    ctx.step(
        format!("one zone of the target accounts for {request}"),
        ctx.accounted(&before, &request, true, Scope::Pod),
    )
    .await
}
