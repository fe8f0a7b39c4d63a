//! Bursts of pods are placed without stalls (scenarios-serial.md 8.12).

use crate::context::Context;
use crate::context::arena::Fit;
use crate::needs::Need;
use crate::scenario::{Scenario, body};
use crate::scenarios::area::Area;
use crate::scenarios::load;
use crate::step::StepError;
use crate::workload::ResourceRequest;

const ONE_NODE: Area = Area {
    context: "numaresources fundamentals non-regression [node1] against a single node",
    labels: &["serial", "fundamentals", "scheduler", "feature:nonreg"],
    needs: &[Need::nodes(1), Need::CacheResync],
};
const ALL_NODES: Area = Area {
    context: "numaresources fundamentals non-regression [nodeAll] against all the available worker nodes",
    ..ONE_NODE
};
struct Row {
    id: &'static str,
    test_id: u32,
    labels: &'static str,
    one_node: bool,
    resources: fn() -> ResourceRequest,
    text: &'static str,
}

fn best_effort() -> ResourceRequest {
    ResourceRequest::Nothing
}

static ROWS: &[Row] = &[
    Row {
        id: "fundamentals/node1-gu",
        test_id: 84018,
        labels: "node1 tier1",
        one_node: true,
        resources: load::guaranteed,
        text: "should handle a burst of qos=guaranteed pods",
    },
    Row {
        id: "fundamentals/node1-bu",
        test_id: 84019,
        labels: "node1 tier1",
        one_node: true,
        resources: load::burstable,
        text: "should handle a burst of qos=burstable pods",
    },
    Row {
        id: "fundamentals/node1-be",
        test_id: 84020,
        labels: "node1 tier2",
        one_node: true,
        resources: best_effort,
        text: "should handle a burst of qos=best-effort pods",
    },
    Row {
        id: "fundamentals/all-gu",
        test_id: 84021,
        labels: "nodeAll tier0",
        one_node: false,
        resources: load::guaranteed,
        text: "should handle a burst of qos=guaranteed pods",
    },
    Row {
        id: "fundamentals/all-bu",
        test_id: 84022,
        labels: "nodeAll tier1",
        one_node: false,
        resources: load::burstable,
        text: "should handle a burst of qos=burstable pods",
    },
    Row {
        id: "fundamentals/all-be",
        test_id: 84023,
        labels: "nodeAll tier2",
        one_node: false,
        resources: best_effort,
        text: "should handle a burst of qos=best-effort pods",
    },
];

pub(super) fn scenarios() -> Vec<Scenario> {
    let scenario = |row: &'static Row| {
        let area = if row.one_node { ONE_NODE } else { ALL_NODES };
        let run = body(move |ctx| Box::pin(run(ctx, row)));
        area.scenario(row.id, row.test_id, row.labels, row.text, run)
    };
    ROWS.iter().map(scenario).collect()
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
