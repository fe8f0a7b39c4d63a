//! Pods while no exporter publishes NRTs (scenarios-serial.md 8.6).

use std::time::Duration;

use api::operator::InfoRefreshPause;

use crate::context::Context;
use crate::context::arena::Fit;
use crate::context::checks::node_of;
use crate::needs::Need;
use crate::observed::{Scope, difference, topology_of};
use crate::resources::Resources;
use crate::scenario::{Scenario, body};
use crate::scenarios::registry::scenario;
use crate::scenarios::steps;
use crate::step::StepError;
use crate::workload::ResourceRequest;

const NEEDS: &[Need] = &[Need::nodes(1)];

struct Row {
    id: &'static str,
    resources: fn() -> ResourceRequest,
}

static ROWS: &[Row] = &[
    Row {
        id: "nonrt/best-effort",
        resources: || ResourceRequest::Nothing,
    },
    Row {
        id: "nonrt/burstable",
        resources: || ResourceRequest::Requests(Resources::literal("256Mi")),
    },
    Row {
        id: "nonrt/guaranteed",
        resources: || ResourceRequest::Limits(Resources::literal(GUARANTEED)),
    },
];

const GUARANTEED: &str = "4c 256Mi";
/// Several times what an exporter needs to publish a pod that runs.
const TIME_TO_PUBLISH: Duration = Duration::from_millis(500);

pub(super) fn scenarios() -> Vec<Scenario> {
    let build = |row: &'static Row| {
        let run = body(move |ctx| Box::pin(run(ctx, row)));
        scenario(row.id, NEEDS, run)
    };
    ROWS.iter().map(build).collect()
}

async fn run(ctx: &Context, row: &Row) -> Result<(), StepError> {
    let before_groups = ctx.operator_resource().await?.spec.node_groups;
    let fit = Fit::Zone(Resources::literal(GUARANTEED));
    let title = format!("a node has a zone with {GUARANTEED}");
    let arena = ctx.step(title, ctx.arena(None, 1, &fit)).await?;
    ctx.step("no exporter publishes any more", async {
        let mut groups = before_groups.clone();
        for group in &mut groups {
            let config = group.config.get_or_insert_default();
            config.info_refresh_pause = Some(InfoRefreshPause::Enabled);
        }
        ctx.set_node_groups(&groups).await?;
        ctx.operands_rolled_out().await
    })
    .await?;
    let before = ctx.topologies().await?;
    let resources = (row.resources)();
    let plan = arena.plan(ctx, "testpod", [resources.clone()]);
    let pod = steps::pod_runs(ctx, "the pod runs", &plan).await?;
    steps::stack_placed(ctx, &pod).await?;
    ctx.step("no NRT has changed", async {
        // nothing reports that the exporters have seen the pod; an exporter that publishes would have done so within this time
        tokio::time::sleep(TIME_TO_PUBLISH).await;
        match difference(&before, &ctx.topologies().await?) {
            None => Ok(()),
            Some(seen) => Err(StepError::mismatch("an NRT changed", "no change", seen)),
        }
    })
    .await?;
    ctx.step("exporters publish again", async {
        ctx.set_node_groups(&before_groups).await?;
        ctx.operands_rolled_out().await?;
        ctx.settle().await.map(drop)
    })
    .await?;
    let ResourceRequest::Limits(request) = resources else {
        return Ok(());
    };
    let node = node_of(&pod).unwrap_or_default();
    let before = topology_of(&before, node)?;
    ctx.step(
        format!("one zone of the pod's node accounts for {request}"),
        ctx.accounted(before, &request, true, Scope::Pod),
    )
    .await
}
