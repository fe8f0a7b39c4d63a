//! Pods while no exporter publishes NRTs (scenarios-serial.md 8.6).

use k8s_openapi::api::core::v1::Pod;

use crate::context::Context;
use crate::context::arena::Fit;
use crate::context::checks::node_of;
use crate::needs::Need;
use crate::observed::{NodeTopology, Scope, difference, topology_of};
use crate::resources::Resources;
use crate::scenario::{Scenario, body};
use crate::scenarios::registry::scenario;
use crate::scenarios::steps;
use crate::step::StepError;
use crate::workload::{PodPlan, ResourceRequest};

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
/// Of a pod that every kind of fingerprint covers, and that changes an NRT as soon as an exporter publishes.
const WITNESS: &str = "1c 64Mi";

pub(super) fn scenarios() -> Vec<Scenario> {
    let build = |row: &'static Row| {
        let run = body(move |ctx| Box::pin(run(ctx, row)));
        scenario(row.id, NEEDS, run)
    };
    ROWS.iter().map(build).collect()
}

async fn run(ctx: &Context, row: &Row) -> Result<(), StepError> {
    let fit = Fit::Zone(Resources::literal(GUARANTEED).plus(&Resources::literal(WITNESS)));
    let title = format!("a node has a zone with {GUARANTEED}");
    let arena = ctx.step(title, ctx.arena(None, 1, &fit)).await?;
    let groups = steps::exporters_pause(ctx).await?;
    let before = ctx.topologies().await?;
    let resources = (row.resources)();
    let plan = arena.plan(ctx, "testpod", [resources.clone()]);
    let pod = steps::pod_runs(ctx, "the pod runs", &plan).await?;
    steps::stack_placed(ctx, &pod).await?;
    let node = node_of(&pod).unwrap_or_default();
    let exclusive = [ResourceRequest::Limits(Resources::literal(WITNESS))];
    let witness = PodPlan::new("witness", "", exclusive).bound_to(node);
    ctx.step(
        "the exporter has seen it, with another pod that has a CPU of its own",
        async {
            let exporter = ctx.exporter_on(node).await?;
            ctx.create(witness.pod()).await?;
            ctx.pods_running(&[witness.name().to_owned()]).await?;
            ctx.last_scan_has(&exporter, witness.name(), true).await?;
            // an exporter that publishes has published this before it looks again
            ctx.delete::<Pod>(witness.name()).await?;
            ctx.last_scan_has(&exporter, witness.name(), false).await
        },
    )
    .await?;
    ctx.step("no NRT was written", async {
        let now = ctx.topologies().await?;
        if let Some(seen) = difference(&before, &now) {
            return Err(StepError::mismatch("an NRT changed", "no change", seen));
        }
        let versions = |nodes: &[NodeTopology]| -> Vec<String> {
            let version = |node: &NodeTopology| format!("{}: {}", node.node, node.resource_version);
            nodes.iter().map(version).collect()
        };
        let [before, now] = [&before, &now].map(|nodes| versions(nodes));
        if before == now {
            return Ok(());
        }
        let what = "resource versions of the NRTs";
        Err(StepError::mismatch(what, before.join(", "), now.join(", ")))
    })
    .await?;
    steps::exporters_publish_again(ctx, &groups).await?;
    let ResourceRequest::Limits(request) = resources else {
        return Ok(());
    };
    let before = topology_of(&before, node)?;
    ctx.step(
        format!("one zone of the pod's node accounts for {request}"),
        ctx.accounted(before, &request, true, Scope::Pod),
    )
    .await
}
