//! Pods for which a single resource decides the placement (scenarios-serial.md 8.4).

use crate::context::Context;
use crate::context::arena::Fit;
use crate::context::padding::in_both_zones;
use crate::needs::Need;
use crate::observed::Scope;
use crate::resources::Resources;
use crate::scenario::{Scenario, body};
use crate::scenarios::registry::scenario;
use crate::scenarios::steps;
use crate::step::StepError;
use crate::workload::ResourceRequest;

const NEEDS: &[Need] = &[
    Need::Nodes {
        count: 2,
        scope: Some(Scope::Pod),
    },
    Need::Zone {
        count: 2,
        scope: Some(Scope::Pod),
        request: REQUEST,
    },
];
const REQUEST: &str = "16c 16Gi";

struct Row {
    id: &'static str,
    free: &'static str,
}

static ROWS: &[Row] = &[
    Row {
        id: "byres/memory-decides",
        free: "16c 8Gi",
    },
    Row {
        id: "byres/cpu-decides",
        free: "8c 16Gi",
    },
];

pub(super) fn scenarios() -> Vec<Scenario> {
    let build =
        |row: &'static Row| scenario(row.id, NEEDS, body(move |ctx| Box::pin(run(ctx, row))));
    ROWS.iter().map(build).collect()
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
    let title = format!(
        "one zone of one node has exactly {request} left, all other nodes have {free} a zone"
    );
    let target = [Resources::literal("0c 0Gi"), request.clone()];
    let others = in_both_zones(&free);
    ctx.step(
        title,
        ctx.pad_target_and_others(&arena, &target, &others, "others"),
    )
    .await?;
    let before = steps::target_is_last_choice(ctx, &arena).await?;
    let plan = arena.plan(ctx, "testpod", [ResourceRequest::Limits(request.clone())]);
    let pod = steps::pod_runs(ctx, "the pod runs", &plan).await?;
    let title = "the pod is on the one node with a zone for it";
    steps::pod_is_on(ctx, title, &pod, &before.node).await?;
    steps::stack_placed(ctx, &pod).await?;
    steps::one_zone_accounts_for(ctx, &before, &request).await
}
