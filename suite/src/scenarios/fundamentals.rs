//! Bursts of pods are placed without stalls (scenarios-serial.md 8.12).

use crate::context::Context;
use crate::context::arena::Fit;
use crate::needs::Need;
use crate::scenario::{Scenario, body};
use crate::scenarios::load;
use crate::scenarios::registry::scenario;
use crate::step::StepError;
use crate::workload::ResourceRequest;

const NEEDS: &[Need] = &[Need::nodes(1), Need::CacheResync];
struct Row {
    id: &'static str,
    one_node: bool,
    resources: fn() -> ResourceRequest,
}

fn best_effort() -> ResourceRequest {
    ResourceRequest::Nothing
}

static ROWS: &[Row] = &[
    Row {
        id: "fundamentals/node1-gu",
        one_node: true,
        resources: load::guaranteed,
    },
    Row {
        id: "fundamentals/node1-bu",
        one_node: true,
        resources: load::burstable,
    },
    Row {
        id: "fundamentals/node1-be",
        one_node: true,
        resources: best_effort,
    },
    Row {
        id: "fundamentals/all-gu",
        one_node: false,
        resources: load::guaranteed,
    },
    Row {
        id: "fundamentals/all-bu",
        one_node: false,
        resources: load::burstable,
    },
    Row {
        id: "fundamentals/all-be",
        one_node: false,
        resources: best_effort,
    },
];

pub(super) fn scenarios() -> Vec<Scenario> {
    let build = |row: &'static Row| {
        let run = body(move |ctx| Box::pin(run(ctx, row)));
        scenario(row.id, NEEDS, run)
    };
    ROWS.iter().map(build).collect()
}

async fn run(ctx: &Context, row: &Row) -> Result<(), StepError> {
    let arena = ctx
        .step(
            "nodes with two zones are there",
            ctx.arena(None, 1, &Fit::Anything),
        )
        .await?;
    ctx.step("the cluster is settled", ctx.settle()).await?;
    load::burst(ctx, &arena, "testpod", row.resources, row.one_node).await
}
